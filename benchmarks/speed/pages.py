"""What was measured, as Markdown and plots; each goal next to it, met or missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.harness import Run
from benchmarks.showing import COLORS, as_svg, by, legend, page, panels, table, verdict
from benchmarks.speed.limits import Ceilings, Work, least_seconds, work_of_step

ALL_ROWS, SMALL = 8319, 800
OURS = "synthfair"

RATIOS = {("torch", ALL_ROWS): 50, ("torch", SMALL): 50}
"""How many times faster than a peer we want to be, at least."""

OBJECTIVE, GRADIENT = 1e-4, 1e-6
"""How far above the best objective, relatively, and how large the inner gradient may be."""

TIMES_LIMIT = 4
"""How many times the machine's limit we want to stay below, with all rows."""

HATCHES = ("", "//", "..", "xx", "||")


class StepsSetting(NamedTuple):
    """A package on a problem of one size."""

    n_synthetic: int
    package: str


class StepsValues(NamedTuple):
    """Of all steps.

    Attributes:
        n_real: N.
        n_inputs: n.
        steps: outer steps of a run.
        seconds: median over the package's turns, after compilation, at each one's pace.
        least: of the turns.
        most: of the turns.
        first: seconds of compiling or warming up.
        ratio: of a turn to the runs of ours around it, the median.
        ratio_least: of the turns.
        ratio_most: of the turns.
        ratio_of_totals: of all turns together, in which long ones meet no more stalls than short
            ones.
        ours_fastest: seconds of the fastest run of ours among the turns.
        objective: P(x) at the end, evaluated in one way for all.
        gradient_norm: Euclidean, of the inner objective at the theta that the package returned.
        evaluations: of the inner objective and its gradient in a step of ours, on average.
        worst_gradient: largest gradient norm of the inner problem in any step of ours.
        flops: of the machine, a second; 0 in the rows of peers.
        bytes: the same, read and written.
    """

    n_real: int
    n_inputs: int
    steps: int
    seconds: float
    least: float
    most: float
    first: float
    ratio: float
    ratio_least: float
    ratio_most: float
    ratio_of_totals: float
    ours_fastest: float
    objective: float
    gradient_norm: float
    evaluations: float
    worst_gradient: float
    flops: float
    bytes: float


class InnerSetting(NamedTuple):
    """A size."""

    n_synthetic: int


class InnerValues(NamedTuple):
    """One inner solve by us and by SciPy: seconds, gradient norms, and how far theta differs."""

    ours: float
    scipy: float
    ours_gradient: float
    scipy_gradient: float
    distance: float


StepsRuns = Sequence[Run[StepsSetting, StepsValues]]


def show_steps(runs: StepsRuns) -> dict[str, str]:
    """All tables and plots."""
    text = page("# Speed", steps_table(runs), answers_table(runs), limit_table(runs))
    return {"speed.md": text, "seconds.svg": plot_seconds(runs)}


def steps_table(runs: StepsRuns) -> str:
    """Seconds and ratios."""
    rows = []
    for (size, package), _, one, _ in runs:
        least, goal = RATIOS.get((package, size)), ""
        if least:
            met = min(one.ratio, one.ratio_of_totals) >= least
            goal = f"at least {least}: {verdict(met)}"
        rows.append(
            (
                size, package, f"{one.seconds:.2f}", f"{one.least:.2f}, {one.most:.2f}",
                f"{1e3 * one.seconds / one.steps:.3f}", f"{one.first:.1f}", f"{one.ratio:.1f}",
                f"{one.ratio_least:.1f}, {one.ratio_most:.1f}", f"{one.ratio_of_totals:.1f}", goal,
            )
        )  # fmt: skip
    before = (
        "Outer steps after compilation, in double precision; ours has Adam's moments in single. A"
        " peer makes its steps in ten turns, with a whole run of ours before each and after the"
        " last. A ratio is of a turn's pace to the mean of the two runs around it; the median of"
        " these must meet a goal, and so must the ratio of all turns to all runs around them. The"
        " peers start each inner solve at zero and end it at a gradient of 1e-7; ours starts at"
        " the last solution, and ends at 1e-7, too, in the metric of the Hessian."
        " PyTorch has the threads that it takes, and torch-1 one, which is the harder peer where"
        " it is faster. torch-early has PyTorch's own tolerance_change, which ends its inner solve"
        " before the tolerance is met."
    )
    header = (
        "N_s | package | s | from, to | ms a step | s before | s / ours | from, to | of totals"
        " | goal"
    )
    return f"## Outer steps\n\n{before}\n\n{table(header, rows)}"


def answers_table(runs: StepsRuns) -> str:
    """How near each package came to the best, and to inner stationarity."""
    rows, worst = [], []
    for size, own in by(runs, lambda setting: setting.n_synthetic).items():
        best = min(run.values.objective for run in own)
        for (_, package), _, one, _ in own:
            above, norm = one.objective / best - 1, one.gradient_norm
            cells = (f"{above:.1e}", verdict(above <= OBJECTIVE), f"{norm:.1e}")
            start = (size, package, f"{one.objective:.8f}")
            rows.append((*start, *cells, verdict(norm <= GRADIENT)))
        worst.append(f"{max(run.values.worst_gradient for run in own):.1e} at N_s = {size}")
    before = (
        "The outer objective at the x reached, with theta(x) by one solver for all, after the last"
        " step; and the Euclidean norm of the inner gradient at the theta that the package itself"
        f" found there. Largest inner gradient of ours in any step: {', '.join(worst)}."
    )
    header = (
        f"N_s | package | objective | over the best | at most {OBJECTIVE:g} | inner gradient"
        f" | at most {GRADIENT:g}"
    )
    return f"## The same answer\n\n{before}\n\n{table(header, rows)}"


