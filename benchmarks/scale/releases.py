"""A server that pools many releases: wall time, peak memory and open files of its whole process.

    python -m benchmarks.scale.releases --n 10000

The synthetic rows are random: only reading, checking, pooling and training on them is measured, not
how good they are. Writing the files first takes longer than the server does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair as sf
from synthfair.data.schema import Schema
from synthfair.data.tables import write_csv
from synthfair.release.format import Header, make_header

TEST_ROWS = 2000
"""Of the one test table."""


class Pooled(NamedTuple):
    """What pooling took.

    Attributes:
        n: number of releases.
        rows: of each.
        seconds: wall time of the server's process, from start to end.
        megabytes: its peak resident memory.
        open_files: the most file descriptors seen at a time; None where there is no ``/proc``.
    """

    n: int
    rows: int
    seconds: float
    megabytes: float
    open_files: int | None


def pool_releases(n: int, rows: int) -> Pooled:
    """Writes n releases of so many rows, and pools them in a new process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, schema = sf.load_dataset("law_school", "race")
        write_csv(table.head(TEST_ROWS), folder / "test.csv")
        (folder / "schema.json").write_text(schema.to_json())
        paths = _write_releases(folder, schema, n, rows)
        return Pooled(n, rows, *_watched(_server_command(folder, paths)))


def _write_releases(folder: Path, schema: Schema, n: int, rows: int) -> list[Path]:
    header = make_header(sf.DistillConfig(), schema, model=sf.LinearModel(), penalty="covariance")
    rng = np.random.default_rng(0)
    paths = [folder / f"client_{i}.parquet" for i in range(n)]
    for path in paths:
        sf.write_release(_random_release(rng, header, schema, rows), path)
    return paths


def _random_release(
    rng: np.random.Generator, header: Header, schema: Schema, rows: int
) -> sf.Release:
    names = schema.encoded_names
    s, positive = rng.integers(2, size=(2, rows))
    return sf.Release(header, names, rng.random((rows, len(names))), s, 2.0 * positive - 1.0)


def _server_command(folder: Path, releases: list[Path]) -> list[str]:
    return [
        *(sys.executable, "-m", "synthfair.server", *map(str, releases)),
        *("--schema", str(folder / "schema.json"), "--test", str(folder / "test.csv")),
        *("--output", str(folder / "server")),
    ]


def _watched(command: list[str]) -> tuple[float, float, int | None]:
    """Seconds, peak MB and most open files of a command that is run to its end."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = None
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most = max(filter(None, (most, _open_files(process.pid))), default=None)
        time.sleep(0.01)
    seconds = time.perf_counter() - start
    # A child's peak begins at its parent's, which is far below a server's here.
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"failed: {' '.join(command[:3])}")
    return seconds, usage.ru_maxrss / 1000, most


def _open_files(pid: int) -> int | None:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # no such folder on this system, or the process has just ended
        return None


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=10_000, help="Releases. Default: 10000.")
    parser.add_argument("--rows", type=int, default=100, help="Rows of each. Default: 100.")
    args = parser.parse_args()
    print(table([pool_releases(args.n, args.rows)]))


def table(lines: Sequence[Pooled]) -> str:
    """Markdown."""
    text = ["| releases | rows of each | s | peak MB | open files |", "|---|---|---|---|---|"]
    text += [
        f"| {one.n} | {one.rows} | {one.seconds:.1f} | {one.megabytes:.0f} | {one.open_files} |"
        for one in lines
    ]
    return "\n".join(text)


if __name__ == "__main__":
    main()
