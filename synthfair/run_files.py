"""The files of a run that a report reads: metrics.json, gaps.json and frontier.csv.

Whoever writes such a file makes its type, and whoever reads it validates that type: files are
hostile until then. The named tuples are those with which the rooms compute, so that each type is
there once. Files hold null where they hold not-a-number: undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from synthfair.errors import InputError, reason
from synthfair.fairness.intervals import GroupSize
from synthfair.fairness.metrics import Metric, Rates
from synthfair.files import open_file, read_as, write_json, write_text
from synthfair.postprocess.histogram import LabelCounts, Origin
from synthfair.postprocess.weights import RowWeights
from synthfair.privacy.guarantee import Guarantee, SumOfShares
from synthfair.settings import (
    Checked,
    Line,
    Notion,
    ParityNotion,
    ReleaseConfig,
    ServerConfig,
    SurrogateConfig,
    Target,
)

METRICS, GAPS, FRONTIER = "metrics.json", "gaps.json", "frontier.csv"
"""Names of the files in a run's folder."""

MAX_BYTES = 100_000_000
"""The largest file that is read; a metrics.json of a thousand clients is a hundredth of it."""


class Communication(NamedTuple):
    """The work of users and network.

    Attributes:
        users: that there are.
        rounds: in which a cohort took part.
        bytes_sent: by all users together, as plain numbers; what comes back is not counted.
    """

    users: int
    rounds: int
    bytes_sent: int


class Influence(NamedTuple):
    """The influence of one release on the model.

    Attributes:
        scores: root mean square change of the scores (logits, with the logistic loss) over the
            pooled rows, each release counting alike.
        relative: the same over the root mean square of the scores without the release: 0 where it
            changes nothing, 2 where it reverses every decision. What a server caps, as models
            differ in how large their scores are.
        spd: on the test rows: with the release minus without it; of more than two groups between
            those that have rows. Of surrogates without test tables, on the pooled rows of the
            other releases.
        outlier: whether its change of scores stands out from the other releases', see
            :func:`synthfair.server.outlier_bound`.
        alone: whether no other release has rows of some pair of group and label of its own: how far
            it moves the model is then no sign of harm.
        weight: what one of its rows counts, given trusted rows; all together count as much as
            without. Not-a-number without trusted rows.
    """

    scores: float
    relative: float
    spd: float
    outlier: bool
    alone: bool = False
    weight: float = math.nan


class Influences(NamedTuple):
    """The influence of every release of a pool.

    Attributes:
        releases: by name; empty for a pool of one, which nothing can be compared with.
        outliers_above: change of scores above which a release is an outlier; not-a-number for
            fewer than three releases.
    """

    releases: dict[Line, Influence]
    outliers_above: float


class FrontierLine(NamedTuple):
    """A line of frontier.csv; not-a-number on test rows where there are none.

    Attributes:
        rho: weight of the penalty.
        accuracy: on the pooled rows of the surrogates, by their weights.
        gap: largest difference between the groups' decision rates there.
        test_accuracy: on the test rows.
        test_gap: there.
        converged: 1 where the model's training met its tolerance, else 0.
    """

    rho: float
    accuracy: float
    gap: float
    test_accuracy: float
    test_gap: float
    converged: float


_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Fraction = Annotated[float, Field(ge=0, le=1)]
_Number = Annotated[float, Field(ge=-1e12, le=1e12)]


def _nulls_as_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _nulls_as_nan(value) for key, value in content.items()}
    if isinstance(content, list):  # a tuple, as validation then sees Python's types, not JSON's
        return tuple(map(_nulls_as_nan, content))
    return math.nan if content is None else content


def _nan_as_null(numbers: Any) -> Any:
    if isinstance(numbers, int | float):
        return None if math.isnan(numbers) else numbers
    entries = numbers if isinstance(numbers, dict) else numbers._asdict()
    return {key: _nan_as_null(value) for key, value in entries.items()}


