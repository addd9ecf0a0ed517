"""All settings, the goals, and what the published accounting costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks import findings as rules
from benchmarks.findings import (
    NOTHING,
    Finding,
    compared,
    nothing_learned,
    of_learned,
    verdict_of,
    what_does_not,
)
from benchmarks.runs import Mean, Runs, mean_of
from benchmarks.showing import mark, page, published, verdict

ACCURACY_WITHIN, GAP_WITHIN = 0.002, 0.005
"""Of ThresholdOptimizer, on Adult at epsilon = 1."""

POST = ("thresholds", "randomised")

THRESHOLDS = 1001
"""Of Post, as published."""

LOCAL = ("local noise", "local response")

DELTA = 1e-6
"""Of what the published accounting costs."""


class Goal(NamedTuple):
    """One line of the goals.

    Attributes:
        what: in words.
        numbers: what came out.
        met: whether.
        failed: the settings that miss it.
    """

    what: str
    numbers: str
    met: bool
    failed: Sequence[str] = ()


def show(runs: Runs) -> dict[str, str]:
    """Return the page."""
    every = list(goals(runs))
    missed = [f"- {goal.what}: not {', '.join(goal.failed)}." for goal in every if goal.failed]
    epsilons = [
        f"{e:g} | {THRESHOLDS * e:,.4g} | {least_epsilon(e, DELTA):,.4g} | {e:g}"
        for e in (0.1, 0.5, 1.0)
    ]
    text = page(
        "privfairfl/privfairfl",
        runs,
        missed=what_does_not(claims(runs), NOTE),
        goals=[(goal.what, goal.numbers, verdict(goal.met)) for goal in every],
        missed_goals="\n".join(missed),
        against_local=against_local(runs),
        thresholds=THRESHOLDS,
        delta=DELTA,
        epsilons=epsilons,
        settings=settings(runs),
        published=[tuple(line.values()) for line in published("pentyala_2022_table3")],
    )
    return {"privfairfl.md": text}


def of_seeds(runs: Runs, field: str) -> Mean | None:
    """Mean over the seeds that were not refused; None if all were."""
    known = [value for value in runs.values(field) if not np.isnan(value)]
    return mean_of(known) if known else None


def settings(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield a line of the page for each setting."""
    constants = runs.select(training="constant").by("table")
    for setting, own in runs.by().items():
        refused = int(np.isnan(own.values("accuracy")).sum())
        means = [of_seeds(own, name) for name in ("accuracy", "di", "eop", "eodd", "sp", "gap")]
        cells = [mean.text() if mean else "" for mean in means]
        if setting.training != "constant" and setting.table in constants:
            cells[0] += mark(means[0], of_seeds(constants[setting.table], "accuracy"))
        epsilon = "" if setting.privacy == "none" else f"{setting.epsilon:g}"
        yield *setting[:4], epsilon, *cells, refused or ""


def goals(runs: Runs) -> Iterator[Goal]:
    """Those whose runs are there."""
    # The randomised rule with ε = 1, on Adult.
    own = runs.select(table="adult", training="FL")
    ours = own.select(fairness="randomised", privacy="MPC+DP", epsilon=1.0)
    theirs = own.select(fairness="ThresholdOptimizer")
    pairs = [(of_seeds(ours, name), of_seeds(theirs, name)) for name in ("accuracy", "gap")]
    off = [mine.mean - other.mean for mine, other in pairs if mine and other]
    if len(off) == len(pairs):
        yield Goal(
            f"Adult, ε = 1: the randomised rule within {ACCURACY_WITHIN:g} of ThresholdOptimizer's"
            f" accuracy and {GAP_WITHIN:g} of its gap",
            f"accuracy {off[0]:+.4f}, gap {off[1]:+.4f}",
            abs(off[0]) <= ACCURACY_WITHIN and abs(off[1]) <= GAP_WITHIN,
        )
    for name, own in runs.by("table").items():
        yield from lowers_every_gap(name, own)


def lowers_every_gap(name: str, runs: Runs) -> Iterator[Goal]:
    """Post by MPC+DP next to the model it was given, at each ε."""
    failed, tried, nothing = [], 0, 0
    constants = runs.select(training="constant")
    for setting, own in runs.select(privacy="MPC+DP").by().items():
        if setting.fairness not in POST:
            continue
        if nothing_learned(own, constants):
            nothing += 1
            continue
        before = of_seeds(runs.select(training=setting.training, fairness="none"), "gap")
        after = of_seeds(own, "gap")
        if before and before.mean > 0:  # else nothing can be lower
            tried += 1
            if after is None or after.mean >= before.mean:
                failed.append(f"{setting.training} {setting.fairness} ε = {setting.epsilon:g}")
    if tried:
        words = f"{tried - len(failed)} of {tried}" + f"; {NOTHING} by {nothing}" * bool(nothing)
        yield Goal(f"{name}: Post lowers every model's gap", words, not failed, failed)


