"""``python -m synthfair schema``: prints a draft of a schema."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "print a draft schema of your own table, to be completed by hand"

DESCRIPTION = """\
Print a first draft of the schema of a table, as JSON. The draft says which of its
values were read off the rows, and what is to be completed. A schema is public: put
into it what a codebook says, not what the rows happen to hold.

  python -m synthfair schema loans.csv --label approved --positive yes --sensitive sex \\
      > schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("table", type=Path, help="The table, CSV or Parquet.")
    parser.add_argument("--label", required=True, help="The column with the label.")
    parser.add_argument("--positive", help="The label's value that is the positive one.")
    parser.add_argument("--sensitive", required=True, help="The column with the groups.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    import sys

    from synthfair.data.draft import draft_schema
    from synthfair.data.tables import read_raw_table

    draft = draft_schema(
        read_raw_table(args.table),
        name=args.table.stem,
        label=args.label,
        sensitive=args.sensitive,
        positive=args.positive,
    )
    sys.stdout.write(draft)
