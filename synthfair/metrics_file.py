"""The types of the files of a run: metrics.json, frontier.csv.

Whoever writes a file makes its type, and whoever reads it validates it. metrics.json holds null
where Python holds not-a-number: undefined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from synthfair.errors import InputError, reason, refusal
from synthfair.fairness.intervals import GroupSize, LabelCounts
from synthfair.fairness.metrics import Metric, Rates
from synthfair.fairness.target import Target
from synthfair.files import open_file, read_as, write_json, write_text
from synthfair.postprocess.histogram import Origin, RowWeights
from synthfair.privacy.guarantee import Guarantee, SumOfShares
from synthfair.release.settings import ReleaseConfig, SurrogateConfig
from synthfair.server.settings import ServerConfig
from synthfair.settings import (
    STRICT,
    AsObject,
    Checked,
    Count,
    Line,
    Notion,
    Number,
    ParityNotion,
    Share,
    Undefined,
)

METRICS = "metrics.json"
"""The name of the file in a run's folder."""

FRONTIER = "frontier.csv"
"""The name of the file of accuracy and gap over the weight of a server's penalty."""

MAX_FRONTIER_LINES = 10_000
"""The most lines of a frontier that is read."""

MAX_METRICS_BYTES = 100_000_000
"""The largest file that is read; a metrics.json of a thousand clients is a hundredth of it."""

_Signed = Annotated[float, Field(ge=-1, le=1), *Undefined]
_Gap = Annotated[Metric[_Signed], AsObject]
_Rates = Annotated[Rates, AsObject]
_Amount = Annotated[float, Field(ge=0, le=1e12)]
_Known = Annotated[float, Field(ge=0, le=1)]


class Cost(NamedTuple):
    """The work of users and network.

    Attributes:
        users: number of users.
        rounds: number of rounds in which a cohort took part.
        bytes_sent: size of what all users together sent, as plain numbers; what comes back is not
            counted.
    """

    users: Count
    rounds: Count
    bytes_sent: Count


class Influence(NamedTuple):
    """The influence of one release on the model.

    Attributes:
        scores: root mean square change of the scores (logits, with the logistic loss) over the
            pooled rows, each release counting alike.
        relative: the same over the root mean square of the scores without the release: 0 where it
            changes nothing, 2 where it reverses every decision. What a server caps, as models
            differ in how large their scores are.
        spd: SPD on the test rows with the release minus SPD without it; of more than two groups,
            between those that have rows. Of surrogates without test tables, on the pooled rows of
            the other releases.
        outlier: whether its change of scores stands out from the other releases', see
            :func:`synthfair.server.outlier_bound`.
        alone: whether no other release has rows of some pair of group and label of its own: how far
            it moves the model is then no sign of harm.
        weight: what one of its rows counts, given trusted rows; all together count as much as
            without. Not-a-number without trusted rows.
    """

    scores: Number
    relative: Annotated[float, Field(ge=0, le=1e300), *Undefined]
    spd: _Signed
    outlier: bool
    alone: bool = False
    weight: Annotated[float, Field(ge=0, le=1e12), *Undefined] = math.nan


@dataclass(frozen=True)
class Influences:
    """The influence of every release of a pool.

    Attributes:
        releases: by name; empty for a pool of one, which nothing can be compared with.
        outliers_above: change of scores above which a release is an outlier; not-a-number for
            fewer than three releases.
    """

    releases: dict[Line, Annotated[Influence, AsObject]]
    outliers_above: Number


class _Given(Checked):
    """A part of a file that holds what was given, and no defaults."""

    @model_serializer(mode="wrap")
    def _leave_out(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}


def _absent(empty: Any = None, **rules: Any) -> Any:
    """Return a field that is left out where it is empty."""
    return Field(empty, exclude_if=lambda value: not value, **rules)