class Limit(NamedTuple):
    """Of one size: work, what the machine can, and seconds of our fastest and median step."""

    n_synthetic: int
    evaluations: float
    works: list[Work]
    ceilings: Ceilings
    fastest: float
    median: float

    @property
    def seconds(self) -> float:
        """The least that a step takes."""
        return sum(least_seconds(work, self.ceilings) for work in self.works)


def limits(runs: StepsRuns) -> list[Limit]:
    """Of each size of which ours was run."""
    found = []
    for (size, package), _, one, _ in runs:
        if package == OURS:
            same = [run.values for run in runs if run.setting.n_synthetic == size]
            work = work_of_step(one.n_real, size, one.n_inputs, one.evaluations)
            fastest = min(values.ours_fastest for values in same) / one.steps
            ceilings = Ceilings(one.flops, one.bytes)
            median = one.seconds / one.steps
            found.append(Limit(size, one.evaluations, work, ceilings, fastest, median))
    return found


def limit_table(runs: StepsRuns) -> str:
    """Time over the limit."""
    rows = []
    for one in limits(runs):
        times = one.fastest / one.seconds
        goal = verdict(times <= TIMES_LIMIT) if one.n_synthetic == ALL_ROWS else "no goal"
        amounts = (sum(getattr(work, kind) for work in one.works) for kind in ("flops", "bytes"))
        rows.append(
            (
                one.n_synthetic, f"{one.evaluations:.2f}", *(f"{a / 1e6:.2f}" for a in amounts),
                *(f"{rate / 1e9:.1f}" for rate in one.ceilings), f"{1e3 * one.seconds:.3f}",
                f"{1e3 * one.fastest:.3f}", f"{times:.1f}", goal, f"{1e3 * one.median:.3f}",
                f"{one.median / one.seconds:.1f}",
            )
        )  # fmt: skip
    before = (
        "What a step computes and moves, as [limits.py](../../speed/limits.py) counts it, at this"
        " machine's speeds of a large matrix product and a large copy, measured before and after"
        " our runs. These are the best of some tries, as others use the machine, too; so the goal"
        " is for the fastest of our runs, and next to it stands the median."
    )
    header = (
        "N_s | inner evaluations a step | MFLOP | MB | GFLOP/s | GB/s | limit ms"
        f" | ms a step, fastest run | times the limit | at most {TIMES_LIMIT} | median run | times"
    )
    return f"## Distance to the limit\n\n{before}\n\n{table(header, rows)}"


def show_inner(runs: Sequence[Run[InnerSetting, InnerValues]]) -> dict[str, str]:
    """The inner problem alone."""
    rows = []
    for (size,), _, one, _ in runs:
        for name, seconds, norm, off in (
            (OURS, one.ours, one.ours_gradient, ""),
            ("scipy", one.scipy, one.scipy_gradient, f"{one.distance:.1e}"),
        ):
            ratio = f"{seconds / one.ours:.1f}"
            cells = (f"{1e3 * seconds:.2f}", ratio, f"{norm:.1e}", verdict(norm <= GRADIENT), off)
            rows.append((size, name, *cells))
    before = "One inner solve from theta = 0 at the first x, after compilation; medians, by turns."
    header = (
        f"N_s | package | ms | ms / ours | inner gradient | at most {GRADIENT:g}"
        " | theta differs from ours by at most"
    )
    return {"inner.md": page("# The inner problem alone", before, table(header, rows))}


def plot_seconds(runs: StepsRuns) -> str:
    """Time of all steps by package and size, on a log axis."""
    figure, (axes,) = panels(1, 1, 6, 3.4)
    sizes = [*by(runs, lambda setting: setting.n_synthetic)]
    packages = by(runs, lambda setting: setting.package)
    width = 0.8 / len(packages)
    for i, (name, own) in enumerate(packages.items()):
        shift = (i - (len(packages) - 1) / 2) * width
        places = [sizes.index(run.setting.n_synthetic) + shift for run in own]
        heights = [run.values.seconds for run in own]
        bars = axes.bar(places, heights, width, label=name, **_bar(i))
        axes.bar_label(bars, [f"{height:.3g}" for height in heights], padding=2, fontsize="small")
    axes.set_xticks(range(len(sizes)), [f"N_s = {size:,}" for size in sizes])
    axes.set(yscale="log", ylabel=f"seconds for {runs[0].values.steps:,} outer steps")
    axes.margins(y=0.15)
    least = min(run.values.seconds for run in runs)
    axes.set_ylim(bottom=10 ** math.floor(math.log10(least)))
    legend(figure, len(packages))
    return as_svg(figure)


def _bar(i: int) -> dict[str, Any]:
    """Told apart by hatches as well as by colours."""
    return {"color": COLORS[i], "hatch": HATCHES[i], "edgecolor": "black", "linewidth": 0.6}
