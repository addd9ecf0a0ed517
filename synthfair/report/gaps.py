"""Privately measured gaps, plans and simulations, as tables and as documents for JSON files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from synthfair.measure.estimate import FEW
from synthfair.report.result_table import ResultTable

if TYPE_CHECKING:
    from synthfair.measure.aggregate import Collected
    from synthfair.measure.collection import Collection
    from synthfair.measure.estimate import Estimate, Gap
    from synthfair.measure.plan import GapPlan
    from synthfair.measure.simulate import ModelGaps, SimulatedGap

MOST_SHOWN = 300
"""Gaps in a printed table: those of every two of 25 groups."""

NAMES = {"randomized": "M_R: one bit of the value", "laplace": "M_L: the value with noise"}


def plan_table(plan: GapPlan, collection: Collection) -> ResultTable:
    """A planned measurement."""
    table = ResultTable.of_facts()
    budget = f"epsilon1 = {collection.epsilon1:.4g}, epsilon2 = {collection.epsilon2:.4g}"
    table.add_row("groups", ", ".join(collection.groups))
    table.add_row("epsilon", f"{collection.epsilon:.4g}, of one client's report")
    table.add_row("mechanism", f"{NAMES[collection.mechanism]}; {budget}")
    table.add_row("clients", f"{plan.clients:,}")
    table.add_row("precision", f"± {plan.precision:.4g}, at confidence {plan.confidence:.4g}")
    table.add_row("Chebyshev", f"± {plan.chebyshev:.4g}, if the sizes of the groups were known")
    if plan.precision >= 2 * collection.unit:
        table.add_row("", "too few clients to estimate the size of the smallest group")
    return table


def estimate_tables(found: Estimate, collected: Collected, collection: Collection) -> Group:
    """Groups, then gaps, in the value's unit."""
    percent = f"{100 * found.confidence:g} % interval"
    groups = ResultTable("group", "share", "± error", "mean", percent)
    for name, share, error, (mean, low, high) in _groups(found, collection):
        shown = _number(mean), _interval(low, high)
        groups.add_row(name, f"{share:.4f}", f"{error:.4f}", *shown)
    rejected = sum(collected.rejected.values())
    groups.caption = f"{found.reports:,} reports accepted; {rejected:,} rejected"
    every = _gaps(found, collection)
    gaps = ResultTable("gap", "value", percent, "magnitude", "Chebyshev")
    for first, second, gap in every[:MOST_SHOWN]:
        gaps.add_row(
            f"{second} - {first}", _signed(gap.value), _interval(*gap.interval),
            _number(gap.magnitude), _number(gap.chebyshev),
        )  # fmt: skip
    gaps.caption = (
        "second minus first, each interval by itself; magnitude: absolute gap, corrected for noise;"
        " Chebyshev: half-width if the estimated sizes were exact"
    )
    if len(every) > MOST_SHOWN:
        gaps.caption += f"; the first {MOST_SHOWN} of {len(every):,}: --output writes all"
    return Group(groups, gaps)


def _groups(found: Estimate, collection: Collection) -> list[tuple[str, float, float, list[float]]]:
    """Name, share, error, and mean with its interval in the value's unit; NaN if not compared."""
    means = [
        [collection.lower + (1 + float(v)) * collection.unit for v in (mean, *interval)]
        if group in collection.compared
        else [math.nan] * 3
        for group, (mean, interval) in enumerate(zip(found.means, found.intervals, strict=True))
    ]
    shares, errors = found.shares.tolist(), found.share_errors.tolist()
    return list(zip(collection.groups, shares, errors, means, strict=True))


def _gaps(found: Estimate, collection: Collection) -> list[tuple[str, str, Gap]]:
    """The gaps between groups that are compared, with the groups' names, in the value's unit."""
    names = collection.groups
    return [
        (names[gap.groups[0]], names[gap.groups[1]], gap.in_units_of(collection.unit))
        for gap in found.gaps
        if set(gap.groups) <= set(collection.compared)
    ]


