"""Arguments of commands that simulate clients: a table, and how it is split."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.cli.options import advanced
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.partition import Split
    from synthfair.data.schema import Schema

TABLES = """\
Tables: loanapp (sensitive: white), law_school (race or male), dutch (sex), adult (sex or
race), bank (age_25_to_60); or a file, CSV or Parquet, with --schema. A named table is
taken from the folder named by SYNTHFAIR_DATA, else from the user's cache, else downloaded
from its public source and checked against its sha256.
"""

SPLITS = """\
Clients are alike, each with a random sample of the rows, unless --skew or --by makes them
unlike. --skew ALPHA deals the rows of each group and label by shares of their own, drawn
from a Dirichlet distribution with all parameters ALPHA: at 0.1 clients differ very much,
at 100 hardly. --by COLUMN makes one client of each value, named by it, and one named
"missing" of the rows without one.
"""


def add_named_table(parser: argparse.ArgumentParser) -> None:
    """Declares the table and its schema."""
    parser.add_argument(
        "table", help="loanapp, law_school, dutch, adult or bank; or a file, CSV or Parquet."
    )
    parser.add_argument("--schema", type=Path, help="The public schema of a file, JSON.")
    parser.add_argument("--sensitive", help="The sensitive attribute, if not the schema's.")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the table, its schema, and how it is split into clients."""
    add_named_table(parser)
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
    others = advanced(parser, "options of the split")
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


def given_split(args: argparse.Namespace) -> Split:
    """How the table is to be split. Raises InputError where the flags exclude each other."""
    from synthfair.data.partition import Split

    return Split(
        clients=args.clients,
        skew=args.skew,
        by=args.by,
        min_rows=args.min_rows,
        test_fraction=args.test_fraction,
    )


def given_table(args: argparse.Namespace) -> tuple[pd.DataFrame, Schema]:
    """The table and its schema; a bad value is named by its row in the file.

    There is a warning where much of a column of a file is clipped.

    Raises:
        InputError: as :func:`named_table`, or the rows do not fit the schema.
    """
    from synthfair.data.datasets import SOURCES
    from synthfair.data.encode import encode_own

    table, schema = named_table(args)
    if args.table not in SOURCES:
        encode_own(table, schema, source=args.table)
    return table, schema


def named_table(args: argparse.Namespace) -> tuple[pd.DataFrame, Schema]:
    """The table and its schema, by name or from files.

    Raises:
        InputError: no such table, or a file without a schema, or one that cannot be read.
    """
    from synthfair.cli.inputs import check_inputs
    from synthfair.data.datasets import SOURCES, load_dataset
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
    check_inputs(args.schema, Path(args.table))
    schema = read_schema(args.schema)
    schema = schema if args.sensitive is None else schema.with_sensitive(args.sensitive)
    return read_table(Path(args.table), schema), schema
