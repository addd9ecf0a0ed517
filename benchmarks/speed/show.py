"""What was measured, as Markdown; each goal beside it, met or missed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.peers.problem import TURNS
from benchmarks.speed.limits import (
    Ceiling,
    Ceilings,
    Work,
    fused_work,
    least_seconds,
    work_of_step,
)
from benchmarks.speed.measure import ALL_ROWS, OURS, SMALL, TOLERANCE, Measured
from synthfair.distill import outer

RATIOS = {
    ("torch", ALL_ROWS): 60,
    ("torch", SMALL): 25,
    ("jaxopt", ALL_ROWS): 5,
    ("jaxopt", SMALL): 3,
}
"""How many times faster than a peer we want to be, at least."""

OBJECTIVE, GRADIENT = 1e-4, 1e-6
"""How far above the best objective, relatively, and how large the inner gradient may be."""

TIMES_LIMIT = 4
"""How many times the machine's limit we want to stay below, with all rows."""


def document(results: Sequence[Measured], ceilings: Ceilings) -> str:
    """All tables."""
    return "\n".join(
        [
            "# Speed",
            "",
            *steps_table(results),
            *answers_table(results),
            *limit_table(results, ceilings),
            *inner_table(results),
        ]
    )


def verdict(met: bool) -> str:
    """As in the tables."""
    return "met" if met else "MISSED"


def _table(title: str, before: str, header: str, lines: Iterable[str]) -> list[str]:
    rule = "|---" * (header.count("|") - 1) + "|"
    return [f"## {title}", "", before, "", header, rule, *lines, ""]


def steps_table(results: Sequence[Measured]) -> list[str]:
    """Seconds and ratios."""
    before = (
        f"{results[0].steps} outer steps after compilation, in double precision; ours has Adam's"
        f" moments in single. A peer makes its steps in {TURNS} turns, with a whole run of ours"
        " before each and after the last. A ratio is of a turn's pace to the mean of the two runs"
        " beside it; the median of these must meet a goal, and so must the ratio of all turns to"
        " all runs beside them. The peers start each inner solve at zero and end it at a gradient"
        f" of {TOLERANCE:g}; ours goes on from where the last solves point to, and ends at"
        f" {TOLERANCE:g}, too, in the metric of the Hessian. Ours and"
        " jaxopt have one thread and the flags of the client command for a table of this size;"
        " PyTorch has the threads that it takes, and torch-1 one, which is the harder peer where it"
        " is faster. torch-early has PyTorch's own tolerance_change, which ends its inner solve"
        " before the tolerance is met."
    )
    header = (
        "| N_s | package | s | from, to | ms a step | s before | s / ours | from, to | of totals"
        " | goal |"
    )
    lines = (line for size in results for line in _steps_lines(size))
    return _table("Outer steps", before, header, lines)


def _steps_lines(size: Measured) -> Iterator[str]:
    for package in size.packages:
        times, ratios, totals = sorted(package.seconds), package.ratios, package.ratio_of_totals
        least = RATIOS.get((package.name, size.n_synthetic))
        met = least and min(package.ratio, totals) >= least
        goal = f"at least {least}: {verdict(bool(met))}" if least else ""
        yield (
            f"| {size.n_synthetic} | {package.name} | {package.median:.2f} |"
            f" {times[0]:.2f}, {times[-1]:.2f} | {1e3 * package.median / size.steps:.3f} |"
            f" {package.first:.1f} | {package.ratio:.1f} | {ratios[0]:.1f}, {ratios[-1]:.1f} |"
            f" {totals:.1f} | {goal} |"
        )


def answers_table(results: Sequence[Measured]) -> list[str]:
    """How near each package came to the best, and to inner stationarity."""
    worst = ", ".join(f"{size.worst_gradient:.1e} at N_s = {size.n_synthetic}" for size in results)
    before = (
        "The outer objective at the x reached, with theta(x) by one solver for all, after the"
        f" last step; of ours, where that is more than {outer.BOUNCE:g} above the lowest of the"
        f" last {outer.CHUNK} steps, as Adam bounces there, at the lowest: to go back counts in its"
        " time; and the Euclidean norm of the inner gradient at the theta that the package itself"
        " found there."
        f" Largest inner gradient of ours in any step: {worst}."
    )
    header = (
        f"| N_s | package | objective | over the best | at most {OBJECTIVE:g} | inner gradient"
        f" | at most {GRADIENT:g} |"
    )
    lines = (line for size in results for line in _answers_lines(size))
    return _table("The same answer", before, header, lines)


