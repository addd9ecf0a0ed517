"""Privately measured gaps, plans and simulations, as tables and as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from synthfair.measure.devices import finite, gap_document, scaled_gap
from synthfair.measure.estimate import FEW

if TYPE_CHECKING:
    from synthfair.measure.aggregate import Collected
    from synthfair.measure.collection import Collection
    from synthfair.measure.devices import ModelGaps
    from synthfair.measure.estimate import Estimate, Gap
    from synthfair.measure.plan import Plan
    from synthfair.measure.simulate import Simulated

MOST_SHOWN = 300
"""Gaps in a printed table: of 25 groups, every two."""

NAMES = {"randomized": "M_R: one bit of the value", "laplace": "M_L: the value with noise"}


def plan_table(plan: Plan, collection: Collection) -> Table:
    """A measurement before it is made."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    budget = f"epsilon1 = {collection.epsilon1:.4g}, epsilon2 = {collection.epsilon2:.4g}"
    table.add_row("groups", Text(", ".join(collection.groups)))
    table.add_row("epsilon", f"{collection.epsilon:.4g}, of one client's report")
    table.add_row("mechanism", f"{NAMES[collection.mechanism]}; {budget}")
    table.add_row("clients", f"{plan.clients:,}")
    table.add_row("precision", f"{plan.precision:.4g} to either side, at {plan.confidence:.4g}")
    table.add_row("Chebyshev", f"{plan.chebyshev:.4g}, were the groups' sizes known")
    if plan.precision >= 2 * collection.unit:
        table.add_row("", "these clients cannot even tell how large the smallest group is")
    return table


def estimate_tables(found: Estimate, collected: Collected, collection: Collection) -> Group:
    """Groups, then gaps, in the value's unit."""
    percent = f"{100 * found.confidence:g} % interval"
    groups = _table("group", "share", "± error", "mean", percent)
    for name, share, error, mean in zip(
        collection.groups, found.shares, found.share_errors, _means(found, collection), strict=True
    ):
        told = f"{share:.4f}", f"{error:.4f}", _number(mean.value), _interval(*mean[1:])
        groups.add_row(Text(name), *told)
    refused = sum(collected.rejected.values())
    groups.caption = f"{found.reports:,} reports; {refused:,} refused"
    return Group(groups, _gaps_table(found, collection, percent))


def _gaps_table(found: Estimate, collection: Collection, percent: str) -> Table:
    table = _table("gap", "value", percent, "magnitude", "Chebyshev")
    shown = _compared(found, collection)
    for gap in shown[:MOST_SHOWN]:
        table.add_row(*_gap_row(scaled_gap(gap, collection.unit), collection.groups))
    table.caption = (
        "second minus first, each interval by itself; magnitude without what noise adds to it;"
        " Chebyshev: to either side, estimated sizes taken for known"
    )
    if len(shown) > MOST_SHOWN:
        table.caption += f"; the first {MOST_SHOWN} of {len(shown):,}: --output writes all"
    return table


def _compared(found: Estimate, collection: Collection) -> list[Gap]:
    return [gap for gap in found.gaps if set(gap.groups) <= set(collection.compared)]


def _gap_row(gap: Gap, names: Sequence[str]) -> tuple[str | Text, ...]:
    title = Text(f"{names[gap.groups[1]]} - {names[gap.groups[0]]}")
    return (
        title, _signed(gap.value), _interval(*gap.interval), _number(gap.magnitude),
        _number(gap.chebyshev),
    )  # fmt: skip


class Mean(NamedTuple):
    """A group's, in the value's own unit."""

    value: float
    low: float
    high: float


def _means(found: Estimate, collection: Collection) -> list[Mean]:
    none = Mean(math.nan, math.nan, math.nan)
    return [
        Mean(*(collection.lower + (1 + float(v)) * collection.unit for v in (mean, *interval)))
        if group in collection.compared
        else none
        for group, (mean, interval) in enumerate(zip(found.means, found.intervals, strict=True))
    ]


