"""``python -m synthfair split``: splits a table into client files."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.tables import SPLITS, TABLES, add_table_arguments, given_split, given_table

HELP = "split a table into client files, for simulation"

DESCRIPTION = f"""\
Split a table into train and test files for some clients, with the schema.

  python -m synthfair split law_school --sensitive race --clients 2 --seed 0 --output DIR
  python -m synthfair split dutch --sensitive sex --clients 4 --skew 0.3 --output DIR
  python -m synthfair split loans.csv --schema schema.json --by region --output DIR

{SPLITS}
{TABLES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_table_arguments(parser)
    parser.add_argument("--seed", type=int, default=0, help="Seed of the split. Default: 0.")
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    split = given_split(args)

    from synthfair.cli.show import say, warn
    from synthfair.data.partition import write_clients

    table, schema = given_table(args)
    clients = split.apply(table, schema, seed=args.seed)
    for path in write_clients(clients, schema, args.output, force=args.force):
        say(str(path))
    if warning := split.left_out_warning(table, clients):
        warn(warning)
