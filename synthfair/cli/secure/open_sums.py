"""``python -m synthfair secure open``: partial sums of all aggregators to the noisy total."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "add the aggregators' answers: the noisy total, with its statement of privacy"

DESCRIPTION = """\
Add the answers of all aggregators. The shares cancel; the total over all clients
remains, with the noise of every aggregator. Counts are written as a histogram.

With the commitments that the aggregators published before any of them published its
sum, a sum that was chosen after another was known is refused.

  python -m synthfair secure open --task task.json sum_0.json sum_1.json \\
      --output histogram.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--task", type=Path, required=True, help="The public file that plan wrote.")
    add("sums", type=Path, nargs="+", help="The answer of each aggregator.")
    add(
        "--commitments",
        nargs="+",
        help="What aggregators published before any sum, by role; see add.",
    )
    add("--output", type=Path, required=True, help="JSON to write, e.g. histogram.json.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.files import require_distinct, require_free
    from synthfair.report.table import Table
    from synthfair.secure.aggregator import read_partial_sum
    from synthfair.secure.opening import open_sums, write_total
    from synthfair.secure.task import read_task

    require_distinct(args.output, args.task, *args.sums)
    require_free(args.output, force=args.force)
    task = read_task(args.task)
    sums = [read_partial_sum(path) for path in args.sums]
    opened = open_sums(task, sums, commitments=args.commitments, sources=args.sums)
    write_total(task.what, opened, args.output)
    say(f"Task {task.id.hex()}")
    say(Table.of_facts(opened.statement))
    say(f"Wrote {args.output}.")
