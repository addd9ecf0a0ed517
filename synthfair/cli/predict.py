"""``python -m synthfair predict``: scores and decisions for a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "score a table with a trained model"

DESCRIPTION = """\
Score a table with a model that the server trained. Writes a CSV with two columns, one
row for each row of the table, in its order: score, and decision (a value of the label).

  python -m synthfair predict --model DIR/server/model.json --data new.csv --output scored.csv

Where the model's decisions are drawn by coins (thresholds --randomized), --id names the
column by which a person is known: the same id gets the same coin, today and tomorrow.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--model", type=Path, required=True, help="model.json of a server.")
    parser.add_argument(
        "--data", type=Path, required=True, help="The table, CSV or Parquet; labels may be absent."
    )
    parser.add_argument(
        "--id", metavar="COLUMN", help="Ids, compared as text; for decisions drawn by coins."
    )
    parser.add_argument("--output", type=Path, help="CSV to write; standard output if not given.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.data.tables import read_table, write_csv
    from synthfair.evaluation import predict
    from synthfair.files import require_distinct, require_free
    from synthfair.trained import read_model

    if args.output:
        require_distinct(args.output, args.model, args.data)
        require_free(args.output, force=args.force)
    model = read_model(args.model)
    table = read_table(args.data, model.schema_, text=[args.id] if args.id else ())
    scored = predict(model, table, source=str(args.data), id_column=args.id)
    if args.output:
        write_csv(scored, args.output)
    else:
        scored.to_csv(sys.stdout, index=False)
