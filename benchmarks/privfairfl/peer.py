"""The published protocol of Post itself, by three processes, and ours right after."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from benchmarks.findings import UNDECIDED, Finding, what_does_not
from benchmarks.harness import ROOT, Experiment
from benchmarks.privfairfl.pages import THRESHOLDS
from benchmarks.privfairfl.times import NOTE, TimeSetting, figure, published_times, run_times
from benchmarks.runs import Runs
from benchmarks.showing import page

INSTALLED = find_spec("mpyc") is not None

PARTIES = 3
PATIENCE = 600
"""Seconds: where a party fails, the others wait for it."""

ADULT = (39_000, 1001)
"""Training rows of Adult in ``runs``, and the published thresholds."""


class PeerSetting(NamedTuple):
    """How many rows and thresholds."""

    rows: int
    thresholds: int


class PeerValues(NamedTuple):
    """Of the slowest party, from its connections to the opened counts.

    Attributes:
        seconds: on the clock.
        processor: seconds of it.
        megabytes: sent.
        ours: seconds of ours, by encrypted files of 100 clients, with as many bins.
    """

    seconds: float
    processor: float
    megabytes: float
    ours: float


def run_parties(rows: np.ndarray, thresholds: int, scale: float) -> list[dict[str, Any]]:
    """Run the parties, and return what each printed, see ``benchmarks.peers.with_mpyc``.

    Args:
        rows: [3, N] integers: scores in 2^-16, from 0 to 2^16; labels and groups, 0 or 1.
        thresholds: T, from 0 to 1.
        scale: of the Laplace noise on each count; 0 for none.

    Raises:
        RuntimeError: a party failed.
        subprocess.TimeoutExpired: the parties took longer than :data:`PATIENCE`.
    """
    words = ["-m", "benchmarks.peers.with_mpyc", "--no-log", "--rows", f"{rows.shape[1]}"]
    words += ["--thresholds", f"{thresholds}", "--scale", f"{scale}"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(PARTIES)
        ]
        words += [f"-P127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    with ExitStack() as stack:
        parties = []
        for i in range(PARTIES):
            command = [sys.executable, *words, f"-I{i}"]
            party = stack.enter_context(subprocess.Popen(command, cwd=ROOT.parent, **pipes))
            stack.callback(party.kill)
            parties.append(party)
        given = [json.dumps(rows.tolist()), "", ""]
        said = [
            party.communicate(text, timeout=PATIENCE)[0]
            for party, text in zip(parties, given, strict=True)
        ]
    if any(party.returncode for party in parties):
        raise RuntimeError("a party failed; its message stands above")
    return [json.loads(one) for one in said]


def run_peer(setting: PeerSetting, repeat: int, *, smoke: bool) -> PeerValues:
    """Random rows; noise of scale 1, that is epsilon = 1 for each threshold."""
    drawn = np.random.default_rng(repeat).integers([[2**16 + 1], [2], [2]], size=(3, setting.rows))
    parties = run_parties(drawn, setting.thresholds, scale=1.0)
    ours = run_times(TimeSetting("files", 100, setting.thresholds), repeat, smoke=smoke).sums
    seconds, processor, sent = (
        max(one[key] for one in parties) for key in ("seconds", "processor", "sent")
    )
    return PeerValues(round(seconds, 3), round(processor, 3), round(sent / 1e6, 3), ours)


def show_peer(runs: Runs) -> dict[str, str]:
    """Return the page by file name: the trend, and what it says of Adult."""

    def more(setting: PeerSetting, values: PeerValues) -> dict[str, float]:
        pace = 1e6 / (setting.rows * setting.thresholds)
        own, of_processor = values.seconds * pace, values.processor * pace
        times = values.seconds / values.ours
        return {"times_ours": times, "pace": own, "pace_of_processor": of_processor}

    last = max(runs, key=lambda run: run.setting.rows * run.setting.thresholds)
    times = ADULT[0] * ADULT[1] / (last.setting.rows * last.setting.thresholds)
    text = page(
        "privfairfl/peer",
        runs,
        more,
        adult=ADULT,
        times=times,
        last=last.setting,
        hours=times * last.values.seconds / 3600,
        processor=times * last.values.processor / 3600,
        gigabytes=times * last.values.megabytes / 1000,
        missed=what_does_not(claims(runs), NOTE),
        published_times=published_times(),
    )
    return {"peer.md": text}


def claims(runs: Runs) -> Iterator[Finding]:
    """Figure 2, next to the published protocol on MPyC."""
    if runs:
        line = figure("post")
        last = max(runs, key=lambda run: run.setting.rows * run.setting.thresholds)
        rows, times = int(line["count"]), int(line["count"]) * THRESHOLDS
        times /= last.setting.rows * last.setting.thresholds
        yield Finding(
            f"figure 2: seconds of Post, {rows:,} rows, three parties, passive",
            f"{float(line['seconds']):,.0f}",
            f"{times * last.values.seconds:,.0f}, extrapolated {times:,.0f} times",
            UNDECIDED, "privfairfl/peer.md",
        )  # fmt: skip


PEER = Experiment(
    name="peer",
    settings=tuple(
        PeerSetting(rows, thresholds)
        for rows in (10, 100, 1000)
        for thresholds in (11, 101, 1001)
        if rows * thresholds < 10**6  # takes minutes, and the trend is there without it
    ),
    run=run_peer,
    summary=show_peer,
    smoke=(PeerSetting(5, 21),),
    float64=False,
)
