"""All settings, the goals, what the published accounting costs, and a plot over epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import showing
from benchmarks.harness import Run
from benchmarks.papers import pentyala
from benchmarks.papers.finding import NOTHING, nothing_learned, what_does_not
from benchmarks.papers.pentyala import THRESHOLDS
from benchmarks.showing import Mean, by, mark, mean_of, page, published, select, table, verdict

if TYPE_CHECKING:
    from benchmarks.privfairfl.comparison import FairSetting, FairValues

    FairRuns = Sequence[Run[FairSetting, FairValues]]

ACCURACY_WITHIN, GAP_WITHIN = 0.002, 0.005
"""Of ThresholdOptimizer, on Adult at epsilon = 1."""

POST = ("thresholds", "randomised")

LOOKS = {
    ("MPC+DP", "randomised"): ("post, randomised; MPC+DP", "#0072B2", "o"),
    ("MPC+DP", "thresholds"): ("post, thresholds; MPC+DP", "#56B4E9", "s"),
    ("local noise", "randomised"): ("post, randomised; local noise", "#D55E00", "o"),
    ("local response", "randomised"): ("post, randomised; local response", "#E69F00", "o"),
    ("MPC+DP", "kamiran_calders"): ("pre, Kamiran-Calders; MPC+DP", "#009E73", "^"),
    ("MPC+DP", "published"): ("pre, published; MPC+DP", "#CC79A7", "^"),
    ("local noise", "published"): ("pre, published; local noise", "0.4", "^"),
}
"""Label, colour and marker of each privacy and fairness of FL."""


class Goal(NamedTuple):
    """One line of the goals.

    Attributes:
        what: in words.
        found: in numbers.
        met: whether.
        failed: the settings that miss it.
    """

    what: str
    found: str
    met: bool
    failed: Sequence[str] = ()


def show(runs: FairRuns) -> dict[str, str]:
    """The page and a plot for each table."""
    before = (
        f"`python -m benchmarks.privfairfl`: means over {showing.n_seeds(runs)} seeds, test rows of"
        " 100 clients together. Post and ThresholdOptimizer ask for equalized odds. ε is that of"
        " the counts, for one row; FL-DP-SGD spends ε = 1 at δ = 1e-4 of its own on top. Gap:"
        " the larger difference of true and of false positive rates; ΔEODD is their mean, as the"
        " paper's formula is meant. Randomised decisions count by their means over coins. Refused:"
        " runs whose counts did not stand out from the noise; they are not in the means. Where"
        " noise hides the gap, a rule that does not close it is more accurate: so can local DP be"
        f" ahead in accuracy alone. {showing.WORSE_NOTE}"
    )
    missed = what_does_not(pentyala.comparison(runs), pentyala.NOTE)
    parts = ["# PrivFairFL", before, missed, "## Our goals", goals_table(runs)]
    parts += [AGAINST_LOCAL, against_local(runs), ACCOUNTING, accounting_table()]
    parts += ["## All settings", settings_table(runs), "## Published, Table 3 (ε = 1 as printed)"]
    text = page(*parts, PUBLISHED_NOTE, published_table())
    plots = {f"{name}.svg": plot(own) for name, own in by(runs, lambda one: one.table).items()}
    return {"privfairfl.md": text} | plots


PUBLISHED_NOTE = (
    "Of ADS16 and MovieLens 1M, neither of which may be passed on: orderings can be compared,"
    " numbers cannot. Post of these rows has no ε that is near 1, see above."
)


def of_seeds(runs: FairRuns, field: str) -> Mean | None:
    """Mean over the seeds that were not refused; None if all were."""
    found = [value for run in runs if not np.isnan(value := getattr(run.values, field))]
    return mean_of(found) if found else None


def settings_table(runs: FairRuns) -> str:
    """A line for each setting."""
    rows = []
    for setting, own in by(runs, lambda setting: setting).items():
        refused = sum(bool(np.isnan(run.values.accuracy)) for run in own)
        fields = ("accuracy", "di", "eop", "eodd", "sp", "gap")
        found = [of_seeds(own, field) for field in fields]
        cells = [mean.text() if mean else "" for mean in found]
        cells[0] += _mark(setting, found[0], runs)
        epsilon = "" if setting.privacy == "none" else f"{setting.epsilon:g}"
        rows.append((*setting[:4], epsilon, *cells, refused or ""))
    header = (
        "table | training | fairness | counts | ε | accuracy | abs(1 - DI) | ΔEOP | ΔEODD | ΔSP"
        " | gap | refused"
    )
    return table(header, rows)


def constant_accuracy(runs: FairRuns, table: str) -> Mean | None:
    """Of the constant classifier on a table, if it was run."""
    return of_seeds(select(runs, table=table, training="constant"), "accuracy")


def _mark(setting: FairSetting, accuracy: Mean | None, runs: FairRuns) -> str:
    itself = setting.training == "constant"
    return "" if itself else mark(accuracy, constant_accuracy(runs, setting.table))


def goals_table(runs: FairRuns) -> str:
    """Every goal whose runs are there."""
    found = list(goals(runs))
    rows = [(goal.what, goal.found, verdict(goal.met)) for goal in found]
    missed = [f"- {goal.what}: not {', '.join(goal.failed)}." for goal in found if goal.failed]
    return "\n".join([table("goal | found | ", rows), "", *missed]).rstrip()


def goals(runs: FairRuns) -> Iterator[Goal]:
    """Those whose runs are there."""
    yield from near_threshold_optimizer(runs)
    for name, own in by(runs, lambda one: one.table).items():
        yield from lowers_every_gap(name, own)


def near_threshold_optimizer(runs: FairRuns) -> Iterator[Goal]:
    """The randomised rule with ε = 1, on Adult."""
    own = select(runs, table="adult", training="FL")
    ours = select(own, fairness="randomised", privacy="MPC+DP", epsilon=1.0)
    theirs = select(own, fairness="ThresholdOptimizer")
    pairs = [[of_seeds(some, field) for some in (ours, theirs)] for field in ("accuracy", "gap")]
    if any(mean is None for pair in pairs for mean in pair):
        return
    off = [our.mean - their.mean for our, their in pairs]  # type: ignore[union-attr]
    yield Goal(
        f"Adult, ε = 1: the randomised rule within {ACCURACY_WITHIN:g} of ThresholdOptimizer's"
        f" accuracy and {GAP_WITHIN:g} of its gap",
        f"accuracy {off[0]:+.4f}, gap {off[1]:+.4f}",
        abs(off[0]) <= ACCURACY_WITHIN and abs(off[1]) <= GAP_WITHIN,
    )


def lowers_every_gap(name: str, runs: FairRuns) -> Iterator[Goal]:
    """Post by MPC+DP next to the model it was given, at each ε."""
    failed, tried, nothing = [], 0, 0
    constants = select(runs, training="constant")
    for setting, own in by(runs, lambda setting: setting).items():
        if setting.fairness not in POST or setting.privacy != "MPC+DP":
            continue
        if nothing_learned(own, constants):
            nothing += 1
            continue
        before = of_seeds(select(runs, training=setting.training, fairness="none"), "gap")
        after = of_seeds(own, "gap")
        if before and before.mean > 0:  # else nothing can be lower
            tried += 1
            if after is None or after.mean >= before.mean:
                failed.append(f"{setting.training} {setting.fairness} ε = {setting.epsilon:g}")
    if tried:
        words = f"{tried - len(failed)} of {tried}" + f"; {NOTHING} by {nothing}" * bool(nothing)
        yield Goal(f"{name}: Post lowers every model's gap", words, not failed, failed)


AGAINST_LOCAL = (
    "## Secure sums against local DP\n\nPairs of settings that differ in nothing else: MPC+DP is"
    " better, the same (within two standard errors of the differences over seeds), or worse. Pairs"
    " in which one of the two was refused on every seed are left out."
)


def against_local(runs: FairRuns) -> str:
    """Counts of pairs by table, before and after training, and of all."""
    found = [pentyala.worse_than_local(runs, field) for field in ("accuracy", "gap")]
    rows = []
    for name in by(runs, lambda one: one.table):
        for when, post in (("pre", False), ("post", True)):
            some = [
                [one for key, one in pairs.items()
                 if key.table == name and (key.fairness in POST) is post]
                for pairs in found
            ]  # fmt: skip
            rows.append((name, when, *_counts(some)))
    rows.append(("all", "", *_counts([list(pairs.values()) for pairs in found])))
    return table(
        "table | when | pairs | accuracy: better | same | worse | gap: better | same | worse", rows
    )


def _counts(some: Sequence[Sequence[Mean]]) -> tuple[int, ...]:
    return (len(some[0]), *(n for pairs in some for n in pentyala.tally(pairs)))


# What the published accounting costs

DELTA = 1e-6

ACCOUNTING = (
    "## What the published noise guarantees\n\nPost adds Laplace noise of scale 1/ε to the"
    f" confusion matrix at each of {THRESHOLDS:,} thresholds. A row is in one cell of each, so that"
    f" one row moves {THRESHOLDS:,} noisy counts by 1. The least ε that holds is therefore"
    f" {THRESHOLDS:,} times the one printed; at δ = {DELTA:g}, by dp-accounting's privacy loss"
    " distributions, less. (The published code has scale 1 always: the line ε = 1.)"
)


@cache
def least_epsilon(printed: float, delta: float) -> float:
    """Of all thresholds together."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp.LaplaceDpEvent(1 / printed), THRESHOLDS)
    return float(accountant.get_epsilon(delta))


