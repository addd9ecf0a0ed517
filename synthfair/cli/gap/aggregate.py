"""``python -m synthfair gap aggregate``: gaps from reports, with intervals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from synthfair.cli.options import advanced

HELP = "estimate gaps between groups from any number of reports, with intervals"

DESCRIPTION = """\
Estimate each group's share and mean, and the gap of every two groups. Files are CSV
(with or without a header) or Parquet with the columns report, collection, group and
value, as perturb writes them. Memory does not grow with their number. Reports that
the mechanism cannot have made, those of another public file and repeated ones are
rejected and counted.

  python -m synthfair gap aggregate gap.json reports/*.parquet --confidence 0.99
  zcat reports.csv.gz | python -m synthfair gap aggregate gap.json -

The groups' shares are estimated, and the intervals include their uncertainty, unless
--shares gives them. The intervals are for the population of which the clients are a
random sample. An invented report that looks like a real one cannot be recognised.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("collection", type=Path, help="The public file that plan wrote.")
    add(
        "reports",
        nargs="+",
        help="Files, or pipes of CSV as the shell makes of <(zcat reports.csv.gz), which are waited"
        " for until their writers close them; - is CSV from standard input.",
    )
    add("--confidence", type=float, default=0.95, help="Of each interval. Default: 0.95.")
    add("--output", type=Path, help="JSON file to which the result is written as well.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")
    add = advanced(parser).add_argument
    add("--shares", nargs="+", type=float, help="Shares of the groups, if known.")
    add("--no-ids", action="store_true",
        help="Do not look for repeated reports; the column report may be missing.")  # fmt: skip
    add("--id-memory", type=int, default=128, metavar="MB",
        help="Memory for finding repeated reports, in MiB. With too little, some new reports are"
        " rejected as repeated; a warning says how many. Default: 128, enough for 10^7 reports;"
        " 10^9 need 4096.")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say, warn
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.measure.aggregate import SeenIds, aggregate_reports
    from synthfair.measure.collection import read_collection
    from synthfair.measure.diagnostics import diagnose_reports
    from synthfair.measure.estimate import estimate_gaps, require_confidence
    from synthfair.measure.tally import require_shares
    from synthfair.report.gaps import estimate_document, estimate_tables, rejected_warnings

    sources = [sys.stdin.buffer if name == "-" else Path(name) for name in args.reports]
    if args.output:
        files = [source for source in sources if isinstance(source, Path)]
        require_distinct(args.output, args.collection, *files)
        require_free(args.output, force=args.force)
    collection = read_collection(args.collection)
    require_confidence(args.confidence)  # before the reports are read, which may take hours
    if args.shares:
        require_shares(args.shares, len(collection.groups))
    ids = None if args.no_ids else SeenIds(args.id_memory * 2**20)
    collected = aggregate_reports(sources, collection, ids)
    for line in rejected_warnings(collected, collection):
        warn(line)
    mechanism = collection.make_mechanism()
    found = estimate_gaps(
        collected.tally, mechanism, confidence=args.confidence, shares=args.shares
    )
    contradictions = diagnose_reports(collected.tally, collection, args.shares)
    for line in contradictions:
        warn(f"{line}. The reports contradict the public file: the intervals are not valid")
    document = estimate_document(found, collected, collection)
    if args.output:
        write_json(args.output, document | {"warnings": contradictions})
    say(estimate_tables(document))
