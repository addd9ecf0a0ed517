"""``python -m synthfair demo``: the whole way on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run everything on a real table: two lenders, one server"

DESCRIPTION = """\
Two lenders distil their mortgage applications (table loanapp: 1,989 applications in
Boston; label: approved; sensitive attribute: white), and a server trains once. A table
compares that with central training on the real rows, with and without the penalty.

  python -m synthfair demo --output synthfair-demo
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("synthfair-demo"),
        help="Folder to write to. Default: synthfair-demo.",
    )
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.jax_setup import start_jax
    from synthfair.cli.show import progress_bar, say

    start_jax()
    from synthfair.compare import demonstrate
    from synthfair.config import DistillConfig
    from synthfair.files import write_text
    from synthfair.report import outcomes_table, plain_text

    outcomes = demonstrate(args.output, DistillConfig(), progress_bar, force=args.force)
    table = outcomes_table(outcomes)
    write_text(args.output / "comparison.txt", plain_text(table))
    say(table)
    say(f"Wrote the lenders' tables, releases, models and metrics to {args.output}/.")
