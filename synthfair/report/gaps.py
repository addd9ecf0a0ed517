"""Privately measured gaps, as tables and as documents for JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group

from synthfair.fairness.metrics import Metric
from synthfair.measure.estimate import FEW
from synthfair.measure.gaps_file import GapsFile
from synthfair.report.text_table import Table

if TYPE_CHECKING:
    from synthfair.measure.aggregate import ReportSums
    from synthfair.measure.collection import Collection

MOST_SHOWN = 300
"""Gaps in a printed table: those of every two of 25 groups."""


def gap_table(document: GapsFile, most: int = MOST_SHOWN) -> Table:
    """Return a table of the first gaps of a gaps.json."""
    records = []
    for gap in document.gaps[:most]:
        rate = f"{gap.rate.replace('_', ' ')}s: " if gap.rate else ""
        record = {"gap": f"{rate}{gap.second} - {gap.first}"}
        records.append(record | {"value": Metric(gap.value, gap.low, gap.high)})
    count = f"{len(document.sites)} sites" if document.sites else f"{document.reports:,} reports"
    caption = f"{count}, epsilon = {document.epsilon:.4g} each; second minus first;"
    caption += f" {100 * document.confidence:g} % intervals, each by itself"
    if len(document.gaps) > most:
        shown = f"the first {most} of {len(document.gaps):,}: the JSON has all"
        caption = f"{shown}; {caption}"
    return Table.of(records, caption=caption, form="z.4f")


def estimate_tables(document: GapsFile) -> Group:
    """Return a table of the groups, then of the gaps, of the result of ``gap aggregate``."""
    groups = [
        {"group": group.name, "share": group.share, "± error": group.error}
        | {"mean": Metric(group.mean, group.low, group.high)}
        for group in document.groups
    ]
    n_rejected = sum(document.rejected.values())
    caption = f"{document.reports:,} reports accepted; {n_rejected:,} rejected"
    return Group(Table.of(groups, caption=caption, form="z.4f"), gap_table(document))


def rejected_warnings(sums: ReportSums, collection: Collection) -> list[str]:
    """Warnings about rejected reports, small groups, and repeated reports that may be missed."""
    lines = [
        f"rejected: {count:,}, {cause}; the first is {sums.examples[cause]}"
        for cause, count in sums.rejected.items()
        if count
    ]
    counts = sums.tally.counts
    small = [
        f"{collection.groups[i]} ({counts[i]:g})" for i in collection.compared if counts[i] < FEW
    ]
    if small:
        lines.append(
            f"groups with fewer than {FEW} reports: {', '.join(small)[:200]}: too few for the"
            " intervals, which assume nearly normal sums"
        )
    if sums.ids is None:
        lines.append("report ids are not checked: repeated reports are counted again")
    elif (share := sums.ids.lost_share()) > 0.001:
        lines.append(
            f"one new report in {1 / share:.0f} is rejected as repeated, by chance: there are too"
            " many to tell them all apart"
        )
    return lines
