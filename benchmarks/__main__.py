"""All benchmarks, one after the other, each in a process of its own; and how they stand.

    python -m benchmarks all                        # hours; goes on where it stopped
    python -m benchmarks all --seeds 1              # an hour and a half on two cores
    python -m benchmarks all --smoke --output DIR   # minutes: whether each one runs
    python -m benchmarks status                     # which runs are there
    python -m benchmarks texts                      # writes their numbers into docs/

SYNTHFAIR_DATA names the folder with the tables. One that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import NAMES, experiments, folder_of
from benchmarks.showing import table
from benchmarks.texts import write_texts


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=["all", "status", "texts"], metavar="all|status|texts")
    parser.add_argument(
        "--seeds", type=int, help="Of each, where it is not alone. Default: its own."
    )
    parser.add_argument("--smoke", action="store_true", help="A few small runs of each.")
    parser.add_argument("--output", type=Path, help="Folder of the results; needed with --smoke.")
    args = parser.parse_args()
    if args.smoke and not args.output:
        parser.error("--smoke: name an --output folder")
    match args.which:
        case "all":
            run_all(args)
        case "status":
            print(status(args.seeds))
        case "texts":
            write_texts()


def run_all(args: argparse.Namespace) -> None:
    """Each benchmark as a command."""
    lines, failed = [], []
    for name in NAMES:
        command = [sys.executable, "-m", f"benchmarks.{name}", *["--smoke"] * args.smoke]
        command += ["--seeds", str(args.seeds)] if args.seeds else []
        if args.output:
            command += ["--output", str(args.output / name)]
        print(f"== {' '.join(command[1:])}", flush=True)
        start = time.perf_counter()
        quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if args.smoke else {}  # compiles sooner
        code = subprocess.run(command, check=False, env=os.environ | quick).returncode
        failed += [name] if code else []
        seconds = time.perf_counter() - start
        lines.append((name, f"{seconds:.0f}", "FAILED" if code else ""))
    print(table("benchmark | s | ", lines))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def status(seeds: int | None) -> str:
    """Return a table of the runs that are there, and of those that are missing."""
    lines = []
    for name in NAMES:
        for one in experiments(name):
            runs = one.read(folder_of(name))
            missing = len(one.missing(runs, one.settings, seeds))
            wanted = len(one.missing([], one.settings, seeds))
            older = len(runs) - len(one.current(runs))
            lines.append((name, one.name, wanted, missing or "", older or ""))
    header = "benchmark | experiment | runs | missing | made with something else"
    return table(header, lines)


if __name__ == "__main__":
    main()
