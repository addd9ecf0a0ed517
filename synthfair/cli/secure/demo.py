"""``python -m synthfair secure demo``: the whole protocol by files on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run all of it on a real table: ten lenders, two aggregators"

DESCRIPTION = """\
Ten lenders train a model together (table loanapp: 1,989 mortgage applications in Boston;
label: approved; sensitive attribute: white). Then they count applications that it was not
trained on by group, label and score, and two aggregators sum the counts so that nobody sees
a lender's.
Thresholds by group follow from the noisy total. One process makes all keys and plays all
parties, so this is a simulation, and its statement says so.

  python -m synthfair secure demo --output synthfair-secure-demo
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--output", type=Path, default=Path("synthfair-secure-demo"),
        help="Folder to write to. Default: synthfair-secure-demo.")  # fmt: skip
    add("--epsilon", type=float, default=1.0, help="Privacy budget of the total. Default: 1.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.jax_setup import start_jax

    start_jax()
    from synthfair.compare.sums_demo import demonstrate_sums
    from synthfair.report.postprocess import decision_tables, decisions_table
    from synthfair.report.sums import counts_table, statement_table

    shown = demonstrate_sums(args.output, epsilon=args.epsilon)
    say(counts_table(shown.histogram, shown.exact))
    say(statement_table(shown.histogram.statement or {}))
    say(decision_tables(shown.chosen, shown.histogram))
    say(decisions_table(shown.evaluations))
    say(f"Wrote keys, task, uploads, sums, histogram, model and fair model to {args.output}/.")
