"""``python -m synthfair secure share``: a client's part, one encrypted file an aggregator."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import advanced
from synthfair.cli.secure.plan import RELATIONS
from synthfair.errors import InputError

HELP = "at a client: count rows, and write one encrypted file for each aggregator"

DESCRIPTION = """\
Count the rows of a table as the task says, and write one file for each aggregator:
NAME.to_0, NAME.to_1, where NAME is that of the client's key. Each is encrypted to its
aggregator and signed by the client. A file alone says nothing of the counts, not even to
its aggregator; all of them together say everything, so send each to its own.
The sum's epsilon is booked in the table's ledger before anything is written.

Whoever could replace the task could name itself as all aggregators, and read the counts.
So give the aggregators' public keys, that came by another way, and the most epsilon.

  python -m synthfair secure share --task task.json --data rows.csv --model model.json \\
      --aggregators aggregator_0.pub aggregator_1.pub --most-epsilon 1 \\
      --sign client_0.key --output DIR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--task", type=Path, required=True, help="The public file that plan wrote.")
    add("--data", type=Path, required=True, help="Rows with labels; CSV or Parquet.")
    add("--model", type=Path, help="model.json that the task names.")
    add("--schema", type=Path, help="Schema of the table, for a task without a model.")
    add("--aggregators", type=Path, nargs="+", required=True,
        help="Public keys of the aggregators, by role, handed over by a way on which nobody can"
        " replace them; a task with others is refused.")  # fmt: skip
    add("--most-epsilon", type=float, required=True, help="Refuse a task that costs more.")
    add("--sign", type=Path, required=True, help="The client's private key, of keygen.")
    add("--output", type=Path, required=True, help="Folder to write to.")
    add("--force", action="store_true", help="Overwrite files that exist.")
    add = advanced(parser).add_argument
    add("--relation", choices=RELATIONS, default=RELATIONS[0],
        help=f"Which tables are neighbours, as agreed. Default: {RELATIONS[0]}.")  # fmt: skip
    add("--user-column", help="Column that says whose a row is, for the unit user.")
    add(
        "--ledger",
        type=Path,
        help="File in which the sum is booked. Default: the table's name with .ledger.jsonl added.",
    )


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.data.encode import Clipping
    from synthfair.data.schema import read_schema
    from synthfair.data.tables import read_table
    from synthfair.files import claimed, whole_file
    from synthfair.privacy.ledger import Ledger
    from synthfair.release.keys import read_signing_key
    from synthfair.report.table import Table
    from synthfair.secure.aggregator_keys import read_aggregator_keys
    from synthfair.secure.counting import count_table, counts_booking
    from synthfair.secure.summands import GroupCounts
    from synthfair.secure.task import read_task
    from synthfair.secure.upload import make_uploads
    from synthfair.trained import read_model

    task = read_task(args.task)
    if not isinstance(task.what, GroupCounts):
        raise InputError(f"{args.task}: sums vectors, whose parts are made in Python")
    if (args.model is None) == (args.schema is None):
        raise InputError("flags: give one of --model and --schema")
    aggregators = [read_aggregator_keys(path) for path in args.aggregators]
    task.require_agreed(aggregators)
    task.require_within(most_epsilon=args.most_epsilon, relation=args.relation)
    say(f"Task {task.id.hex()}")
    say(Table.of_facts(task.statement))
    outputs = [args.output / f"{args.sign.stem}.to_{role}" for role in range(len(task.aggregators))]
    with claimed(*outputs, force=args.force):
        key = read_signing_key(args.sign)
        client = key.public_key().public_bytes_raw().hex()
        model = read_model(args.model) if args.model else None
        schema = model.schema_ if model else read_schema(args.schema)
        clipping = Clipping()
        counts = count_table(
            task.what,
            read_table(args.data, schema),
            schema,
            model=model,
            user_column=args.user_column,
            source=str(args.data),
            clipping=clipping,
        )
        clipping.warn(str(args.data))
        uploads = make_uploads(task, counts, key)
        ledger = Ledger(args.ledger) if args.ledger else Ledger.for_table(args.data)
        ledger.book(counts_booking(task.what, task, client=client, output=args.task.name))
        for path, upload in zip(outputs, uploads, strict=True):
            with whole_file(path) as temporary:
                temporary.write_bytes(upload)
    say(f"Wrote {', '.join(map(str, outputs))}: send each to its aggregator alone.")
