"""Wall time and peak memory of ``python -m synthfair.client``, with and without compiled code kept.

    python -m benchmarks.cold

One Law School client (8,319 training rows, sensitive: race), 1,000 steps, in a new process each
time: with 800 balanced synthetic rows, and with 8,319 whose groups and labels are copied; cold,
with an empty cache of compiled code, and warm, with what the first run left there; and the command
line's help. A goal is for the best of a few runs, because a shared machine only ever adds to it;
beside it stands the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import synthfair as sf
from synthfair.data.partition import write_clients
from synthfair.files import write_text

RESULTS = Path(__file__).parent / "results" / "cold"

CASES = {
    "N_s = 800": [],
    "N_s = 8319": [
        *("--labels", "copy", "--n-synthetic", "8319"),
        *("--hold-out", "0", "--accept-risk"),  # copied labels stop a release
    ],
}

HELP = "python -m synthfair --help"

GOALS = {"N_s = 800, cold": 4.0, "N_s = 800, warm": 2.5, HELP: 0.4}
"""Seconds at most."""


class Cost(NamedTuple):
    """Of one process: wall time in seconds and peak resident memory in MB."""

    seconds: float
    megabytes: float


def measure(command: list[str], *, cache: Path | None = None) -> Cost:
    """Runs a command to its end.

    Args:
        command: and its arguments.
        cache: the user's cache folder; if not given, nothing compiled is read or kept.
    """
    environment = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    nothing_kept = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment |= {"XDG_CACHE_HOME": str(cache)} if cache else nothing_kept
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"failed: {' '.join(command)}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss / 1000)


def client_command(folder: Path, flags: list[str]) -> list[str]:
    """The command line of one client."""
    config = Path(__file__).parent.parent / "configs" / "law_school" / "race.toml"
    return [
        *(sys.executable, "-m", "synthfair.client", "--force", "--config", str(config)),
        *("--data", str(folder / "client_0_train.csv"), "--schema", str(folder / "schema.json")),
        *("--output", str(folder / "release.parquet"), *flags),
    ]


def measured(runs: int) -> dict[str, list[Cost]]:
    """Each case so many times."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, schema = sf.load_dataset("law_school", "race")
        write_clients(sf.partition(rows, clients=2, seed=0), schema, folder)
        for case, flags in CASES.items():
            command = client_command(folder, flags)
            caches = [folder / case / str(run) for run in range(runs)]
            found[f"{case}, cold"] = [measure(command, cache=cache) for cache in caches]
            found[f"{case}, warm"] = [measure(command, cache=caches[0]) for _ in range(runs)]
    command = [sys.executable, "-m", "synthfair", "--help"]
    found[HELP] = [measure(command) for _ in range(runs)]
    return found


def table(found: dict[str, list[Cost]]) -> str:
    """As Markdown."""
    lines = ["| case | best s | median s | peak MB | at most, s |", "|---|---|---|---|---|"]
    for case, costs in found.items():
        seconds, peak = [cost.seconds for cost in costs], max(cost.megabytes for cost in costs)
        best, median = min(seconds), statistics.median(seconds)
        lines.append(f"| {case} | {best:.2f} | {median:.2f} | {peak:.0f} | {_goal(case, best)} |")
    return "\n".join(lines) + "\n"


def _goal(case: str, seconds: float) -> str:
    if case not in GOALS:
        return ""
    return f"{GOALS[case]:g}: {'met' if seconds <= GOALS[case] else 'MISSED'}"


def main() -> None:
    """Prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=6, help="Runs of each case. Default: 6.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the result.")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    intro = f"One Law School client, 1,000 steps, each run a new process; {args.runs} runs of each."
    text = f"# Start of a client\n\n{intro}\n\n{table(measured(args.runs))}"
    write_text(args.output / "cold.md", text)
    print(text)


if __name__ == "__main__":
    main()
