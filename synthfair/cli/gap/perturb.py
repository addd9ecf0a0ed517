"""``python -m synthfair gap perturb``: one client's report, made on its device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from synthfair.errors import InputError, reason

HELP = "on a device: one noisy report in place of its group and value"

DESCRIPTION = """\
Print one report as a line of CSV: a random id, a noisy group, a noisy value. All
randomness is the operating system's. Each report of a client spends the epsilon of the
public file; send one.

  python -m synthfair gap perturb gap.json --group female --value 0.93
  python -m synthfair gap perturb gap.json --header < record.json > report.csv

The second form reads {"group": "female", "value": 0.93}, which other users of the
device cannot see in its list of processes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("collection", type=Path, help="The public file, of plan.")
    parser.add_argument("--group", help="Of this client; with --value, or neither.")
    parser.add_argument("--value", type=float, help="Of this client, in the public range.")
    parser.add_argument("--header", action="store_true", help="Print the columns' names first.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    if (args.group is None) != (args.value is None):
        raise InputError("flags: group and value go together: give both or neither")

    from synthfair.measure.collection import read_collection
    from synthfair.measure.reports import COLUMNS, perturb_record

    collection = read_collection(args.collection)
    group, value = _record() if args.group is None else (args.group, args.value)
    report = perturb_record(collection, group, value)
    import csv

    lines = csv.writer(sys.stdout, lineterminator="\n")
    if args.header:
        lines.writerow(COLUMNS)
    lines.writerow((report.report, report.group, repr(report.value)))


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
