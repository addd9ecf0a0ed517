"""Seconds of the protocols of Pre and Post: by encrypted files, and in memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.findings import NOT_MEASURED, UNDECIDED, Finding, what_does_not
from benchmarks.harness import Experiment
from benchmarks.runs import Runs
from benchmarks.secure import SumSetting, counts_of, write_uploads
from benchmarks.showing import page, published, verdict
from synthfair.postprocess import ScoreHistogram, choose_decision, make_weights
from synthfair.secure import (
    GroupCounts,
    answer,
    noisy_sum,
    open_sums,
    read_aggregator_secret,
    read_task,
    receive,
    score_histogram,
)

GOAL_SECONDS = 5.0
GOAL_SETTING = (100, 101)


class TimeSetting(NamedTuple):
    """``files``, encrypted and signed, or ``memory``; clients, and bins: of Pre one."""

    way: str
    clients: int
    bins: int


class TimeValues(NamedTuple):
    """Seconds.

    Attributes:
        sums: all clients' shares, two aggregators with their noise, and opening.
        choice: of the randomised rule for equalized odds, or of Pre's weights, from the counts.
    """

    sums: float
    choice: float


def run_times(setting: TimeSetting, repeat: int, *, smoke: bool) -> TimeValues:
    """Run the whole protocol in one process; return the seconds of the sum, and of the choice."""
    start = time.perf_counter()
    if setting.way == "files":
        histogram = by_files(setting)
    else:  # the same without encryption and signatures
        what = counts_of(setting.bins)
        parts = np.random.default_rng(repeat).poisson(2.0, (setting.clients, what.length))
        histogram = score_histogram(what, noisy_sum(parts, what))
    summed = time.perf_counter()
    if setting.bins == 1:
        make_weights(histogram, "published")
    else:
        choose_decision(histogram, "equalized_odds", 0.0, randomized=True)
    return TimeValues(round(summed - start, 3), round(time.perf_counter() - summed, 3))


def by_files(setting: TimeSetting) -> ScoreHistogram:
    """All keys, uploads, partial sums and records are made on disk."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_uploads(folder, SumSetting(setting.clients, setting.bins))
        task, sums = read_task(folder / "task.json"), []
        for role in range(2):
            secret = read_aggregator_secret(folder / f"aggregator_{role}.key")
            received = receive(task, secret, sorted(folder.glob(f"*.to_{role}")))
            sums.append(answer(task, secret, received, folder / f"aggregator_{role}.answers"))
        assert isinstance(task.what, GroupCounts)
        return score_histogram(task.what, open_sums(task, sums))


def show_times(runs: Runs) -> dict[str, str]:
    """Next to Table 2."""

    def more(setting: TimeSetting, values: TimeValues) -> dict[str, str]:
        met = verdict(sum(values) <= GOAL_SECONDS)
        return {"met": met if setting[1:] == GOAL_SETTING else ""}

    parts = {"missed": what_does_not(claims(runs), NOTE), "published_times": published_times()}
    return {"seconds.md": page("privfairfl/seconds", runs, more, goal=GOAL_SECONDS, **parts)}


def published_times() -> str:
    """Table 2, and what differs."""
    keys = ("security", "parties", "scheme", "dataset", "seconds")
    lines = [line for line in published("pentyala_2022_table2") if line["phase"] == "post"]
    cells = [[line[key] for key in keys] for line in lines]
    return page("privfairfl/published_times", rows=cells).rstrip()


# What the paper claims

PAGE = "privfairfl/seconds.md"

NOTE = (
    "Seconds here are of one run on another machine, and where secure sums take the place of the"
    " published protocol, of another protocol: they decide nothing."
)


def claims(runs: Runs) -> Iterator[Finding]:
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
    ours = {run.setting.bins: sum(run.values) for run in runs.select(way="files", clients=100)}
    if {1, 101} <= ours.keys():
        for what, theirs, bins in (("Pre", pre, 1), ("Post", post, 101)):
            words = f"{min(theirs):,g} to {max(theirs):,.7g}"
            here = f"{ours[bins]:.2f}, secure sums of 100 clients"
            yield Finding(f"table 2: seconds of {what}", words, here, UNDECIDED, PAGE)
        yield Finding(
            "table 2: Post takes much longer than Pre",
            f"{min(times):,.0f} to {max(times):,.0f} times",
            "Pre was not run as published", NOT_MEASURED, PAGE,
        )  # fmt: skip
    yield Finding(
        "table 2: two or four parties, and active security",
        f"{min(others):,g} to {max(others):,.7g}",
        "not run: MPyC has passive parties with an honest majority alone", NOT_MEASURED,
        PAGE,
    )  # fmt: skip
    yield Finding(
        "figure 1: seconds of Pre, hundreds of thousands of clients", figure("pre")["seconds"],
        "not run: secure sums are measured with up to 10,000 clients", NOT_MEASURED, PAGE,
    )  # fmt: skip


def figure(phase: str) -> dict[str, str]:
    """Return the line of the published figures that has this phase."""
    (line,) = (line for line in published("pentyala_2022_figures") if line["phase"] == phase)
    return line


TIMES = Experiment(
    name="seconds",
    settings=tuple(
        TimeSetting(way, clients, bins)
        for way in ("files", "memory")
        for clients, bins in (GOAL_SETTING, (1000, 101), (100, 1001), (100, 1))
    ),
    run=run_times, summary=show_times,
    smoke=(TimeSetting("files", 3, 21), TimeSetting("memory", 20, 21)), float64=False,
)  # fmt: skip
