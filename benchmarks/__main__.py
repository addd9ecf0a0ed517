"""All benchmarks, one after the other, each in a process of its own.

    python -m benchmarks all                        # hours; goes on where it stopped
    python -m benchmarks all --seeds 3
    python -m benchmarks all --smoke --output DIR   # minutes: whether each one runs

SYNTHFAIR_DATA names the folder with the tables. One that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

NAMES = (
    "table2", "figure2", "figure3", "adult_fpfl", "femnist_fpfl", "two_phase", "methods", "unlike",
    "privacy", "gap", "secure", "privfairfl", "speed", "scale", "cold",
)  # fmt: skip
"""In this order: figure3 is drawn from the runs of table2."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=["all"], help="Or one: python -m benchmarks.NAME.")
    parser.add_argument(
        "--seeds", type=int, help="Of each, where it is not alone. Default: its own."
    )
    parser.add_argument("--smoke", action="store_true", help="A few small runs of each.")
    parser.add_argument("--output", type=Path, help="Folder of the results; needed with --smoke.")
    args = parser.parse_args()
    if args.smoke and not args.output:
        parser.error("--smoke: name an --output folder")
    lines = ["| benchmark | s | |", "|---|---|---|"]
    failed = []
    for name in NAMES:
        seconds, code = _run(name, args)
        failed += [name] if code else []
        lines.append(f"| {name} | {seconds:.0f} | {'FAILED' if code else ''} |")
    print("\n".join(lines))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _run(name: str, args: argparse.Namespace) -> tuple[float, int]:
    """Seconds, and the exit code."""
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    command += ["--smoke"] * args.smoke
    command += ["--seeds", str(args.seeds)] if args.seeds else []
    if args.output:  # figure3 reads what table2 has written
        command += ["--output", str(args.output / name.replace("figure3", "table2"))]
    print(f"== {' '.join(command[1:])}", flush=True)
    start = time.perf_counter()
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if args.smoke else {}  # compiles in less time
    code = subprocess.run(command, check=False, env=os.environ | quick).returncode
    return time.perf_counter() - start, code


if __name__ == "__main__":
    main()
