"""What was measured, as Markdown; each goal beside it, met or missed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.speed.limits import Ceiling, Ceilings, Work, least_seconds, work_of_step
from benchmarks.speed.measure import ALL_ROWS, OURS, SMALL, Measured

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
    turns = len(results[0].ours.seconds)
    before = [
        f"{results[0].steps} outer steps after compilation, in double precision. The median of all"
        f" runs, of which ours has {turns}, before, between and after the peers."
    ]
    before += [
        f"N_s = {size.n_synthetic}: {package.note}."
        for size in results
        for package in size.packages
        if package.note
    ]
    header = "| N_s | package | s | runs took | ms a step | s before | s / ours | goal |"
    lines = (line for size in results for line in _steps_lines(size))
    return _table("Outer steps", " ".join(before), header, lines)


def _steps_lines(size: Measured) -> Iterator[str]:
    for package in size.packages:
        ratio = package.median / size.ours.median
        least = RATIOS.get((package.name, size.n_synthetic))
        goal = f"at least {least}: {verdict(ratio >= least)}" if least else ""
        took = ", ".join(f"{one:.2f}" for one in sorted(package.seconds))
        yield (
            f"| {size.n_synthetic} | {package.name} | {package.median:.2f} | {took} |"
            f" {1e3 * package.median / size.steps:.3f} | {package.first:.1f} | {ratio:.1f} |"
            f" {goal} |"
        )


def answers_table(results: Sequence[Measured]) -> list[str]:
    """How near each package came to the best, and to inner stationarity."""
    worst = ", ".join(f"{size.worst_gradient:.1e} at N_s = {size.n_synthetic}" for size in results)
    before = (
        "The outer objective at the x reached, with theta(x) by one solver for all; and the"
        " Euclidean norm of the inner gradient at the theta that the package itself found there."
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


def works(size: Measured) -> list[Work]:
    """The least work of one of our steps."""
    return work_of_step(size.n_real, size.n_synthetic, size.n_inputs, size.evaluations)


def limit_table(results: Sequence[Measured], ceilings: Ceilings) -> list[str]:
    """Time over the floor."""
    before = (
        "What a step must compute and move, as [limits.py](../../speed/limits.py) counts it, at"
        " this machine's speeds, measured in the same run:"
        f" {_words('a large matrix product', ceilings.flops, 'GFLOP/s')};"
        f" {_words('a large copy', ceilings.memory, 'GB/s')};"
        f" {_words('a copy in the cache', ceilings.cache, 'GB/s')}."
    )
    header = (
        "| N_s | inner evaluations a step | MFLOP | MB | ms a step | limit ms | times the limit |"
        f" at most {TIMES_LIMIT} | limit ms, in the cache | times that |"
    )
    lines = (_limit_line(size, ceilings) for size in results)
    return _table("Distance to the limit", before, header, lines)


def _words(what: str, ceiling: Ceiling, unit: str) -> str:
    return f"{what} {ceiling.rate / 1e9:.1f} {unit} ({ceiling.cores:.1f} cores busy)"


def _limit_line(size: Measured, ceilings: Ceilings) -> str:
    work, step = works(size), size.step_seconds
    memory, cache = (
        sum(least_seconds(phase, ceilings.flops, copy) for phase in work)
        for copy in (ceilings.memory, ceilings.cache)
    )
    goal = verdict(step <= TIMES_LIMIT * memory) if size.n_synthetic == ALL_ROWS else "no goal"
    return (
        f"| {size.n_synthetic} | {size.evaluations:.2f} |"
        f" {sum(phase.flops for phase in work) / 1e6:.2f} |"
        f" {sum(phase.bytes for phase in work) / 1e6:.2f} |"
        f" {1e3 * step:.3f} | {1e3 * memory:.3f} | {step / memory:.1f} | {goal} |"
        f" {1e3 * cache:.3f} | {step / cache:.1f} |"
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