def rejected_warnings(collected: Collected, collection: Collection) -> list[str]:
    """Warnings about rejected reports, small groups, and repeated reports that may be missed."""
    lines = [
        f"rejected: {count:,}, {why}; the first is {collected.examples[why]}"
        for why, count in collected.rejected.items()
        if count
    ]
    counts = collected.tally.counts
    few = [
        f"{collection.groups[i]} ({counts[i]:g})" for i in collection.compared if counts[i] < FEW
    ]
    if few:
        lines.append(few_warning(few, of="reports"))
    if collected.ids is None:
        lines.append("report ids are not checked: repeated reports are counted again")
    elif (share := collected.ids.lost_share()) > 0.001:
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


def estimate_document(
    found: Estimate, collected: Collected, collection: Collection
) -> dict[str, Any]:
    """The result of ``gap aggregate`` for a JSON file; what is not finite is null."""
    return {
        "reports": found.reports,
        "rejected": collected.rejected,
        "confidence": found.confidence,
        "epsilon": collection.epsilon,
        "collection": collection.fingerprint,
        "groups": [
            {
                "name": name,
                "share": share,
                "error": error,
                "mean": _finite(mean),
                "low": _finite(low),
                "high": _finite(high),
            }
            for name, share, error, (mean, low, high) in _groups(found, collection)
        ],
        "gaps": [
            {"first": first, "second": second, **_gap_document(gap)}
            for first, second, gap in _gaps(found, collection)
        ],
    }


def gaps_document(found: ModelGaps, *, seed: int) -> dict[str, Any]:
    """The gaps.json of ``gap simulate``; what is not finite is null."""
    return {
        "format": "synthfair-gaps/1",
        "devices": found.devices,
        "epsilon": found.epsilon,
        "mechanism": found.collection.mechanism,
        "confidence": found.confidence,
        "seed": seed,
        "few": list(found.few),
        "gaps": [
            {
                "rate": gap.rate,
                "first": gap.groups[0],
                "second": gap.groups[1],
                **_gap_document(gap.measured),
                "true": _finite(gap.true),
                "pooled": _finite(gap.pooled),
            }
            for gap in found.gaps
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


def simulation_table(
    found: Sequence[SimulatedGap], collection: Collection, confidence: float
) -> ResultTable:
    """Results of repeated measurements, in the value's unit."""
    table = ResultTable("gap", "true", "mean", "deviation", "predicted", "covered", "precision")
    table.caption = (
        f"covered: intervals that contain the true gap, {confidence:.4g} expected; precision:"
        " their mean half-width; noise from a seed"
    )
    unit = collection.unit
    for gap in (gap for gap in found if set(gap.groups) <= set(collection.compared)):
        title = f"{collection.groups[gap.groups[1]]} - {collection.groups[gap.groups[0]]}"
        table.add_row(
            title, _signed(gap.true * unit), _signed(gap.mean * unit),
            _number(gap.deviation * unit), _number(gap.expected * unit),
            f"{gap.covered:.1%}", _number(gap.width * unit),
        )  # fmt: skip
        if gap.open:
            table.caption += f"; {title}: {gap.open:.1%} are the whole range"
    return table


def model_table(found: ModelGaps) -> ResultTable:
    """A model's gaps, measured and true."""
    percent = f"{100 * found.confidence:g} % interval"
    table = ResultTable("gap", "measured", percent, "magnitude", "true", "all rows", "Chebyshev")
    for gap in found.gaps:
        rate = gap.rate.replace("_", " ").removesuffix(" rate")
        measured = gap.measured
        table.add_row(
            f"{rate}s: {gap.groups[1]} - {gap.groups[0]}", _signed(measured.value),
            _interval(*measured.interval), _number(measured.magnitude), _signed(gap.true),
            _signed(gap.pooled), _number(measured.chebyshev),
        )  # fmt: skip
    table.caption = (
        f"{found.devices:,} devices, epsilon = {found.epsilon:.4g} each for both rates together;"
        " true: the mean over devices, known in a simulation; Chebyshev: half-width if the"
        " estimated sizes were exact"
    )
    return table


def _interval(low: float, high: float) -> str:
    return f"[{low:.4f}, {high:.4f}]" if math.isfinite(low) else "unknown"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if math.isfinite(value) else "unknown"


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "unknown"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