def accounting_table() -> str:
    """Printed and true."""
    rows = [
        (epsilon, f"{THRESHOLDS * epsilon:,.4g}", f"{least_epsilon(epsilon, DELTA):,.4g}", epsilon)
        for epsilon in (0.1, 0.5, 1.0)
    ]
    return table(f"ε printed | ε that holds | at δ = {DELTA:g} | ε of the histogram here", rows)


def published_table() -> str:
    """As printed."""
    lines = published("pentyala_2022_table3")
    header = "table | method | fairness | privacy | accuracy | abs(1 - DI) | ΔEOP | ΔEODD | ΔSP"
    return table(header, [tuple(line.values()) for line in lines])


# Plot


def plot(runs: FairRuns) -> str:
    """Accuracy and gap of FL over ε, with ThresholdOptimizer's as a line."""
    figure, both = showing.panels(1, 2, 8.4, 3.8)
    own = select(runs, training="FL")
    for axes, field in zip(both, ("accuracy", "gap"), strict=True):
        for (privacy, fairness), (label, color, marker) in LOOKS.items():
            some = by(select(own, privacy=privacy, fairness=fairness), lambda one: one.epsilon)
            found = {
                epsilon: mean.mean
                for epsilon, seeds in some.items()
                if np.isfinite(epsilon) and (mean := of_seeds(seeds, field))
            }
            look: Any = {"color": color, "marker": marker, "linewidth": 1, "label": label}
            axes.plot([*found], [*found.values()], **look)
        for fairness, style in (("ThresholdOptimizer", "--"), ("none", ":")):
            if mean := of_seeds(select(own, fairness=fairness), field):
                axes.axhline(mean.mean, color="0.2", linestyle=style, label=f"FL, {fairness}")
        if field == "accuracy" and (mean := of_seeds(select(runs, training="constant"), field)):
            axes.axhline(mean.mean, color="#000000", linestyle="-.", label="constant classifier")
        axes.set(xscale="log", xlabel="epsilon", ylabel=field)
    showing.legend(figure, 3)
    return showing.as_svg(figure)
