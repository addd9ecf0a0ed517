"""``python -m synthfair schema``: drafts a schema, and asks a person for what is open."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "draft the schema of your own table, to be completed by hand or with you"

DESCRIPTION = """\
Draft the schema of a table, as JSON. It says why each column is taken as what it is, and
--interactive asks you for all that is open. A schema is public: put into it what a
codebook says, not what the rows happen to hold.

  python -m synthfair schema loans.csv --interactive --output schema.json
  python -m synthfair schema loans.csv --label approved --positive yes --sensitive sex \\
      > schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add, several = parser.add_argument, {"nargs": "+", "default": ()}
    add("table", type=Path, help="The table, CSV or Parquet.")
    add("--label", metavar="COLUMN", help="The column with the label.")
    add("--positive", metavar="VALUE", **several, help="The label's values that are positive.")
    add("--sensitive", metavar="COLUMN", help="The column with the groups.")
    missing = (
        "Texts that mean that a value is missing, beside empty, NA, N/A, NaN, null, ? and a dot"
    )
    add("--missing", metavar="TEXT", **several, help=f"{missing}.")
    add("--interactive", action="store_true", help="Ask for what is open; needs --output.")
    add("--output", type=Path, help="JSON to write. Default: standard output.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    import sys

    from synthfair.cli.show import say
    from synthfair.data.draft import draft_table, find_missing, require_rows_and_header
    from synthfair.data.tables import read_raw_table
    from synthfair.files import require_distinct, require_free, write_text

    if args.interactive and not args.output:
        raise InputError("--interactive: needs --output, the file to write when all is answered")
    if not (args.interactive or (args.label and args.sensitive)):
        raise InputError("--label and --sensitive: name two columns; or be asked, by --interactive")
    if args.output:
        require_distinct(args.output, args.table)
        require_free(args.output, force=args.force)
    table, name = read_raw_table(args.table), args.table.name.split(".")[0]
    require_rows_and_header(table, source=str(args.table))
    if args.interactive:
        from synthfair.cli.schema_questions import ask_for_draft, ask_if_public

        draft = ask_for_draft(table, name, args)
        reviewed = ask_if_public(draft)
    else:
        words = find_missing(table, args.missing)
        draft = draft_table(table, name, args.label, args.sensitive, missing=words)
        reviewed = False
        if args.positive:
            draft.choose_positive(args.positive)
    if not args.output:
        sys.stdout.write(draft.to_json())
        return
    write_text(args.output, draft.to_json(reviewed=reviewed))
    complete = "complete; give the same file to all clients and to the server"
    review = "a draft; review it as its 'draft' block says, then delete that block"
    say(f"{args.output}: {complete if reviewed else review}")
