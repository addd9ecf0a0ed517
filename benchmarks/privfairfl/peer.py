"""The published protocol of Post itself, by three processes, and ours right after."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import ROOT, Experiment, Run
from benchmarks.papers import pentyala
from benchmarks.papers.finding import what_does_not
from benchmarks.privfairfl.times import TimeSetting, published_times, run_times
from benchmarks.showing import page, table

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
    """What each party printed, see ``benchmarks.peers.with_mpyc``.

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
    rows = np.random.default_rng(repeat).integers([[2**16 + 1], [2], [2]], size=(3, setting.rows))
    found = run_parties(rows, setting.thresholds, scale=1.0)
    ours = run_times(TimeSetting("files", 100, setting.thresholds), repeat, smoke=smoke).sums
    seconds, processor, sent = (max(o[k] for o in found) for k in ("seconds", "processor", "sent"))
    return PeerValues(round(seconds, 3), round(processor, 3), round(sent / 1e6, 3), ours)


def show_peer(runs: Sequence[Run[PeerSetting, PeerValues]]) -> dict[str, str]:
    """The trend, and what it says of Adult."""
    lines, last = [], runs[0]
    for run in runs:
        last = max(last, run, key=lambda one: one.setting.rows * one.setting.thresholds)
        (rows, thresholds), found = run.setting, run.values
        pace = 1e6 / (rows * thresholds)
        cells = (found.seconds, found.processor, found.megabytes, found.ours)
        lines.append((
            rows, thresholds, *(f"{one:,.2f}" for one in cells),
            f"{found.seconds / found.ours:,.1f}",
            *(f"{one * pace:,.0f}" for one in cells[:2]),
        ))  # fmt: skip
    (rows, thresholds), found = last.setting, last.values
    times = ADULT[0] * ADULT[1] / (rows * thresholds)
    return {
        "peer.md": page(
            "# Seconds of PrivFairFL-Post as published",
            "The published protocol on MPyC: three processes on this machine, passive, at most one"
            " corrupt. All rows' scores are compared with each threshold on shares, the confusion"
            " matrix of each group is summed, Laplace noise from secret bits is added, and the"
            " counts are opened. Of the slowest party, from its connections on. **ε = 1 for each"
            " threshold, so that T thresholds cost ε = T.** ours: the histogram in its place, with"
            " ε = 1 in all, right after on the same machine: 100 clients, two aggregators,"
            " encrypted and signed files, as many bins. µs: for each row and threshold; where rows"
            " are few, noise is most of it, made for each threshold whatever the rows. Where other"
            " work holds the cores, three parties wait for each other in every round: the processor"
            " then says more than the clock.",
            table(
                "rows | thresholds | s | s of processor | MB sent | ours, s | s / ours, s"
                " | µs | µs of processor",
                lines,
            ),
            f"Adult's {ADULT[0]:,} training rows and {ADULT[1]:,} thresholds **were not run**."
            f" Extrapolated {times:,.0f} times from {rows:,} rows and {thresholds:,} thresholds:"
            f" {times * found.seconds / 3600:.1f} hours, {times * found.processor / 3600:.1f} hours"
            f" of processor a party, {times * found.megabytes / 1000:,.0f} GB sent by a party.",
            what_does_not(pentyala.as_published(runs), pentyala.SECONDS_NOTE),
            *published_times(),
        )
    }


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