class Metrics(_Given):
    """The metrics of a model on some test rows, each with its 95 % interval."""

    accuracy: Annotated[Metric[Share], AsObject]
    spd: _Gap
    selection_ratio: Annotated[Metric[Share], AsObject]
    equal_opportunity_difference: _Gap
    equalized_odds_difference: Annotated[Metric[Share], AsObject]
    covariance: Annotated[Metric[Number], AsObject]


class SplitTable(_Given):
    """The origin of the clients of ``compare``: a table, and how it was split.

    The sha256 is that of a file; a named table has none.
    """

    name: Line
    sensitive: Line | tuple[Line, ...]
    clients: int | None = Field(None, ge=1, lt=2**31)
    skew: Annotated[float, Field(gt=0, le=1e6)] | None = None
    by: Line | None = None
    min_rows: Count = 0
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
    seed: Count = 0
    notion: ParityNotion | None = None
    clients: int | None = None
    rows_per_user: float | None = None
    each_row: bool | None = None
    user_column: Line | None = None


class DecisionSettings(Checked):
    """The settings of the choice of a model's decisions by group."""

    notion: Notion
    alpha: float = Field(ge=0, lt=1)


class GroupingMetrics(Metrics):
    """The metrics of the groups of one sensitive attribute, or of several together."""

    rates: dict[Line, _Rates] = Field(max_length=10_000)


class Exchanges(Checked):
    """The exchanges of sums after surrogates: their number, and the model's convergence."""

    exchanges: Count
    objective: Number
    gradient_norm: Number


class Evaluation(Metrics):
    """A model's metrics on all test rows, with 95 % intervals, and what they rest on.

    Attributes:
        per_client: the metrics of the rows of each table by itself.
        client_gaps: by metric, gaps of the tables with rows enough, whose intervals hold together,
            see :func:`synthfair.fairness.intervals.client_gaps`.
        by_group: rates of each group, over all test rows; small combinations of several attributes
            are merged, see :meth:`synthfair.data.schema.Schema.compared`.
        small_groups: numbers of test rows of groups with too few to measure, overall or of one
            label if known: fewer than :data:`~synthfair.fairness.intervals.MIN_RATE_ROWS`, or than
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
    small_groups: dict[Line, Annotated[GroupSize, AsObject]] = Field({}, max_length=10_000)
    rows: dict[Line, dict[Line, Annotated[LabelCounts, AsObject]]] | None = _absent(
        max_length=100_000
    )
    constant_classifier: dict[Literal["accuracy"], _Known] | None = _absent()
    groupings: dict[Line, GroupingMetrics] = _absent({}, max_length=100)
    groups_by: tuple[Line, ...] = _absent((), max_length=20)
    n_test: Annotated[Count, Field(ge=1)]
    schema_hash: str = Field(pattern="^[0-9a-f]{64}$")
    version: Line
    packages: dict[Line, Line] = Field(max_length=100)
    resamples: Count
    min_group_rows: Count = 0
    seed: Count

    def __repr__(self) -> str:
        """Return the metrics over all rows with their intervals, in a line."""
        metrics = [(name, m) for name, m in self.overall.items() if math.isfinite(m.value)]
        said = (f"{name} {m.value:.3f} [{m.low:.3f}, {m.high:.3f}]" for name, m in metrics)
        return f"Evaluation({self.n_test:,} rows: {', '.join(said)})"

    @property
    def overall(self) -> dict[str, Metric]:
        """Return the metrics over all test rows, by name."""
        return {name: getattr(self, name) for name in Metrics.model_fields}

    @property
    def labelled(self) -> bool:
        """Return whether the test rows have labels."""
        return self.constant_classifier is not None

    @property
    def constant_accuracy(self) -> float:
        """Accuracy of one label for everybody; not-a-number where it is not known."""
        return self.constant_classifier["accuracy"] if self.constant_classifier else math.nan


class MetricsFile(Evaluation):
    """A metrics.json, as a server, ``compare`` or ``train`` writes it.

    Or ``evaluate``, of a model with decisions by group.
    """

    method: Line = "single_shot"
    n_synthetic: Count | None = None
    config: dict[Line, ReleaseConfig] = Field(max_length=100_000)
    table: SplitTable | None = None
    train: RoundSettings | None = _absent()
    decision: DecisionSettings | None = None
    guarantees: dict[Line, Guarantee | None] = _absent({}, max_length=100_000)
    hides_pairs: tuple[Line, ...] = _absent((), max_length=100_000)
    signed_by: dict[Line, Line] = _absent({}, max_length=100_000)
    influence: Influences | None = None
    max_influence: Number | None = None
    max_spd_influence: Number | None = None
    server: ServerConfig | None = None
    asked: Target
    rho: _Amount | None = None
    pooled_gap: _Amount | None = None
    without_penalty: Metrics | None = None
    left_out: tuple[Line, ...] = Field((), max_length=10_000)
    warnings: tuple[Line, ...] = Field((), max_length=1000)
    converged: bool | None
    cost: Annotated[Cost, AsObject] | None = None
    seconds: _Amount | None = None
    weights: RowWeights | None = _absent()
    counts: Origin | None = _absent()
    guarantee: Guarantee | None = _absent()
    secure_sums: SumOfShares | None = _absent()
    refinement: Exchanges | None = _absent()

    @classmethod
    def of(cls, *parts: Evaluation, **fields: Any) -> Self:
        """Return the file of an evaluation and what else is known; the last of a field counts."""
        given = {key: getattr(source, key) for source in parts for key in source.model_fields_set}
        return cls(**given | fields)

    @model_validator(mode="after")
    def _fits_together(self) -> MetricsFile:
        """Refuse a file without settings, and counts of other groups or clients than the rates'."""
        if not self.config and self.train is None and self.decision is None:
            raise ValueError("config: must be there, unless train or decision is")
        kinds = {isinstance(config, SurrogateConfig) for config in self.config.values()}
        if len(kinds) > 1 or (True in kinds and self.server is None):
            raise ValueError("config: must be of fair releases, or of surrogates with server")
        if not {*self.groups_by} <= {*self.groupings}:
            raise ValueError("groups_by: must be some of the groupings")
        if not all({*gaps} <= {*self.per_client} for gaps in self.client_gaps.values()):
            raise ValueError("client_gaps: must be of clients in per_client")
        needed = {client: [*self.by_group] for client in self.per_client}
        if self.rows and {client: [*counts] for client, counts in self.rows.items()} != needed:
            raise ValueError("rows: must be those of each client in per_client, of each group")
        return self


