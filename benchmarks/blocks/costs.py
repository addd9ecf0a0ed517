"""What a page says of time, memory and what is sent."""

from __future__ import annotations

import numpy as np

from benchmarks.blocks.reading import Read, Runs
from benchmarks.showing import by, table


def cold(read: Read) -> str:
    """Seconds and memory of a client."""
    cases = by(read("cold"), lambda setting: setting.case)
    rows = [
        (case, _two_digits(_median(own, "seconds")), f"{_median(own, 'megabytes'):.0f}")
        for case, own in cases.items()
    ]
    return table("case | median, s | peak memory, MB", rows) if rows else ""


def _median(runs: Runs, name: str) -> float:
    return float(np.median([getattr(run.values, name) for run in runs]))


def _two_digits(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def speed(read: Read) -> str:
    """A thousand outer steps, next to PyTorch."""
    rows = []
    for size, own in by(read("speed"), lambda setting: setting.n_synthetic).items():
        of = {run.setting.package: run.values for run in own}
        if {"synthfair", "torch"} <= of.keys():
            ours, peer = of["synthfair"], of["torch"]
            rows.append((f"{size:,}", f"{ours.seconds:.1f}", f"{peer.ratio:.0f} times"))
    return table("synthetic rows | synthfair, s | PyTorch", rows) if rows else ""


def scale(read: Read) -> str:
    """Many rows, releases and clients."""
    rows = [
        (f"a client of {rows:,} rows, {kind}", f"{values.seconds:.0f}", f"{values.megabytes:,.0f}")
        for (rows, kind), _, values, _ in read("scale", "rows")
    ]
    rows += [
        (f"a server of {n:,} releases, {each:,} rows each", f"{values.seconds:.0f}",
         f"{values.megabytes:,.0f}")
        for (n, each), _, values, _ in read("scale", "releases")
    ]  # fmt: skip
    rows += [
        (f"{one.clients:,} clients of {one.rows:,} rows, in one process", f"{values.seconds:.0f}",
         "")
        for one, _, values, _ in read("scale", "clients")
    ]  # fmt: skip
    return table("what | s | peak memory, MB", rows) if rows else ""


def gap_speed(read: Read) -> str:
    """Ten million clients."""
    rows = [
        (setting.mechanism, f"{values.reports:,}", setting.how, f"{values.seconds:.1f}",
         f"{values.gigabytes:.2f}")
        for setting, _, values, _ in read("gap", "speed")
    ]  # fmt: skip
    return table("mechanism | clients | from | s | peak memory, GB", rows) if rows else ""


def secure(read: Read) -> str:
    """An aggregator's time."""
    rows = [
        (f"{clients:,}", 4 * bins, f"{values.add:.1f}", f"{values.megabytes:.0f}")
        for (clients, bins), _, values, _ in read("secure", "secure")
    ]
    return table("clients | counts | an aggregator, s | peak memory, MB", rows) if rows else ""


def deploy(read: Read) -> str:
    """Jobs of a federation on one machine."""
    rows = [
        (
            "one upload" if job == "single_shot" else f"{values.rounds} rounds of FPFL", sites,
            f"{values.load:.0f} on {values.cores} cores", f"{values.start:.0f}",
            f"{values.whole:.0f}", f"{values.median_round:.2f}", f"{values.site:.1f}",
            f"{1 - values.site / values.whole:.0%}", f"{values.megabytes / sites:.2f}",
        )
        for (job, sites), _, values, _ in read("deploy", "deploy")
    ]  # fmt: skip
    header = (
        "job | sites | load before | start, s | job, s | median round, s | slowest site works, s"
        " | not at the sites | MB from a site"
    )
    return table(header, rows) if rows else ""