def _numbers(numbers: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a named tuple and of those in it, by field."""
    for name, value in numbers._asdict().items():
        if isinstance(value, dict):
            for inner in value.values():
                yield from _numbers(inner)
        else:
            yield name, value


def _within(low: float, high: float, **others: tuple[float, float]) -> tuple[Any, ...]:
    """A check that a named tuple's numbers, or some fields', lie in a range; or are undefined."""

    def check(numbers: Any) -> Any:
        for name, value in _numbers(numbers):
            least, most = others.get(name, (low, high))
            if not (least <= value <= most or math.isnan(value)):
                raise ValueError(f"{name} must be from {least:g} to {most:g}, and is {value:g}")
        return numbers

    as_null = PlainSerializer(_nan_as_null, dict)
    return BeforeValidator(_nulls_as_nan), AfterValidator(check), as_null


_COUNTS = (0, 2**53)
_Share = Annotated[Metric, *_within(0, 1)]
_Gap = Annotated[Metric, *_within(-1, 1)]
_Covariance = Annotated[Metric, *_within(-1e12, 1e12)]
_Rates = Annotated[Rates, *_within(0, 1, n=_COUNTS)]
_LabelCounts = Annotated[LabelCounts, *_within(*_COUNTS)]
_Size = Annotated[GroupSize, *_within(*_COUNTS)]
_Cost = Annotated[Communication, *_within(*_COUNTS)]
_Influences = Annotated[
    Influences,
    *_within(-1e12, 1e12, relative=(0, 1e300), spd=(-1, 1), weight=(0, 1e12)),
]


class _Given(Checked):
    """A part of a file that holds what was given, and no defaults."""

    @model_serializer(mode="wrap")
    def _leave_out(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}


def _absent(empty: Any = None, **rules: Any) -> Any:
    """A field that is left out where it is empty."""
    return Field(empty, exclude_if=lambda value: not value, **rules)


class Metrics(_Given):
    """The metrics of a model on some test rows, each with its 95 % interval."""

    model_config = ConfigDict(allow_inf_nan=True)  # ranges exclude infinity

    accuracy: _Share
    spd: _Gap
    equal_opportunity_difference: _Gap
    equalized_odds_difference: _Share
    covariance: _Covariance


class SplitTable(_Given):
    """The origin of the clients of ``compare``: a table, and how it was split.

    The sha256 is that of a file; a named table has none.
    """

    name: Line
    sensitive: Line | tuple[Line, ...]
    clients: int | None = Field(None, ge=1, lt=2**31)
    skew: Annotated[float, Field(gt=0, le=1e6)] | None = None
    by: Line | None = None
    min_rows: _Count = 0
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")


_Setting = bool | int | float | Line | tuple[int, ...] | tuple[float, ...] | tuple[Line, ...] | None


class RoundSettings(_Given):
    """The settings of a method in rounds, and how rows were assigned to users.

    Other keys are the method's own.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Line, _Setting] = Field(init=False)  # type: ignore[assignment]

    method: Line = "fpfl"
    seed: _Count = 0
    notion: ParityNotion | None = None
    clients: int | None = None
    rows_per_user: float | None = None
    each_row: bool | None = None
    user_column: Line | None = None


class DecisionSettings(Checked):
    """Settings of the choice of a model's decisions by group."""

    notion: Notion
    alpha: float = Field(ge=0, lt=1)


class GroupingMetrics(Metrics):
    """The metrics of the groups of one sensitive attribute, or of several together."""

    rates: dict[Line, _Rates] = Field(max_length=10_000)


class Exchanges(Checked):
    """Exchanges of sums after surrogates, and what the model reached on all clients' rows."""

    exchanges: _Count
    objective: _Number
    gradient_norm: _Number


class Evaluation(Metrics):
    """A model's metrics on all test rows, with 95 % intervals, and what they rest on.

    Attributes:
        per_client: the metrics of the rows of each table by itself.
        client_gaps: by metric, gaps of the tables with rows enough, whose intervals hold together,
            see :func:`synthfair.fairness.intervals.client_gaps`.
        by_group: rates of each group, over all test rows; small combinations of several attributes
            are merged, see :meth:`synthfair.data.schema.Schema.compared`.
        small_groups: numbers of test rows of groups with too few to measure, overall or of one
            label if known: fewer than :data:`~synthfair.fairness.intervals.FEW_ROWS`, or than
            ``min_group_rows`` if that is more.
        rows: number of rows by label, of each table and group; None without labels.
        constant_classifier: accuracy of the more frequent label for everybody, over all test rows;
            None without labels.
        groupings: metrics by each attribute, and by all of them together, where there are several.
        groups_by: groupings then of which gaps are the largest.
        n_test: number of test rows.
        schema_hash: of the model's schema.
        version: of synthfair.
        packages: versions of other packages on which numbers may depend.
        resamples: behind the interval of the covariance.
        min_group_rows: gaps leave out groups with fewer test rows.
        seed: of the resamples.

    Raises:
        InputError: a value is out of range.
    """

    per_client: dict[Line, Metrics] = Field(min_length=1, max_length=100_000)
    client_gaps: dict[Line, dict[Line, _Gap]] = Field({}, max_length=10)
    by_group: dict[Line, _Rates] = Field(min_length=1, max_length=10_000)
    small_groups: dict[Line, _Size] = Field({}, max_length=10_000)
    rows: dict[Line, dict[Line, _LabelCounts]] | None = _absent(max_length=100_000)
    constant_classifier: dict[Literal["accuracy"], _Fraction] | None = _absent()
    groupings: dict[Line, GroupingMetrics] = _absent({}, max_length=100)
    groups_by: tuple[Line, ...] = _absent((), max_length=20)
    n_test: Annotated[_Count, Field(ge=1)]
    schema_hash: str = Field(pattern="^[0-9a-f]{64}$")
    version: Line
    packages: dict[Line, Line] = Field(max_length=100)
    resamples: _Count
    min_group_rows: _Count = 0
    seed: _Count

    def __repr__(self) -> str:
        """The metrics over all rows with their intervals, in a line."""
        found = [(name, m) for name, m in self.overall.items() if math.isfinite(m.value)]
        said = (f"{name} {m.value:.3f} [{m.low:.3f}, {m.high:.3f}]" for name, m in found)
        return f"Evaluation({self.n_test:,} rows: {', '.join(said)})"

    @property
    def overall(self) -> dict[str, Metric]:
        """The metrics over all test rows, by name."""
        return {name: getattr(self, name) for name in Metrics.model_fields}

    @property
    def labelled(self) -> bool:
        """Whether the test rows have labels."""
        return self.constant_classifier is not None

    @property
    def constant_accuracy(self) -> float:
        """Accuracy of one label for everybody; not-a-number where it is not known."""
        return self.constant_classifier["accuracy"] if self.constant_classifier else math.nan

    @property
    def rates(self) -> dict[str, Rates]:
        """The rates of the groups that are spoken of: of several groupings, those of the first."""
        return self.groupings[self.groups_by[0]].rates if self.groups_by else self.by_group


class MetricsFile(Evaluation):
    """A metrics.json, as a server, ``compare`` or ``train`` writes it.

    Or ``evaluate``, of a model with decisions by group.
    """

    method: Line = "single_shot"
    n_synthetic: _Count | None = None
    config: dict[Line, ReleaseConfig] = Field(max_length=100_000)
    table: SplitTable | None = None
    train: RoundSettings | None = _absent()
    decision: DecisionSettings | None = None
    guarantees: dict[Line, Guarantee | None] = _absent({}, max_length=100_000)
    hides_pairs: tuple[Line, ...] = _absent((), max_length=100_000)
    signed_by: dict[Line, Line] = _absent({}, max_length=100_000)
    influence: _Influences | None = None
    max_influence: _Number | None = None
    max_spd_influence: _Number | None = None
    server: ServerConfig | None = None
    asked: Target
    rho: Annotated[float, Field(ge=0, le=1e12)] | None = None
    without_penalty: Metrics | None = None
    left_out: tuple[Line, ...] = Field((), max_length=10_000)
    warnings: tuple[Line, ...] = Field((), max_length=1000)
    converged: bool | None
    cost: _Cost | None = None
    seconds: Annotated[float, Field(ge=0, le=1e12)] | None = None
    weights: RowWeights | None = _absent()
    counts: Origin | None = _absent()
    guarantee: Guarantee | None = _absent()
    secure_sums: SumOfShares | None = _absent()
    refinement: Exchanges | None = None

    @classmethod
    def of(cls, *parts: Evaluation, **others: Any) -> Self:
        """Return the file of an evaluation and what else is known; the last of a field counts."""
        given = {name: getattr(part, name) for part in parts for name in part.model_fields_set}
        return cls(**given | others)

    @model_validator(mode="after")
    def _fits_together(self) -> MetricsFile:
        """Refuse a file without settings, and counts of other groups or clients than the rates'."""
        if not self.config and self.train is None and self.decision is None:
            raise ValueError("config: must be there, unless train or decision is")
        kinds = {isinstance(config, SurrogateConfig) for config in self.config.values()}
        if len(kinds) > 1 or (True in kinds and self.server is None):
            raise ValueError(
                "config, server: must be of fair releases alone; or of surrogates alone, with"
                " server, where fairness is asked for"
            )
        if not set(self.groups_by) <= set(self.groupings):
            raise ValueError("groups_by: must be some of the groupings")
        groups = list(self.by_group)
        if any(not gaps.keys() <= self.per_client.keys() for gaps in self.client_gaps.values()):
            raise ValueError("client_gaps: must be of clients in per_client")
        if self.rows is not None and (
            list(self.rows) != list(self.per_client)
            or any(list(counts) != groups for counts in self.rows.values())
        ):
            raise ValueError("rows: must be those of each client in per_client, of each group")
        return self


def read_metrics(path: Path) -> MetricsFile:
    """Return a run's metrics.json. Raises InputError: unreadable, or not what a run writes."""
    return read_as(path, MetricsFile, MAX_BYTES)


def write_metrics(metrics: Evaluation, path: Path) -> None:
    """Write an evaluation, or a run's metrics.json, whole or not at all."""
    write_json(path, metrics.model_dump(mode="json"))


_Known = Annotated[
    float, BeforeValidator(_nulls_as_nan), PlainSerializer(_nan_as_null, float | None)
]


class MeasuredGroup(Checked):
    """The estimated share of a group's clients, and their mean value; not-a-number if unknown."""

    name: Line
    share: float
    error: float
    mean: _Known = Field(allow_inf_nan=True)
    low: _Known = Field(allow_inf_nan=True)
    high: _Known = Field(allow_inf_nan=True)


class MeasuredGap(Checked):
    """A gap between two groups, second minus first, with its interval; of a rate where it is one.

    The value is not-a-number where the sizes of the groups are not known well enough.
    """

    rate: Literal["true_positive_rate", "false_positive_rate"] | None = None
    first: Line
    second: Line
    value: _Known = Field(allow_inf_nan=True)
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
    reports: _Count = 0
    rejected: dict[Line, _Count] = Field(default={})
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


def write_frontier(lines: Sequence[FrontierLine], path: Path) -> None:
    """Write a frontier.csv, whole or not at all."""
    import pandas as pd

    text = pd.DataFrame(lines).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)


MOST_LINES = 10_000
"""The most lines of a frontier that is read."""


def read_frontier(path: Path) -> tuple[FrontierLine, ...]:
    """Return the lines of a frontier.csv.

    Raises:
        InputError: unreadable, other columns, a number out of range, no lines or too many.
    """
    import pandas as pd

    try:
        with open_file(path) as file:
            table = pd.read_csv(file, dtype=float, index_col=False, nrows=MOST_LINES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a frontier: {reason(error)}") from error
    columns = FrontierLine._fields
    if tuple(table.columns) != columns or not 0 < len(table) <= MOST_LINES:
        raise InputError(
            f"{path}: not a frontier: needs the columns {', '.join(columns)}, and 1 to"
            f" {MOST_LINES} lines"
        )
    for name, values in table.items():
        most = 1e12 if name == "rho" else 1
        is_undefined = values.isna() & (name in ("gap", "test_gap", "test_accuracy"))
        if len(wrong := values[~(values.between(0, most) | is_undefined)]):
            raise InputError(
                f"{path}: not a frontier: {name} must be from 0 to {most:g}, and is"
                f" {wrong.iloc[0]:g}"
            )
    return tuple(FrontierLine(*line) for line in table.to_numpy().tolist())