def rejected_warnings(collected: Collected, collection: Collection) -> list[str]:
    """What was refused and why, a line a reason; and what limits the rest."""
    lines = [
        f"refused: {count:,}, {why}; the first is {collected.examples[why]}"
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
        lines.append("ids are not looked at: repeated reports cannot be found")
    elif collected.ids.lost_share() > 0.001:
        share = collected.ids.lost_share()
        lines.append(
            f"one new id in {1 / share:.0f} is taken for a repeated one: raise --id-memory"
        )
    return lines


def few_warning(groups: Sequence[str], *, of: str) -> str:
    """Of groups with fewer than :data:`FEW` of what is counted."""
    return (
        f"groups with fewer than {FEW} {of}: {', '.join(groups)[:200]}: too few for intervals that"
        " rest on many"
    )


def estimate_document(
    found: Estimate, collected: Collected, collection: Collection
) -> dict[str, Any]:
    """The same for a file; what is not finite is null there."""
    names = collection.groups
    means = _means(found, collection)
    return {
        "reports": found.reports,
        "rejected": collected.rejected,
        "confidence": found.confidence,
        "epsilon": collection.epsilon,
        "collection": collection.fingerprint,
        "groups": [
            {
                "name": name,
                "share": float(share),
                "error": float(error),
                "mean": finite(mean.value),
                "low": finite(mean.low),
                "high": finite(mean.high),
            }
            for name, share, error, mean in zip(
                names, found.shares, found.share_errors, means, strict=True
            )
        ],
        "gaps": [
            {
                "first": names[gap.groups[0]],
                "second": names[gap.groups[1]],
                **gap_document(scaled_gap(gap, collection.unit)),
            }
            for gap in _compared(found, collection)
        ],
    }


def simulation_table(
    found: Sequence[Simulated], collection: Collection, confidence: float
) -> Table:
    """What repeated measurements found."""
    table = _table("gap", "true", "mean", "deviation", "predicted", "covered", "precision")
    table.caption = (
        f"covered: intervals that hold the true gap, of which {confidence:.4g} should; precision:"
        " half their width; noise from a seed"
    )
    for one in (one for one in found if set(one.groups) <= set(collection.compared)):
        title = f"{collection.groups[one.groups[1]]} - {collection.groups[one.groups[0]]}"
        numbers = (one.true, one.mean, one.deviation, one.expected)
        shown = [_signed(x * collection.unit) for x in numbers[:2]]
        shown += [_number(x * collection.unit) for x in numbers[2:]]
        width = _number(one.width * collection.unit)
        table.add_row(Text(title), *shown, f"{one.covered:.1%}", width)
        if one.open:
            table.caption += f"; {title}: {one.open:.1%} are the whole range"
    return table


def model_table(found: ModelGaps) -> Table:
    """A model's gaps, measured and true."""
    percent = f"{100 * found.confidence:g} % interval"
    table = _table("gap", "measured", percent, "magnitude", "true", "all rows", "Chebyshev")
    for gap in found.gaps:
        rate = gap.rate.replace("_", " ").removesuffix(" rate")
        title = Text(f"{rate}s: {gap.groups[1]} - {gap.groups[0]}")
        measured = gap.measured
        table.add_row(
            title, _signed(measured.value), _interval(*measured.interval),
            _number(measured.magnitude), _signed(gap.true), _signed(gap.pooled),
            _number(measured.chebyshev),
        )  # fmt: skip
    table.caption = (
        f"{found.devices:,} devices, epsilon = {found.epsilon:.4g} each for both rates together;"
        " true: the mean over devices, known as they are simulated; Chebyshev: to either side,"
        " estimated sizes taken for known"
    )
    return table


def _table(*titles: str) -> Table:
    table = Table()
    for i, title in enumerate(titles):
        table.add_column(title, justify="left" if i == 0 else "right", overflow="fold")
    return table


def _interval(low: float, high: float) -> str:
    return f"[{low:.4f}, {high:.4f}]" if math.isfinite(low) else "unknown"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if math.isfinite(value) else "unknown"


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "unknown"
