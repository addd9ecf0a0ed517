"""``python -m synthfair gap aggregate``: gaps from reports, with intervals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "gaps between groups from any number of reports, with intervals"

DESCRIPTION = """\
Add up reports and estimate each group's share and mean, and the gap of every two. Files
are CSV or Parquet with columns report, collection, group and value, as perturb makes
them, whose lines may stand without a header; they are read in batches, and memory does
not grow with their number. Reports that the mechanism cannot have made, those of another
collection, and repeated ids are refused and counted.

  python -m synthfair gap aggregate gap.json reports/*.parquet --confidence 0.99
  zcat reports.csv.gz | python -m synthfair gap aggregate gap.json -

Intervals carry the uncertainty of the groups' sizes, which are estimated unless
--shares gives them. They speak of the population whose random sample the clients are.
A report that was made up, but looks like one of the mechanism's, cannot be told apart.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("collection", type=Path, help="The public file, of plan.")
    parser.add_argument("reports", nargs="+", help="Files; - is CSV from standard input.")
    parser.add_argument("--shares", nargs="+", type=float, help="Of the groups, where known.")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="Of each interval. Default: 0.95."
    )
    parser.add_argument(
        "--no-ids", action="store_true",
        help="Do not look for repeated reports; the column report may then be missing.",
    )  # fmt: skip
    parser.add_argument(
        "--id-memory", type=int, default=128, metavar="MB",
        help="In which repeated ids are found. Too little loses reports, and it is said how many."
        " Default: 128, enough for 10^7; 10^9 take 4096.",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="JSON file to write the result to as well.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say, warn
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.measure.aggregate import aggregate_reports
    from synthfair.measure.collection import read_collection
    from synthfair.measure.diagnostics import doubts
    from synthfair.measure.estimate import estimate_gaps, require_confidence
    from synthfair.measure.identifiers import SeenIds
    from synthfair.measure.linear import known_shares
    from synthfair.report.gaps import estimate_document, estimate_tables, rejected_warnings

    sources = [sys.stdin.buffer if name == "-" else Path(name) for name in args.reports]
    files = [source for source in sources if isinstance(source, Path)]
    if args.output:
        require_distinct(args.output, args.collection, *files)
        require_free(args.output, force=args.force)
    collection = read_collection(args.collection)
    require_confidence(args.confidence)  # before reports are read, which may take hours
    if args.shares:
        known_shares(args.shares, len(collection.groups))
    ids = None if args.no_ids else SeenIds(args.id_memory * 2**20)
    collected = aggregate_reports(sources, collection, ids)
    for line in rejected_warnings(collected, collection):
        warn(line)
    found = estimate_gaps(
        collected.tally, collection.noise(), confidence=args.confidence, shares=args.shares
    )
    contradictions = doubts(collected.tally, collection, args.shares)
    for line in contradictions:
        warn(f"{line}: the intervals say nothing if the reports are not what they are taken for")
    if args.output:
        document = estimate_document(found, collected, collection)
        write_json(args.output, document | {"doubts": contradictions})
    say(estimate_tables(found, collected, collection))