def against_local(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield counts of pairs with local DP, by table before and after training, and of all."""
    both = [worse_than_local(runs, field) for field in ("accuracy", "gap")]
    kinds = [(name, when) for name in runs.by("table") for when in ("pre", "post")]
    for name, when in (*kinds, ("all", "")):
        some = [
            [
                one
                for key, one in pairs.items()
                if not when or (key.table, key.fairness in POST) == (name, when == "post")
            ]
            for pairs in both
        ]
        yield name, when, len(some[0]), *(n for one in some for n in tally(one))


@cache
def least_epsilon(printed: float, delta: float) -> float:
    """Of all thresholds together."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp.LaplaceDpEvent(1 / printed), THRESHOLDS)
    return float(accountant.get_epsilon(delta))


# What the paper claims about table 3, at epsilon = 1

PAGE = "privfairfl/privfairfl.md"
LITTLE = 0.01
"""Of accuracy: what counts as little cost."""

NOTE = (
    "As in the paper's table 3, training is FL-DP-SGD and epsilon = 1; local DP is noise on each"
    " client's counts. Differences are over the seeds that both have. The paper's are of ADS16 and"
    f" MovieLens 1M. Little cost is at most {LITTLE:g} of accuracy. Where MPC+DP is compared with"
    " local DP, a pair is a setting that both have, and *same* is within two standard errors of"
    " the differences over seeds. Pairs in which a model learned nothing are counted, and do not"
    " decide."
)

CL, FL, DP = ("CL", "-"), ("FL", "-"), ("FL-DP-SGD", "-")
LOCAL_PRE, PRE = ("FL-DP-SGD", "Pre"), ("PrivFairFL", "Pre")
POST_LINE = ("PrivFairFL", "Post")
"""Method and fairness of lines of table 3."""

CLAIMS = (
    ("FL is less accurate than CL", "accuracy", FL, CL, None),
    ("DP-SGD lowers the ΔEODD of FL", "eodd", DP, FL, None),
    ("Pre lowers ΔEODD", "eodd", PRE, DP, None),
    ("Post lowers ΔEODD", "eodd", POST_LINE, DP, None),
    ("Post costs little accuracy", "accuracy", POST_LINE, DP, LITTLE),
    ("Pre has a lower ΔEODD by MPC+DP than by local DP", "eodd", PRE, LOCAL_PRE, None),
    ("Pre is more accurate by MPC+DP than by local DP; accuracy lost", "accuracy", PRE, LOCAL_PRE,
     0.0),
)  # fmt: skip
"""Of table 3: what is lower in the first row than in the second; or, a loss, by how much at most.
"""


def claims(runs: Runs) -> Iterator[Finding]:
    """Yield claims about rows of table 3, table by table; then about all pairs with local DP."""
    printed = {
        (line["dataset"], line["method"], line["fairness"]): line
        for line in published("pentyala_2022_table3")
    }
    for name, own in runs.by("table").items():
        constants = own.select(training="constant")
        private = own.select(training="FL-DP-SGD", epsilon=1.0)
        weighted = private.select(fairness="published")
        lines = {
            **{(one, "-"): own.select(training=one, fairness="none")
               for one in ("CL", "FL", "FL-DP-SGD")},
            LOCAL_PRE: weighted.select(privacy="local noise"),
            PRE: weighted.select(privacy="MPC+DP"),
            POST_LINE: private.select(fairness="thresholds", privacy="MPC+DP"),
        }  # fmt: skip
        for what, field, low, high, most in CLAIMS:
            if not (lines[low] and lines[high]):
                continue
            less = lines[high].less(lines[low], field)
            ours, column = less.text("+.4f", error=True), field
            if field == "eodd":
                before, after = (lines[one].mean(field).mean for one in (high, low))
                ours, column = f"{before:.4f} to {after:.4f}: {ours}", "delta_eodd"
            theirs = [
                float(printed[data, *high][column]) - float(printed[data, *low][column])
                for data in ("ADS", "ML-1M")
            ]
            yield compared(
                f"{name.replace('_', ' ')}: {what}", ", ".join(f"{one:+.4f}" for one in theirs),
                ours, 0 - less if most is None else less - most, PAGE,
                ahead={" ".join(part for part in one if part != "-"):
                       lines[one].less(constants, "accuracy") for one in (low, high)},
            )  # fmt: skip
    yield from beats_local(runs)


def worse_than_local(runs: Runs, field: str) -> dict[Any, Mean]:
    """By how much MPC+DP is worse than local DP, for each setting of the latter, over seeds.

    Left out are settings in which one of the two was refused on every seed.
    """
    groups, worse = runs.by(), {}
    for setting, own in groups.items():
        ours = groups.get(setting._replace(privacy="MPC+DP"))
        if setting.privacy in LOCAL and ours:
            low, high = (ours, own) if field == "accuracy" else (own, ours)
            worse[setting] = high.less(low, field)
    return {setting: one for setting, one in worse.items() if one.n}


def tally(excesses: Iterable[Mean]) -> tuple[int, int, int]:
    """How many are better, the same, and worse."""
    counts = Counter(map(verdict_of, excesses))
    return counts[rules.YES], counts[rules.UNDECIDED], counts[rules.NO]


def beats_local(runs: Runs) -> Iterator[Finding]:
    """All pairs of settings, in accuracy and gap."""
    groups = runs.by()
    for field in ("accuracy", "gap"):
        pairs, deciding = worse_than_local(runs, field), []
        for setting, one in pairs.items():
            constants = runs.select(table=setting.table, training="constant")
            both = groups[setting], groups[setting._replace(privacy="MPC+DP")]
            deciding.append(of_learned(one, constants, *both))
        if pairs:
            counts = tally(pairs.values()), tally(one for one in deciding if one.n)
            words = ("{} better, {} same, {} worse".format(*some) for some in counts)
            better, same, worse = counts[1]
            verdict = rules.NO if worse else rules.UNDECIDED
            if better:
                verdict = rules.PARTLY if same or worse else rules.YES
            yield Finding(
                f"MPC+DP beats local DP in {field}, of {len(pairs)} pairs", "it does",
                "; of models that learned something ".join(words), verdict, PAGE,
            )  # fmt: skip
