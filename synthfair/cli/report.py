"""``python -m synthfair report``: one HTML page from the results of some runs."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "show one run or several as one HTML page with plots"

DESCRIPTION = """\
Write one self-contained HTML page, which opens without a network, and its plots as
files. A run is a folder with the metrics.json that the server (or compare, or train)
wrote. Each *.history.csv in it (from client --history) gives a convergence curve; do not
publish such a page: the curves were computed from real rows, without noise.

  python -m synthfair report DIR/server --output report.html
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
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.report import read_results, write_report

    files = write_report(read_results(args.runs), args.output, force=args.force)
    plots = len(files) - 1
    say(f"Wrote {args.output} and {plots} plot{'s' * (plots != 1)} next to it.")
