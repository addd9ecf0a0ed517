"""The one type of gaps.json, of clients' reports or of sites' counts."""

from __future__ import annotations

from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from synthfair.files import read_as, write_json
from synthfair.privacy.guarantee import Guarantee
from synthfair.settings import Checked, Count, Line, Undefined

if TYPE_CHECKING:
    from synthfair.measure.aggregate import ReportSums
    from synthfair.measure.collection import Collection
    from synthfair.measure.estimate import Estimate

GAPS = "gaps.json"
"""The name of the file in a run's folder."""

MAX_BYTES = 100_000_000
"""The largest file that is read."""

_Known = Annotated[float, *Undefined]


class MeasuredGroup(Checked):
    """The estimated share of a group's clients, and their mean value; not-a-number if unknown."""

    name: Line
    share: float
    error: float
    mean: _Known
    low: _Known
    high: _Known


class MeasuredGap(Checked):
    """A gap between two groups, second minus first, with its interval; of a rate where it is one.

    The value is not-a-number where the sizes of the groups are not known well enough.
    """

    rate: Literal["true_positive_rate", "false_positive_rate"] | None = None
    first: Line
    second: Line
    value: _Known
    low: float
    high: float


class GapsFile(Checked):
    """A gaps.json, of clients' reports by ``gap aggregate`` or of sites' counts by the job ``gap``.

    Attributes:
        epsilon: of one report, or of one site's counts.
        confidence: of each interval by itself.
        gaps: of every two groups.
        collection: fingerprint of the public file of the reports.
        reports: number of reports accepted.
        rejected: number of reports rejected, by reason.
        groups: estimated from the reports.
        warnings: where the reports contradict their public file.
        model: sha256 of the model whose decisions sites have counted.
        guarantee: of each site's counts.
        sites: that have counted.
    """

    format: Literal["synthfair-gaps/1"]
    epsilon: Annotated[float, Field(gt=0, le=1e4)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    gaps: list[MeasuredGap] = Field(min_length=1, max_length=200_000)
    collection: Line | None = None
    reports: Count = 0
    rejected: dict[Line, Count] = Field(default={})
    groups: list[MeasuredGroup] = Field(default=[])
    warnings: list[Line] = Field(default=[])
    model: Line | None = None
    guarantee: Guarantee | None = None
    sites: list[Line] = Field(default=[])


def read_gaps(path: Path) -> GapsFile:
    """Return a gaps.json. Raises InputError: unreadable, or not what measures gaps."""
    return read_as(path, GapsFile, MAX_BYTES)


def write_gaps(gaps: GapsFile, path: Path) -> None:
    """Write a gaps.json, whole or not at all."""
    write_json(path, gaps.model_dump(mode="json", exclude_unset=True))


def gaps_of_reports(
    estimate: Estimate, sums: ReportSums, collection: Collection, warnings: list[str]
) -> GapsFile:
    """Return the file of ``gap aggregate``, in the value's unit.

    What is not finite is not-a-number, as are the means of groups that are not compared.
    """
    names, compared, unit = collection.groups, {*collection.compared}, collection.unit
    groups, gaps = [], []
    for i, name in enumerate(names):
        mean, low, high = (
            collection.lower + (1 + float(mean)) * unit if i in compared and isfinite(mean) else nan
            for mean in (estimate.means[i], *estimate.intervals[i])
        )
        share, error = float(estimate.shares[i]), float(estimate.share_errors[i])
        groups.append(
            MeasuredGroup(name=name, share=share, error=error, mean=mean, low=low, high=high)
        )
    for (i, j), value, _, (low, high) in estimate.gaps:
        if {i, j} <= compared:
            ends: Any = {"value": unit * value, "low": unit * low, "high": unit * high}
            gaps.append(MeasuredGap(first=names[i], second=names[j], **ends))
    return GapsFile(
        format="synthfair-gaps/1",
        reports=estimate.reports,
        rejected=sums.rejected,
        confidence=estimate.confidence,
        epsilon=collection.epsilon,
        collection=collection.fingerprint,
        groups=groups,
        gaps=gaps,
        warnings=warnings,
    )