def _answers_lines(size: Measured) -> Iterator[str]:
    best = min(package.objective for package in size.packages)
    for package in size.packages:
        above, norm = package.objective / best - 1, package.gradient_norm
        yield (
            f"| {size.n_synthetic} | {package.name} | {package.objective:.8f} | {above:.1e} |"
            f" {verdict(above <= OBJECTIVE)} | {norm:.1e} | {verdict(norm <= GRADIENT)} |"
        )


def works(size: Measured, *, fused: bool = False) -> list[Work]:
    """The work of one of our steps, phase by phase or as if all were fused that can be."""
    count = fused_work if fused else work_of_step
    return count(size.n_real, size.n_synthetic, size.n_inputs, size.evaluations)


def limit_table(results: Sequence[Measured], ceilings: Ceilings) -> list[str]:
    """Time over the floor."""
    turns = len(results[0].ours.seconds)
    before = (
        "What a step computes and moves, as [limits.py](../../speed/limits.py) counts it, at this"
        " machine's speeds, measured in the same run:"
        f" {_words('a large matrix product', ceilings.flops, 'GFLOP/s')};"
        f" {_words('a large copy', ceilings.memory, 'GB/s')}. These are the best of some tries, as"
        f" others use the machine, too; so the goal is for the fastest of our {turns} runs, and"
        " beside it stands the median. The fused limit leaves out every pass over an array that"
        " could be made together with another."
    )
    header = (
        "| N_s | inner evaluations a step | MFLOP | MB | limit ms | ms a step, fastest run |"
        f" times the limit | at most {TIMES_LIMIT} | median run | times | fused limit ms |"
        " fastest, times that |"
    )
    lines = (_limit_line(size, ceilings) for size in results)
    return _table("Distance to the limit", before, header, lines)


def _words(what: str, ceiling: Ceiling, unit: str) -> str:
    return f"{what} {ceiling.rate / 1e9:.1f} {unit} ({ceiling.cores:.1f} cores busy)"


def _limit_line(size: Measured, ceilings: Ceilings) -> str:
    work, step, median = works(size), size.fastest_step, size.ours.median / size.steps
    limit, fused = (
        sum(least_seconds(phase, ceilings.flops, ceilings.memory) for phase in phases)
        for phases in (work, works(size, fused=True))
    )
    goal = verdict(step <= TIMES_LIMIT * limit) if size.n_synthetic == ALL_ROWS else "no goal"
    return (
        f"| {size.n_synthetic} | {size.evaluations:.2f} |"
        f" {sum(phase.flops for phase in work) / 1e6:.2f} |"
        f" {sum(phase.bytes for phase in work) / 1e6:.2f} | {1e3 * limit:.3f} |"
        f" {1e3 * step:.3f} | {step / limit:.1f} | {goal} | {1e3 * median:.3f} |"
        f" {median / limit:.1f} | {1e3 * fused:.3f} | {step / fused:.1f} |"
    )


def inner_table(results: Sequence[Measured]) -> list[str]:
    """The inner problem alone."""
    before = (
        "One inner solve from theta = 0 at the first x, after compilation; the median of solves by"
        " turns."
    )
    header = (
        "| N_s | package | ms | ms / ours | inner gradient"
        f" | at most {GRADIENT:g} | theta differs from ours by at most |"
    )
    lines = (line for size in results for line in _inner_lines(size))
    return _table("The inner problem alone", before, header, lines)


def _inner_lines(size: Measured) -> Iterator[str]:
    for one in size.inner:
        distance = "" if one.name == OURS else f"{one.distance:.1e}"
        yield (
            f"| {size.n_synthetic} | {one.name} | {1e3 * one.seconds:.2f} |"
            f" {one.seconds / size.inner[0].seconds:.1f} | {one.gradient_norm:.1e} |"
            f" {verdict(one.gradient_norm <= GRADIENT)} | {distance} |"
        )
