"""Privately measured gaps, plans and simulations, as tables and as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from synthfair.measure.devices import scaled_gap

if TYPE_CHECKING:
    from synthfair.measure.collection import Collection
    from synthfair.measure.devices import ModelGaps
    from synthfair.measure.estimate import Estimate, Gap
    from synthfair.measure.plan import Plan
    from synthfair.measure.reports import Collected
    from synthfair.measure.simulate import Simulated

FEW = 500
"""Reports below which sums of them are not called normal."""

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
    for j, name in enumerate(collection.groups):
        low, high = (collection.lower + (1 + end) * collection.unit for end in found.intervals[j])
        mean = collection.lower + (1 + found.means[j]) * collection.unit
        share, error = f"{found.shares[j]:.4f}", f"{found.share_errors[j]:.4f}"
        groups.add_row(Text(name), share, error, _number(mean), _interval(low, high))
    refused = sum(collected.rejected.values())
    groups.caption = f"{found.reports:,} reports; {refused:,} refused"
    gaps = _table("gap", "value", percent, "magnitude", "Chebyshev")
    for gap in found.gaps:
        gaps.add_row(*_gap_row(scaled_gap(gap, collection.unit), collection.groups))
    gaps.caption = (
        "second minus first, each interval by itself; magnitude without what noise adds to it;"
        " Chebyshev: to either side"
    )
    return Group(groups, gaps)


def _gap_row(gap: Gap, names: Sequence[str]) -> tuple[str | Text, ...]:
    title = Text(f"{names[gap.groups[1]]} - {names[gap.groups[0]]}")
    return (
        title, _signed(gap.value), _interval(*gap.interval), _number(gap.magnitude),
        _number(gap.chebyshev),
    )  # fmt: skip


def rejected_warnings(collected: Collected) -> list[str]:
    """What was refused and why, a line a reason; and what limits the rest."""
    lines = [
        f"{count:,} reports refused: {why}; the first is {collected.examples[why]}"
        for why, count in collected.rejected.items()
        if count
    ]
    if collected.tally.reports < FEW:
        lines.append(f"fewer than {FEW} reports: too few for intervals that rest on many")
    if collected.ids is None:
        lines.append("no column 'report': repeated reports cannot be found")
    elif collected.ids.lost_share() > 0.001:
        share = collected.ids.lost_share()
        lines.append(
            f"one new id in {1 / share:.0f} is taken for a repeated one: raise --id-memory"
        )
    return lines


def estimate_document(
    found: Estimate, collected: Collected, collection: Collection
) -> dict[str, Any]:
    """The same for a file; what is not finite is null there."""
    gaps = [scaled_gap(gap, collection.unit) for gap in found.gaps]
    return {
        "reports": found.reports,
        "rejected": collected.rejected,
        "confidence": found.confidence,
        "epsilon": collection.epsilon,
        "groups": [
            {"name": name, "share": float(found.shares[j]), "error": float(found.share_errors[j])}
            for j, name in enumerate(collection.groups)
        ],
        "gaps": [
            {
                "first": collection.groups[gap.groups[0]],
                "second": collection.groups[gap.groups[1]],
                "value": _plain(gap.value),
                "low": gap.interval.low,
                "high": gap.interval.high,
                "magnitude": _plain(gap.magnitude),
                "chebyshev": _plain(gap.chebyshev),
            }
            for gap in gaps
        ],
    }


def simulation_table(
    found: Sequence[Simulated], collection: Collection, confidence: float
) -> Table:
    """What repeated measurements found."""
    table = _table("gap", "true", "mean", "deviation", "predicted", "covered", "half-width")
    for one in found:
        title = f"{collection.groups[one.groups[1]]} - {collection.groups[one.groups[0]]}"
        numbers = (one.true, one.mean, one.deviation, one.expected)
        shown = [_signed(x * collection.unit) for x in numbers[:2]]
        shown += [_number(x * collection.unit) for x in numbers[2:]]
        width = _number(one.width * collection.unit)
        table.add_row(Text(title), *shown, f"{one.covered:.1%}", width)
    table.caption = (
        f"covered: intervals that hold the true gap, of which {confidence:.4g} should; noise from a"
        " seed"
    )
    return table


def model_table(found: ModelGaps) -> Table:
    """A model's gaps, measured and true."""
    percent = f"{100 * found.confidence:g} % interval"
    table = _table("gap", "measured", percent, "true", "all rows", "Chebyshev")
    for gap in found.gaps:
        rate = gap.rate.replace("_", " ").removesuffix(" rate")
        title = Text(f"{rate}s: {gap.groups[1]} - {gap.groups[0]}")
        measured = gap.measured
        table.add_row(
            title, _signed(measured.value), _interval(*measured.interval), _signed(gap.true),
            _signed(gap.pooled), _number(measured.chebyshev),
        )  # fmt: skip
    table.caption = (
        f"{found.devices:,} devices, epsilon = {found.epsilon:.4g} each for both rates together;"
        " true: the mean over devices, known as they are simulated"
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


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
