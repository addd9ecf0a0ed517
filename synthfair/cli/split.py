"""``python -m synthfair split``: splits a named public table into client files."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "split a named public table into client files, for simulation"

DESCRIPTION = """\
Split a named public table into train and test files for some clients, with the schema.

  python -m synthfair split law_school --sensitive race --clients 2 --seed 0 --output DIR

Tables: loanapp (sensitive: white), law_school (race or male), dutch (sex), adult (sex or
race), bank (age_25_to_60). A table is taken from the folder named by SYNTHFAIR_DATA, else
from the user's cache, else downloaded from its public source and checked against its
sha256.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("table", help="loanapp, law_school, dutch, adult or bank.")
    parser.add_argument("--sensitive", help="The sensitive attribute, if not the schema's.")
    parser.add_argument("--clients", type=int, default=2, help="Number of clients. Default: 2.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the split. Default: 0.")
    parser.add_argument(
        "--test-fraction",
        type=float,
        default=0.2,
        help="Share of each client's rows that are test rows. Default: 0.2.",
    )
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.data.datasets import load_dataset
    from synthfair.data.partition import partition, write_clients

    table, schema = load_dataset(args.table, args.sensitive)
    clients = partition(
        table, clients=args.clients, seed=args.seed, test_fraction=args.test_fraction
    )
    for path in write_clients(clients, schema, args.output, force=args.force):
        say(str(path))