def read_metrics(path: Path) -> MetricsFile:
    """Return a run's metrics.json. Raises InputError: unreadable, or not what a run writes."""
    return read_as(path, MetricsFile, MAX_METRICS_BYTES)


def write_metrics(metrics: Evaluation, path: Path) -> None:
    """Write an evaluation, or a run's metrics.json, whole or not at all."""
    write_json(path, metrics.model_dump(mode="json"))


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

    rho: _Amount
    accuracy: _Known
    gap: Share
    test_accuracy: Share
    test_gap: Share
    converged: _Known


def write_frontier(lines: Sequence[FrontierLine], path: Path) -> None:
    """Write a frontier.csv, whole or not at all."""
    import pandas as pd

    text = pd.DataFrame(lines).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)


def read_frontier(path: Path) -> tuple[FrontierLine, ...]:
    """Return the lines of a frontier.csv.

    Raises:
        InputError: unreadable, other columns, a number out of range, no lines or too many.
    """
    import pandas as pd

    lines = Annotated[tuple[FrontierLine, ...], Field(min_length=1, max_length=MAX_FRONTIER_LINES)]
    try:
        with open_file(path) as file:
            table = pd.read_csv(file, index_col=False, nrows=MAX_FRONTIER_LINES + 1)
        records = tuple(table.to_dict("records"))
        return TypeAdapter(lines, config=STRICT).validate_python(records)
    except ValidationError as error:
        raise refusal(str(path), error) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a frontier: {reason(error)}") from error
