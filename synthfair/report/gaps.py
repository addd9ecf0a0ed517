"""Privately measured gaps, as tables and as documents for JSON files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from synthfair.fairness.metrics import Metric
from synthfair.measure.estimate import FEW
from synthfair.report.text_table import Table

if TYPE_CHECKING:
    from synthfair.measure.aggregate import ReportSums
    from synthfair.measure.collection import Collection
    from synthfair.measure.estimate import Estimate, Gap
    from synthfair.measure.simulate import ModelGaps

MOST_SHOWN = 300
"""Gaps in a printed table: those of every two of 25 groups."""

EXPLAINED = (
    "second minus first; magnitude: absolute gap, corrected for noise;"
    " chebyshev: half-width if the estimated sizes were exact; true, pooled: the gap of the"
    " devices' mean rates, and of all rows together, known in a simulation"
)
"""The note below a table of gaps."""


def gap_table(
    gaps: Sequence[Mapping[str, Any]],
    confidence: float,
    caption: str = "",
    most: int = MOST_SHOWN,
) -> Table:
    """Gaps between groups as a gaps.json holds them.

    Args:
        gaps: each with ``first``, ``second``, ``value``, ``low`` and ``high``, and others.
        confidence: of the intervals.
        caption: what else is to be said.
        most: gaps that are shown.
    """
    records = []
    for gap in gaps[:most]:
        numbers = {key: math.nan if value is None else value for key, value in gap.items()}
        rate = f"{gap['rate'].replace('_', ' ')}s: " if "rate" in gap else ""
        value = Metric(*(numbers[key] for key in ("value", "low", "high")))
        record = {"gap": f"{rate}{gap['second']} - {gap['first']}", "value": value}
        others = ("magnitude", "chebyshev", "true", "pooled")
        records.append(record | {name: numbers.get(name) for name in others})
    if len(gaps) > most:
        caption = f"the first {most} of {len(gaps):,}: --output writes all; {caption}"
    caption += f"{100 * confidence:g} % intervals, each by itself; {EXPLAINED}"
    return Table.of(records, caption=caption, form="z.4f")


def estimate_tables(document: Mapping[str, Any]) -> Group:
    """Groups, then gaps, of the result of ``gap aggregate``."""
    groups = []
    for group in document["groups"]:
        means = (group[key] for key in ("mean", "low", "high"))
        mean = Metric(*(math.nan if number is None else number for number in means))
        record = {"group": group["name"], "share": group["share"], "± error": group["error"]}
        groups.append(record | {"mean": mean})
    n_rejected = sum(document["rejected"].values())
    caption = f"{document['reports']:,} reports accepted; {n_rejected:,} rejected"
    gaps = gap_table(document["gaps"], document["confidence"])
    return Group(Table.of(groups, caption=caption, form="z.4f"), gaps)


def estimate_document(
    estimate: Estimate, sums: ReportSums, collection: Collection
) -> dict[str, Any]:
    """The result of ``gap aggregate`` for a JSON file, in the value's unit.

    What is not finite is null, as are the means of groups that are not compared.
    """
    groups = []
    for i, name in enumerate(collection.groups):
        share, error = float(estimate.shares[i]), float(estimate.share_errors[i])
        group: dict[str, Any] = {"name": name, "share": share, "error": error}
        means = (float(estimate.means[i]), *estimate.intervals[i])
        for key, mean in zip(("mean", "low", "high"), means, strict=True):
            is_compared = i in collection.compared and math.isfinite(mean)
            group[key] = collection.lower + (1 + mean) * collection.unit if is_compared else None
        groups.append(group)
    return {
        "reports": estimate.reports,
        "rejected": sums.rejected,
        "confidence": estimate.confidence,
        "epsilon": collection.epsilon,
        "collection": collection.fingerprint,
        "groups": groups,
        "gaps": [
            {"first": collection.groups[gap.groups[0]], "second": collection.groups[gap.groups[1]]}
            | _gap_document(gap.in_units_of(collection.unit))
            for gap in estimate.gaps
            if set(gap.groups) <= set(collection.compared)
        ],
    }


def gaps_document(result: ModelGaps, *, seed: int) -> dict[str, Any]:
    """The gaps.json of ``gap simulate``; what is not finite is null."""
    return {
        "format": "synthfair-gaps/1",
        "devices": result.devices,
        "epsilon": result.epsilon,
        "mechanism": result.collection.mechanism,
        "confidence": result.confidence,
        "seed": seed,
        "few": list(result.few),
        "gaps": [
            {"rate": gap.rate, "first": gap.groups[0], "second": gap.groups[1]}
            | _gap_document(gap.measured)
            | {"true": _finite(gap.true), "pooled": _finite(gap.pooled)}
            for gap in result.gaps
        ],
    }


def _gap_document(gap: Gap) -> dict[str, float | None]:
    return {
        "value": _finite(gap.value),
        "low": gap.interval.low,
        "high": gap.interval.high,
        "magnitude": _finite(gap.magnitude),
        "chebyshev": _finite(gap.chebyshev),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
        lines.append(few_warning(small, of="reports"))
    if sums.ids is None:
        lines.append("report ids are not checked: repeated reports are counted again")
    elif (share := sums.ids.lost_share()) > 0.001:
        lines.append(
            f"one new report in {1 / share:.0f} is rejected as repeated: raise --id-memory"
        )
    return lines


def few_warning(groups: Sequence[str], *, of: str) -> str:
    """Warns of groups with fewer than :data:`FEW` reports or devices."""
    return (
        f"groups with fewer than {FEW} {of}: {', '.join(groups)[:200]}: too few for the intervals,"
        " which assume nearly normal sums"
    )
