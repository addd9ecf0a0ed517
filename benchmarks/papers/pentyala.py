"""Pentyala et al. (2022): its claims about table 3, at epsilon = 1, and about seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.harness import Run
from benchmarks.papers.finding import (
    NO,
    NOT_MEASURED,
    PARTLY,
    REFUTED,
    UNDECIDED,
    YES,
    Finding,
    Paper,
    above,
    below,
    compared,
    of_learned,
    verdict_of,
)
from benchmarks.registry import committed
from benchmarks.showing import Mean, by, means, paired, published, select

PAGE = "privfairfl/privfairfl.md"
SECONDS, PEER = "privfairfl/seconds.md", "privfairfl/peer.md"
LITTLE = 0.01
"""Of accuracy: what counts as little cost."""

LOCAL = ("local noise", "local response")

FairRuns = Sequence[Run[Any, Any]]

NOTE = (
    "As in the paper's table 3, training is FL-DP-SGD and epsilon = 1; local DP is noise on each"
    " client's counts. Differences are over the seeds that both have. The paper's are of ADS16 and"
    f" MovieLens 1M. Little cost is at most {LITTLE:g} of accuracy. Where MPC+DP is compared with"
    " local DP, a pair is a setting that both have, and *same* is within two standard errors of"
    " the differences over seeds. Pairs in which a model learned nothing are counted, and do not"
    " decide."
)

SECONDS_NOTE = (
    "Seconds here are of one run on another machine, and where secure sums take the place of the"
    " published protocol, of another protocol: they decide nothing."
)

Row = tuple[str, str]
"""Method and fairness of a line of table 3."""

CL, FL, DP = ("CL", "-"), ("FL", "-"), ("FL-DP-SGD", "-")
LOCAL_PRE, PRE, POST = ("FL-DP-SGD", "Pre"), ("PrivFairFL", "Pre"), ("PrivFairFL", "Post")


CLAIMS = (
    ("FL is less accurate than CL", "accuracy", FL, CL, None),
    ("DP-SGD lowers the ΔEODD of FL", "eodd", DP, FL, None),
    ("Pre lowers ΔEODD", "eodd", PRE, DP, None),
    ("Post lowers ΔEODD", "eodd", POST, DP, None),
    ("Post costs little accuracy", "accuracy", POST, DP, LITTLE),
    ("Pre has a lower ΔEODD by MPC+DP than by local DP", "eodd", PRE, LOCAL_PRE, None),
    ("Pre is more accurate by MPC+DP than by local DP; accuracy lost", "accuracy", PRE, LOCAL_PRE,
     0.0),
)  # fmt: skip
"""Of table 3: what is lower in the first row than in the second; or, a loss, by how much at most.
"""


def comparison(runs: FairRuns) -> Iterator[Finding]:
    """The rows of table 3 against each other, table by table; then all pairs with local DP."""
    for name, own in by(runs, lambda one: one.table).items():
        rows, constants = _rows(own), select(own, training="constant")
        for what, field, low, high, most in CLAIMS:
            if not (rows[low] and rows[high]):
                continue
            less = paired(rows[low], rows[high], field)
            ours = less.text("+.4f", error=True)
            if field == "eodd":
                before, after = (means(rows[one], field).mean for one in (high, low))
                ours = f"{before:.4f} to {after:.4f}: {ours}"
            yield compared(
                f"{name.replace('_', ' ')}: {what}",
                ", ".join(f"{one:+.4f}" for one in _printed(low, high, field)),
                ours, below(less, 0.0) if most is None else above(less, most), PAGE,
                ahead={_words_of(one): paired(constants, rows[one], "accuracy")
                       for one in (low, high)},
            )  # fmt: skip
    yield from beats_local(runs)


def _words_of(row: Row) -> str:
    return " ".join(one for one in row if one != "-")


def _rows(own: FairRuns) -> dict[Row, FairRuns]:
    """The lines of table 3, of one of our tables."""
    plain: dict[Row, FairRuns] = {
        (name, "-"): select(own, training=name, fairness="none")
        for name in ("CL", "FL", "FL-DP-SGD")
    }
    private = select(own, training="FL-DP-SGD", epsilon=1.0)
    weighted = select(private, fairness="published")
    return plain | {
        LOCAL_PRE: select(weighted, privacy="local noise"),
        PRE: select(weighted, privacy="MPC+DP"),
        POST: select(private, fairness="thresholds", privacy="MPC+DP"),
    }


def _printed(low: Row, high: Row, field: str) -> list[float]:
    """By how much the first is lower in table 3, in both its tables."""
    column = {"eodd": "delta_eodd"}.get(field, field)
    lines = {
        (line["dataset"], line["method"], line["fairness"]): float(line[column])
        for line in published("pentyala_2022_table3")
    }
    return [lines[name, *high] - lines[name, *low] for name in ("ADS", "ML-1M")]


def worse_than_local(runs: FairRuns, field: str) -> dict[Any, Mean]:
    """By how much MPC+DP is worse than local DP, for each setting of the latter, over seeds.

    Left out are settings in which one of the two was refused on every seed.
    """
    groups, found = by(runs, lambda setting: setting), {}
    for setting, own in groups.items():
        ours = groups.get(setting._replace(privacy="MPC+DP"), [])
        if setting.privacy in LOCAL and ours:
            low, high = (ours, own) if field == "accuracy" else (own, ours)
            found[setting] = paired(low, high, field)
    return {setting: one for setting, one in found.items() if one.n}


def tally(excesses: Iterable[Mean]) -> tuple[int, int, int]:
    """How many are better, the same, and worse."""
    counts = Counter(map(verdict_of, excesses))
    return counts[YES], counts[UNDECIDED], counts[NO]


def beats_local(runs: FairRuns) -> Iterator[Finding]:
    """All pairs of settings, in accuracy and gap."""
    groups = by(runs, lambda setting: setting)
    for field in ("accuracy", "gap"):
        found, deciding = worse_than_local(runs, field), []
        for setting, one in found.items():
            constants = select(runs, table=setting.table, training="constant")
            both = groups[setting], groups[setting._replace(privacy="MPC+DP")]
            deciding.append(of_learned(one, constants, *both))
        if found:
            counts = tally(found.values()), tally(one for one in deciding if one.n)
            words = ("{} better, {} same, {} worse".format(*some) for some in counts)
            better, same, worse = counts[1]
            verdict = NO if worse else UNDECIDED
            if better:
                verdict = PARTLY if same or worse else YES
            yield Finding(
                f"MPC+DP beats local DP in {field}, of {len(found)} pairs", "it does",
                "; of models that learned something ".join(words), verdict, PAGE,
            )  # fmt: skip


def seconds(runs: FairRuns) -> Iterator[Finding]:
    """Table 2 and figure 1, next to secure sums of 100 clients by encrypted files."""
    printed: dict[tuple[str, str], dict[str, float]] = {}
    others: list[float] = []
    for line in published("pentyala_2022_table2"):
        if line["phase"] == "post" and (line["parties"] != "3" or line["security"] == "active"):
            others.append(float(line["seconds"]))
        scheme = printed.setdefault((line["scheme"], line["dataset"]), {})
        scheme[line["phase"]] = float(line["seconds"])
    pre, post = ([one[phase] for one in printed.values()] for phase in ("pre", "post"))
    times = [high / low for low, high in zip(pre, post, strict=True)]
    ours = {run.setting.bins: sum(run.values) for run in select(runs, way="files", clients=100)}
    if {1, 101} <= ours.keys():
        for what, theirs, bins in (("Pre", pre, 1), ("Post", post, 101)):
            yield Finding(
                f"table 2: seconds of {what}", f"{min(theirs):,g} to {max(theirs):,.7g}",
                f"{ours[bins]:.2f}, secure sums of 100 clients", UNDECIDED, SECONDS,
            )  # fmt: skip
        yield Finding(
            "table 2: Post takes much longer than Pre",
            f"{min(times):,.0f} to {max(times):,.0f} times",
            "Pre was not run as published", NOT_MEASURED, SECONDS,
        )  # fmt: skip
    yield Finding(
        "table 2: two or four parties, and active security",
        f"{min(others):,g} to {max(others):,.7g}",
        "not run: MPyC has passive parties with an honest majority alone", NOT_MEASURED, SECONDS,
    )  # fmt: skip
    (figure,) = (one for one in published("pentyala_2022_figures") if one["phase"] == "pre")
    yield Finding(
        "figure 1: seconds of Pre, hundreds of thousands of clients", figure["seconds"],
        "not run: secure sums are measured with up to 10,000 clients", NOT_MEASURED, SECONDS,
    )  # fmt: skip


def as_published(runs: FairRuns) -> Iterator[Finding]:
    """Figure 2, next to the published protocol on MPyC."""
    (figure,) = (one for one in published("pentyala_2022_figures") if one["phase"] == "post")
    if runs:
        last = max(runs, key=lambda run: run.setting.rows * run.setting.thresholds)
        rows, times = int(figure["count"]), int(figure["count"]) * THRESHOLDS
        times /= last.setting.rows * last.setting.thresholds
        yield Finding(
            f"figure 2: seconds of Post, {rows:,} rows, three parties, passive",
            f"{float(figure['seconds']):,.0f}",
            f"{times * last.values.seconds:,.0f}, extrapolated {times:,.0f} times", UNDECIDED, PEER,
        )  # fmt: skip


THRESHOLDS = 1001
"""Of Post, as published."""


def findings() -> Iterator[Finding]:
    """All."""
    found = list(comparison(committed("privfairfl")))
    yield from found or [Finding("table 3, at epsilon = 1", "-", "", NO, PAGE)]
    yield from seconds(committed("privfairfl", "seconds"))
    yield from as_published(committed("privfairfl", "peer"))
    yield Finding(
        "Post has the epsilon that is printed", "epsilon",
        f"{THRESHOLDS:,} times epsilon", REFUTED,
        "tests/test_privfairfl.py::test_published_noise_costs_what_its_privacy_loss_says",
    )  # fmt: skip


PAPER = Paper("Pentyala et al. (2022)", PAGE, findings, lambda: f"{NOTE} {SECONDS_NOTE}")
