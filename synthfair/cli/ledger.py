"""``python -m synthfair ledger``: what a table's releases have cost, and what they may."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "show what a table's releases have cost, or limit it"

DESCRIPTION = """\
Show the releases booked for a table, and what they add up to: each release of the same
rows discloses more of them. With a limit, the client refuses a release that would pass it,
and every release without an epsilon.

  python -m synthfair ledger DIR/client_0_train.csv.ledger.jsonl
  python -m synthfair ledger DIR/client_0_train.csv.ledger.jsonl \\
      --limit-epsilon 3 --limit-delta 1e-6

The ledger is a text file next to the table, one line a release, to which the client adds
before it spends. It knows of no release made from a copy of the table elsewhere.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("ledger", type=Path, help="The ledger; with a limit, it may be new.")
    parser.add_argument(
        "--limit-epsilon", type=float, metavar="FLOAT", help="Most that may be spent in all."
    )
    parser.add_argument(
        "--limit-delta", type=float, metavar="FLOAT", help="Goes with it; e.g. 1e-6."
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    if (args.limit_epsilon is None) != (args.limit_delta is None):
        raise InputError("flags: limit_epsilon and limit_delta go together: give both or neither")

    from synthfair.cli.show import say
    from synthfair.privacy.ledger import Ledger
    from synthfair.report.releases import ledger_table

    ledger = Ledger(args.ledger)
    if args.limit_epsilon is not None:
        ledger.set_limit(args.limit_epsilon, args.limit_delta)
    elif not args.ledger.exists():
        raise InputError(f"{args.ledger}: no such file: no release was booked")
    say(ledger_table(ledger))
