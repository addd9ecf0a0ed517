"""``python -m synthfair predict``: scores and decisions for a table or a stream."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from io import BufferedReader

    import numpy as np
    import pandas as pd

    from synthfair.trained import TrainedModel

HELP = "score a table or a stream with a trained model"

DESCRIPTION = """\
Score a table with a model that the server trained. Writes a CSV with two columns, one
row for each row of the table, in its order: score, and decision (a value of the label).

  python -m synthfair predict --model DIR/server/model.json --data new.csv --output scored.csv
  ... | python -m synthfair predict --model DIR/server/model.json --data - | ...

Tables of any size are read in parts. With --data -, CSV rows are scored as they arrive.
Where a row is refused and there is no --output, the rows of earlier parts are written.

With --explain the output also says which columns moved each score, by how much: the
score is that of a reference plus the contributions of the columns. The reference is the
middle of the schema (of numbers that of their bounds; all categories alike), or, with
--reference, the mean of a table's rows.

Where the model's decisions are drawn by coins (thresholds --randomized), --id names the
column by which a person is known: the same id gets the same coin, today and tomorrow.
"""

STREAM = Path("-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--model", type=Path, required=True, help="model.json of a server.")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="The table, CSV or Parquet, or a folder of them; - for CSV from standard input."
        " Labels may be absent.",
    )
    parser.add_argument(
        "--id", metavar="COLUMN", help="Ids, compared as text; for decisions drawn by coins."
    )
    parser.add_argument(
        "--explain", action="store_true", help="Add the contribution of each column to the score."
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="TABLE",
        help="CSV or Parquet; with --explain, the reference is the mean of its rows.",
    )
    parser.add_argument(
        "--output", type=Path, help="CSV to write; standard output if not given, or -."
    )
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.errors import InputError
    from synthfair.files import require_distinct, require_free, whole_file
    from synthfair.scoring import predict_parts
    from synthfair.trained import read_model

    output = None if args.output == STREAM else args.output
    if args.reference and not args.explain:
        raise InputError("--reference: is for --explain")
    if output:
        inputs = [args.model, args.data, args.reference]
        require_distinct(output, *(path for path in inputs if path not in (None, STREAM)))
        require_free(output, force=args.force)
    model = read_model(args.model)
    scored = predict_parts(
        model,
        _parts(args, model),
        source="standard input" if args.data == STREAM else str(args.data),
        id_column=args.id,
        reference=_reference(args, model),
    )
    if output:
        with (
            whole_file(output) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            _write(scored, file)
    else:
        _write(scored, sys.stdout)


def _parts(args: argparse.Namespace, model: TrainedModel) -> Iterator[pd.DataFrame]:
    from synthfair.data.tables import read_chunks, read_stream
    from synthfair.errors import InputError

    ids = [args.id] if args.id else []
    if args.data != STREAM:
        return read_chunks(args.data, model.schema_, text=ids)
    if sys.stdin is None:
        raise InputError("standard input: is closed")
    return read_stream(cast("BufferedReader", sys.stdin.buffer), model.schema_, text=ids)


def _reference(args: argparse.Namespace, model: TrainedModel) -> np.ndarray | None:
    from synthfair.data.tables import read_chunks
    from synthfair.scoring import mean_inputs

    if args.reference is None:
        return model.middle if args.explain else None
    chunks = read_chunks(args.reference, model.schema_)
    return mean_inputs(model, chunks, source=str(args.reference))


def _write(parts: Iterator[pd.DataFrame], file: TextIO) -> None:
    for i, part in enumerate(parts):
        part.to_csv(file, index=False, header=i == 0)
        file.flush()  # who reads a pipe may wait for these rows before sending more
