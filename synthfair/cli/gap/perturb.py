"""``python -m synthfair gap perturb``: clients' reports, made on their devices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.errors import InputError, reason

if TYPE_CHECKING:
    from synthfair.measure.collection import Collection
    from synthfair.measure.reports import Report

HELP = "on a device: a noisy report in place of a person's group and value"

DESCRIPTION = """\
Print a report as a line of CSV: a random id, the mark of the public file, a noisy group
and a noisy value. All randomness is the operating system's. Each report of a person
spends the epsilon of the public file; send one.

  python -m synthfair gap perturb gap.json --group female --value 0.93
  python -m synthfair gap perturb gap.json --header < record.json > report.csv
  python -m synthfair gap perturb gap.json --model model.json --table rows.csv \\
      --rate true_positive_rate > reports.csv

The second form reads {"group": "female", "value": 0.93}, which other users of the
device cannot see in its list of processes.

The third applies a trained model to the rows of a table. Each row is a person, who sends
one report: 1 if the model selects the row, and 0 if not; a row with the other label has
no rate, and reports the group "(no value)", which the public file must have beside the
groups of the model's schema. A device with several rows of one person sends one
report with --one-person: the rate over all of them. Without it, that person would
spend epsilon once a row.
"""

RATES = ("true_positive_rate", "false_positive_rate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("collection", type=Path, help="The public file, of plan.")
    parser.add_argument("--group", help="Of this client; with --value, or neither.")
    parser.add_argument("--value", type=float, help="Of this client, in the public range.")
    parser.add_argument("--model", type=Path, help="model.json of a server; with --table, --rate.")
    parser.add_argument("--table", type=Path, help="Rows with labels; CSV or Parquet.")
    parser.add_argument("--rate", choices=RATES, help="That is measured; one a public file.")
    parser.add_argument(
        "--one-person", action="store_true", help="All rows are one person's: one report."
    )
    parser.add_argument("--header", action="store_true", help="Print the columns' names first.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    _require_together(args, ("group", "value"))
    _require_together(args, ("model", "table", "rate"))
    if args.model and args.group:
        raise InputError("flags: group and value do not go with a model")
    if args.one_person and not args.model:
        raise InputError("flags: one-person goes with model, table and rate")

    import csv

    from synthfair.cli.show import warn
    from synthfair.measure.collection import read_collection
    from synthfair.measure.reports import COLUMNS, perturb_record

    collection = read_collection(args.collection)
    if args.model:
        reports = _of_a_model(args, collection)
    else:
        group, value = _record() if args.group is None else (args.group, args.value)
        reports = [perturb_record(collection, group, value)]
    if collection.warning:
        warn(collection.warning)
    lines = csv.writer(sys.stdout, lineterminator="\n")
    if args.header:
        lines.writerow(COLUMNS)
    lines.writerows((*report[:3], repr(report.value)) for report in reports)


def _require_together(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    given = [getattr(args, name) is not None for name in names]
    if any(given) and not all(given):
        raise InputError(f"flags: {', '.join(names)} go together: give all of them or none")


def _of_a_model(args: argparse.Namespace, collection: Collection) -> list[Report]:
    from synthfair.evaluation import pooled_scores, read_tests
    from synthfair.measure.persons import perturb_rates
    from synthfair.trained import read_model

    model = read_model(args.model)
    rows = pooled_scores(model, read_tests([args.table], model.schema_), sources=[args.table])
    groups = tuple(map(str, model.schema_.groups))
    return perturb_rates(collection, rows, groups, args.rate, together=args.one_person)


def _record() -> tuple[str, float]:
    import json

    try:
        record = json.loads(sys.stdin.read(10_000))
    except (ValueError, RecursionError) as error:
        raise InputError(f"standard input: not JSON: {reason(error)}") from error
    if not (
        isinstance(record, dict)
        and record.keys() == {"group", "value"}
        and isinstance(record["group"], str)
        and type(record["value"]) in (int, float)  # true and false are no numbers
        and abs(record["value"]) <= sys.float_info.max
    ):
        raise InputError('standard input: must be {"group": TEXT, "value": NUMBER}')
    return record["group"], float(record["value"])
