"""Seconds of the protocols of Pre and Post: by encrypted files, and in memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Experiment, Run
from benchmarks.papers import pentyala
from benchmarks.papers.finding import what_does_not
from benchmarks.secure import SumSetting, counts_of, write_uploads
from benchmarks.showing import page, published, table, verdict
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
    """The whole protocol, one part after the other, in one process."""
    del smoke
    start = time.perf_counter()
    found = by_files(setting) if setting.way == "files" else in_memory(setting, repeat)
    summed = time.perf_counter()
    if setting.bins == 1:
        make_weights(found, "published")
    else:
        choose_decision(found, "equalized_odds", 0.0, randomized=True)
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


def in_memory(setting: TimeSetting, repeat: int) -> ScoreHistogram:
    """The same without encryption and signatures."""
    what = counts_of(setting.bins)
    parts = np.random.default_rng(repeat).poisson(2.0, (setting.clients, what.length))
    return score_histogram(what, noisy_sum(parts, what))


def show_times(runs: Sequence[Run[TimeSetting, TimeValues]]) -> dict[str, str]:
    """Next to Table 2."""
    rows = []
    for (way, clients, bins), _, (sums, choice), _ in runs:
        met = verdict(sums + choice <= GOAL_SECONDS) if (clients, bins) == GOAL_SETTING else ""
        rows.append((way, clients, bins, f"{sums:.2f}", f"{choice:.2f}", met))
    header = f"by | clients | bins | sums, s | choice, s | {GOAL_SECONDS:g} s in all"
    return {
        "seconds.md": page(
            "# Seconds of PrivFairFL",
            "Pre with one bin, else Post. All clients and both aggregators, one after the other in"
            " one process. files: encrypted and signed uploads on disk, keys included. memory: the"
            " same shares and noise, without encryption. ε = 1, two groups.",
            table(header, rows),
            what_does_not(pentyala.seconds(runs), pentyala.SECONDS_NOTE),
            "The published protocol itself, on this machine: [peer.md](peer.md).",
            *published_times(),
        )
    }


def published_times() -> tuple[str, str]:
    """Table 2, and what differs."""
    post = [line for line in published("pentyala_2022_table2") if line["phase"] == "post"]
    theirs = [[line[key] for key in ("security", "parties", "scheme", "dataset", "seconds")]
              for line in post]  # fmt: skip
    return (
        "Published, Table 2: other hardware (48 cores), 75 and 109 clients, another protocol"
        " (comparisons with 1,001 thresholds on shares), and other security: these parties also"
        " need not show anybody a noisy histogram, only its ROC curves.",
        table("security | parties | scheme | table | seconds of Post", theirs),
    )


TIMES = Experiment(
    name="seconds",
    settings=tuple(
        TimeSetting(way, clients, bins)
        for way in ("files", "memory")
        for clients, bins in (GOAL_SETTING, (1000, 101), (100, 1001), (100, 1))
    ),
    run=run_times,
    summary=show_times,
    smoke=(TimeSetting("files", 3, 21), TimeSetting("memory", 20, 21)),
    float64=False,
)
