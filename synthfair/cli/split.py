"""``python -m synthfair split``: splits a table into client files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.cli.options import advanced
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

HELP = "split a table into client files, for simulation"

DESCRIPTION = """\
Split a table into train and test files for some clients, with the schema.

  python -m synthfair split law_school --sensitive race --clients 2 --seed 0 --output DIR
  python -m synthfair split dutch --sensitive sex --clients 4 --skew 0.3 --output DIR
  python -m synthfair split loans.csv --schema schema.json --by region --output DIR

Clients are alike, each with a random sample of the rows, unless --skew or --by makes them
unlike. --skew ALPHA deals the rows of each group and label by shares of their own, drawn
from a Dirichlet distribution with all parameters ALPHA: at 0.1 clients differ very much,
at 100 hardly. --by COLUMN makes one client of each value, named by it, and one named
"missing" of the rows without one.

Tables: loanapp (sensitive: white), law_school (race or male), dutch (sex), adult (sex or
race), bank (age_25_to_60); or a file, CSV or Parquet, with --schema. A named table is
taken from the folder named by SYNTHFAIR_DATA, else from the user's cache, else downloaded
from its public source and checked against its sha256.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "table", help="loanapp, law_school, dutch, adult or bank; or a file, CSV or Parquet."
    )
    parser.add_argument("--schema", type=Path, help="The public schema of a file, JSON.")
    parser.add_argument("--sensitive", help="The sensitive attribute, if not the schema's.")
    parser.add_argument("--clients", type=int, help="Number of clients. Default: 2.")
    parser.add_argument(
        "--skew",
        type=float,
        metavar="ALPHA",
        help="Unlike clients, by a Dirichlet distribution. Default: alike clients.",
    )
    parser.add_argument(
        "--by", metavar="COLUMN", help="One client per value of this column, instead of --clients."
    )
    parser.add_argument("--seed", type=int, default=0, help="Seed of the split. Default: 0.")
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")
    others = advanced(parser)
    others.add_argument(
        "--min-rows",
        type=int,
        default=0,
        metavar="INT",
        help="Leave out clients with fewer rows. Default: 0, and one that is too small for a"
        " training and a test row is an error.",
    )
    others.add_argument(
        "--test-fraction",
        type=float,
        default=0.2,
        help="Share of each client's rows that are test rows. Default: 0.2.",
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    if args.by is not None and (args.clients is not None or args.skew is not None):
        raise InputError("--by makes one client per value: give no --clients and no --skew")

    from synthfair.cli.show import say, warn
    from synthfair.data.partition import partition, partition_by, write_clients

    table, schema = _table(args)
    how = {"seed": args.seed, "test_fraction": args.test_fraction, "min_rows": args.min_rows}
    if args.by is not None:
        clients = partition_by(table, args.by, **how)
    else:
        n_clients = 2 if args.clients is None else args.clients
        parts = partition(table, clients=n_clients, skew=args.skew, schema=schema, **how)
        clients = {str(i): client for i, client in enumerate(parts)}
    for path in write_clients(clients, schema, args.output, force=args.force):
        say(str(path))
    if args.min_rows:
        n_rows = sum(len(client.train) + len(client.test) for client in clients.values())
        warn(
            f"{len(clients)} clients have at least {args.min_rows} rows;"
            f" {len(table) - n_rows} rows, of smaller ones, are left out"
        )


def _table(args: argparse.Namespace) -> tuple[pd.DataFrame, Schema]:
    from synthfair.data.datasets import SOURCES, load_dataset
    from synthfair.data.encode import encode
    from synthfair.data.schema import read_schema
    from synthfair.data.tables import read_table

    if args.table in SOURCES:
        if args.schema is not None:
            raise InputError(f"table {args.table}: --schema is for files")
        return load_dataset(args.table, args.sensitive)
    if args.schema is None:
        raise InputError(
            f"table {args.table!r}: must be one of {', '.join(SOURCES)}, or a file with --schema"
        )
    schema = read_schema(args.schema)
    schema = schema if args.sensitive is None else schema.with_sensitive(args.sensitive)
    table = read_table(Path(args.table), schema)
    encode(table, schema, source=args.table)  # names a bad value by its row in the user's file
    return table, schema
