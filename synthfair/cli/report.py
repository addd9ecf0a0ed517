"""``python -m synthfair report``: one HTML page from the results of some runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "show one run or several as one HTML page with plots"

DESCRIPTION = """\
Write one self-contained HTML page, which opens without a network, and its plots as
files. It begins with an answer: whether the gap between groups is within --max-gap, as far
as the test rows can tell, and what that costs in accuracy. To see the cost, give the same
run without a penalty, too, or let the server write a --frontier.

  python -m synthfair report DIR/server --max-gap 0.05 --output report.html

A run is a folder with the metrics.json that the server (or compare, or train) wrote. Each
*.history.csv in it (from client --history) gives a convergence curve; do not publish such a
page: the curves were computed from real rows, without noise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="Folders with a metrics.json each.")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("report.html"),
        help="The page to write; plots go into a folder next to it. Default: report.html.",
    )
    parser.add_argument(
        "--max-gap",
        type=float,
        metavar="GAP",
        help="Gap between groups that is fair enough, from 0 to 1. Default: the one that training"
        " aimed at, or else 0.1, a rule of thumb.",
    )
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    if args.max_gap is not None and not 0 <= args.max_gap <= 1:
        raise InputError(f"--max-gap: must be from 0 to 1, and is {args.max_gap:g}")

    from synthfair.cli.show import say, warn
    from synthfair.report.figures import MISSING
    from synthfair.report.page import write_report
    from synthfair.report.results import read_results

    results = read_results(args.runs)
    files = write_report(results, args.output, max_gap=args.max_gap, force=args.force)
    plots = len(files) - 1
    say(f"Wrote {args.output} and {plots} plot{'s' * (plots != 1)} next to it.")
    if not plots:
        warn(MISSING)
