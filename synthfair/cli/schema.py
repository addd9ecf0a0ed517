"""``python -m synthfair schema``: drafts a schema, and asks for what is open."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "draft the schema of your own table, to be completed by hand or with you"

DESCRIPTION = """\
Draft the schema of a table, as JSON. The draft says which of its values were read off the
rows, and what is to be completed. A schema is public: put into it what a codebook says,
not what the rows happen to hold.

  python -m synthfair schema loans.csv --label approved --positive yes --sensitive sex \\
      > schema.json
  python -m synthfair schema loans.csv --interactive --output schema.json

With --interactive you are asked for all that is open, column by column; Enter takes the
proposal.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("table", type=Path, help="The table, CSV or Parquet.")
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="The column with the label. If not given, it is left open, or proposed by its name.",
    )
    parser.add_argument(
        "--positive",
        nargs="+",
        default=(),
        metavar="VALUE",
        help="The label's values that are positive, one or several; the others are negative.",
    )
    parser.add_argument(
        "--sensitive", metavar="COLUMN", help="The column with the groups; the same."
    )
    parser.add_argument(
        "--missing",
        nargs="+",
        default=(),
        metavar="TEXT",
        help="Further texts that mean that a value is missing, such as unknown. Found by"
        " themselves: empty, NA, N/A, NaN, null, a question mark, a dot.",
    )
    parser.add_argument(
        "--interactive", action="store_true", help="Ask for what is open; needs --output."
    )
    parser.add_argument("--output", type=Path, help="JSON to write. Default: standard output.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    import sys

    from synthfair.data.draft import draft_table, find_missing, require_rows_and_header
    from synthfair.data.tables import read_raw_table
    from synthfair.files import require_distinct, require_free, write_text

    if args.interactive and not args.output:
        raise InputError("--interactive: needs --output, the file to write when all is answered")
    if args.output:
        require_distinct(args.output, args.table)
        require_free(args.output, force=args.force)
    table, name = read_raw_table(args.table), args.table.name.split(".")[0]
    require_rows_and_header(table, source=str(args.table))  # by its name, before any question
    roles = {"label": args.label, "sensitive": args.sensitive, "positive": args.positive}
    if args.interactive:
        from synthfair.cli.schema_questions import ask_for_draft

        draft, reviewed = ask_for_draft(table, name=name, missing=args.missing, **roles)
    else:
        words = find_missing(table, args.missing)
        draft = draft_table(table, name=name, missing_values=words, confirmed=args.missing, **roles)
        reviewed = False
    text = draft.to_json(reviewed=reviewed)
    if args.output:
        write_text(args.output, text)
        _say_what_next(args.output, reviewed=reviewed)
    else:
        sys.stdout.write(text)


def _say_what_next(path: Path, *, reviewed: bool) -> None:
    from synthfair.cli.show import say

    if reviewed:
        say(f"{path}: complete; give the same file to all clients and to the server")
    else:
        say(f"{path}: a draft; review it as its 'draft' block says, then delete that block")
