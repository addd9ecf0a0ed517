"""``python -m synthfair demo``: the whole way on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run everything on a real table: two unlike lenders, one fair model"

DESCRIPTION = """\
Two unlike lenders share 1,989 mortgage applications (table loanapp): one lends in the
city of Boston, one in its suburbs. The label is whether a loan was approved; the
sensitive attribute is white. Each lender makes both kinds of releases, a server trains
on them, and a table compares that with training on all rows in one place and with each
lender alone, without a fairness penalty and with it. As the table is small, surrogates
have pairs of group and label with 10 rows or more (by default 50).

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
    from synthfair.cli.show import counting_bar, say
    from synthfair.jax_setup import start_jax

    start_jax()
    from synthfair.compare import demonstrate
    from synthfair.files import write_text
    from synthfair.report.figures import can_draw, frontier_figure
    from synthfair.report.table import plain_text
    from synthfair.report.tables import outcomes_table

    with counting_bar("demo") as show:
        found = demonstrate(args.output, show, force=args.force)
    table = outcomes_table(found.outcomes)
    write_text(args.output / "comparison.txt", plain_text(table))
    if can_draw():
        plot = args.output / "surrogate" / "fair" / "frontier.svg"
        write_text(plot, frontier_figure(found.frontier).svg())
    say(table)
    say(f"Wrote the lenders' tables, releases, models and metrics to {args.output}/.")
