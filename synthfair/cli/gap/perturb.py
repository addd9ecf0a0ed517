"""``python -m synthfair gap perturb``: clients' reports, made on their devices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.measure.collection import Collection
    from synthfair.measure.reports import Report

HELP = "on a device: replace a person's group and value by a noisy report"

DESCRIPTION = """\
Print a report as a line of CSV: a random id, the fingerprint of the public file, a noisy
group and a noisy value. The randomness is the operating system's. Each report of a
person spends the epsilon of the public file, so send only one.

  python -m synthfair gap perturb gap.json --group female --value 0.93
  python -m synthfair gap perturb gap.json --header < record.json > report.csv
  python -m synthfair gap perturb gap.json --model model.json --table rows.csv \\
      --rate true_positive_rate > reports.csv

The second form reads {"group": "female", "value": 0.93} from standard input, so that
other users of the device cannot see it in the list of processes.

The third form applies a trained model to the rows of a table. Each row is a person, who
sends one report: 1 if the model selects the row, else 0. A row whose label does not
count for the rate reports the group "(no value)"; the public file must have it, and the
groups of the model's schema. If all rows belong to one person, --one-person makes one
report of the rate over all of them; without it that person would spend epsilon for
each row.
"""

RATES = ("true_positive_rate", "false_positive_rate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("collection", type=Path, help="The public file that plan wrote.")
    add("--group", help="Group of this client; needs --value.")
    add("--value", type=float, help="Value of this client, in the public range.")
    add("--model", type=Path, help="model.json of a server; needs --table and --rate.")
    add("--table", type=Path, help="Rows with labels; CSV or Parquet.")
    add("--rate", choices=RATES, help="Rate to measure; use one public file for each rate.")
    add("--one-person", action="store_true", help="All rows belong to one person: one report.")
    add("--header", action="store_true", help="Print the columns' names first.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    _require_together(args, ("group", "value"))
    _require_together(args, ("model", "table", "rate"))
    if args.model and args.group:
        raise InputError("flags: group and value cannot be used with a model")
    if args.one_person and not args.model:
        raise InputError("flags: one-person needs model, table and rate")

    from synthfair.measure.collection import read_collection
    from synthfair.measure.reports import perturb_records, write_reports

    collection = read_collection(args.collection)
    if args.model:
        reports = _of_a_model(args, collection)
    else:
        group, value = _record() if args.group is None else (args.group, args.value)
        reports = perturb_records(collection, [group], [value])
    write_reports(reports, sys.stdout, header=args.header)


def _require_together(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    given = [getattr(args, name) is not None for name in names]
    if any(given) and not all(given):
        raise InputError(f"flags: {', '.join(names)} belong together: give all of them or none")


def _of_a_model(args: argparse.Namespace, collection: Collection) -> list[Report]:
    from synthfair.evaluation import pooled_scores, read_tests
    from synthfair.measure.reports import perturb_rates
    from synthfair.trained import read_model

    model = read_model(args.model)
    rows = pooled_scores(model, read_tests([args.table], model.schema_), sources=[args.table])
    groups = tuple(map(str, model.schema_.groups))
    return perturb_rates(collection, rows, groups, args.rate, together=args.one_person)


def _record() -> tuple[str, float]:
    from synthfair.files import parse_json

    record = parse_json(sys.stdin.read(10_000), "standard input")
    if not (
        isinstance(record, dict)
        and record.keys() == {"group", "value"}
        and isinstance(record["group"], str)
        and type(record["value"]) in (int, float)  # not true or false
        and abs(record["value"]) <= sys.float_info.max
    ):
        raise InputError('standard input: must be {"group": TEXT, "value": NUMBER}')
    return record["group"], float(record["value"])
