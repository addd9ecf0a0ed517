"""What a report shows: a folder's metrics.json and the clients' histories, validated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from synthfair.client.history import ENDING, History, read_history
from synthfair.config import DistillConfig, TrainConfig
from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.rounds import TrainingGuarantee
from synthfair.privacy.statement import PrivacyStatement

METRICS = "metrics.json"
"""Name of the file in a run's folder."""

GAPS = "gaps.json"
"""Name of the file beside it that ``gap simulate --model`` writes; it may be missing."""

MAX_BYTES = 100_000_000
"""Of a metrics.json that is read; one of a thousand clients is a hundredth of it."""

_Document = TypeVar("_Document", bound=BaseModel)

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable, on one line")
    return text


_Line = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Difference = Annotated[float, Field(ge=-1, le=1)]
_Number = Annotated[float, Field(ge=-1e12, le=1e12)]


class ShareValue(BaseModel):
    """A share with its interval; None where undefined."""

    model_config = _STRICT

    value: _Share | None
    low: _Share | None
    high: _Share | None


class DifferenceValue(BaseModel):
    """A difference of shares with its interval; None where undefined."""

    model_config = _STRICT

    value: _Difference | None
    low: _Difference | None
    high: _Difference | None


class NumberValue(BaseModel):
    """A number with its interval; None where undefined."""

    model_config = _STRICT

    value: _Number | None
    low: _Number | None
    high: _Number | None


class Part(BaseModel):
    """The metrics of some test rows."""

    model_config = _STRICT

    accuracy: ShareValue
    spd: DifferenceValue
    equal_opportunity_difference: DifferenceValue
    equalized_odds_difference: ShareValue
    covariance: NumberValue


class Rates(BaseModel):
    """Rates of one group; None where it has no row that counts."""

    model_config = _STRICT

    n: _Count
    selection_rate: _Share | None
    true_positive_rate: _Share | None
    false_positive_rate: _Share | None
    error_rate: _Share | None


class Split(BaseModel):
    """How ``compare`` made the clients of a public table."""

    model_config = _STRICT

    name: _Line
    sensitive: _Line
    clients: int = Field(ge=1, lt=2**31)


class Moved(BaseModel):
    """How far one release moves the model."""

    model_config = _STRICT

    theta: _Number
    scores: _Number
    relative: Annotated[float, Field(ge=0, le=1e300)]
    accuracy: _Difference
    spd: _Difference | None
    converged: bool
    outlier: bool


class Influence(BaseModel):
    """The same of every release; of a pool of one, there is none."""

    model_config = _STRICT

    outliers_above: _Number | None
    releases: dict[_Line, Moved] = Field(max_length=100_000)


class Cost(BaseModel):
    """What users and network had to do."""

    model_config = _STRICT

    users: _Count
    rounds: _Count
    bytes_sent: _Count


class RoundSettings(TrainConfig):
    """Settings of a method in rounds, and how rows were dealt to users."""

    clients: int | None = None
    rows_per_user: float | None = None
    each_row: bool | None = None
    user_column: _Line | None = None


class Metrics(Part):
    """A metrics.json."""

    per_client: dict[_Line, Part] = Field(min_length=1, max_length=100_000)
    by_group: dict[_Line, Rates] = Field(min_length=1, max_length=1000)
    n_test: Annotated[_Count, Field(ge=1)]
    n_synthetic: _Count | None = None
    config: dict[_Line, DistillConfig] = Field(max_length=100_000)
    train: RoundSettings | None = None
    privacy: dict[_Line, PrivacyStatement] = Field({}, max_length=100_000)
    promise: TrainingGuarantee | None = None
    cost: Cost | None = None
    method: _Line = "single_shot"
    table: Split | None = None
    signed_by: dict[_Line, _Line] = Field({}, max_length=100_000)
    influence: Influence | None = None
    max_influence: _Number | None = None
    converged: bool | None
    seconds: Annotated[float, Field(ge=0, le=1e12)] | None = None
    schema_hash: str = Field(pattern="^[0-9a-f]{64}$")
    version: _Line
    packages: dict[_Line, _Line] = Field(max_length=100)
    resamples: _Count
    seed: _Count

    @model_validator(mode="after")
    def _has_settings(self) -> Metrics:
        if not self.config and self.train is None:
            raise ValueError("config: must be there, unless train is")
        return self


class MeasuredGap(BaseModel):
    """A gap of a rate between two groups, measured over devices that do not tell theirs."""

    model_config = _STRICT

    rate: Literal["true_positive_rate", "false_positive_rate"]
    first: _Line
    second: _Line
    value: _Number | None
    low: _Difference
    high: _Difference
    magnitude: _Number | None
    chebyshev: _Number | None
    true: _Difference | None
    pooled: _Difference | None


class Gaps(BaseModel):
    """A gaps.json."""

    model_config = _STRICT

    format: Literal["synthfair-gaps/1"]
    devices: _Count
    epsilon: Annotated[float, Field(gt=0, le=1e4)]
    mechanism: Literal["randomized", "laplace"]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: _Count
    few: list[_Line] = Field([], max_length=10_000)
    gaps: list[MeasuredGap] = Field(min_length=1, max_length=100_000)


class Result(NamedTuple):
    """One run.

    Attributes:
        folder: it comes from.
        name: of that; fit to name files.
        metrics: from metrics.json.
        histories: of the clients, by name; only where they were kept.
        gaps: measured over devices, where they were.
    """

    folder: Path
    name: str
    metrics: Metrics
    histories: dict[str, History]
    gaps: Gaps | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds there are: of the report, and of the clients."""
        configs = (
            *self.metrics.config.values(),
            *([train] if (train := self.metrics.train) else []),
        )
        return (self.metrics.seed, *(config.seed for config in configs))

    @property
    def settings(self) -> dict[str, tuple[Any, ...]]:
        """The different values that the clients have of each setting; usually one."""
        configs: list[BaseModel] = list(self.metrics.config.values())
        if not configs and self.metrics.train:
            configs = [self.metrics.train]
        values = [config.model_dump() for config in configs]
        return {key: tuple(dict.fromkeys(v[key] for v in values)) for key in values[0]}

    @property
    def epsilon(self) -> float | None:
        """The largest that any user or client was promised; None where one was promised nothing."""
        if self.metrics.promise:
            return None if self.metrics.promise.condition else self.metrics.promise.epsilon
        promises = [statement.guarantee for statement in self.metrics.privacy.values()]
        known = [promise.epsilon for promise in promises if promise]
        return max(known) if known and len(known) == len(promises) else None


def read_results(folders: Sequence[Path]) -> list[Result]:
    """Runs from their folders: ``metrics.json``, every ``*.history.csv``, and ``gaps.json``.

    Raises:
        InputError: a folder is given twice, its metrics.json is unreadable or not what a server
            writes, or a history is not.
    """
    for folder in folders:
        if [other.resolve() for other in folders].count(folder.resolve()) > 1:
            raise InputError(f"{folder}: given more than once; give each run once")
    return [
        Result(folder, name, _metrics(folder / METRICS), read_histories(folder), _gaps(folder))
        for name, folder in zip(run_names(folders), folders, strict=True)
    ]


def run_names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, with as many of those above them as tell them apart."""
    parts = [tuple(map(shown, folder.resolve().parts[1:])) or ("run",) for folder in folders]
    names: list[str] = []
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["-".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{i}" for i, name in enumerate(names)]


def read_histories(folder: Path) -> dict[str, History]:
    """Every ``*.history.csv`` of a folder, by what stands for the star.

    Raises:
        InputError: one is not a history.
    """
    return {
        shown(file.name.removesuffix(ENDING)): read_history(file)
        for file in sorted(folder.glob(f"*{ENDING}"))
    }


def inputs_of(folder: Path) -> list[Path]:
    """The files that are read from a run's folder."""
    return [folder / METRICS, folder / GAPS, *sorted(folder.glob(f"*{ENDING}"))]


def shown(name: str) -> str:
    """A file's name with a mark in place of what cannot be printed."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _gaps(folder: Path) -> Gaps | None:
    path = folder / GAPS
    return _read(path, Gaps) if path.exists() else None


def _metrics(path: Path) -> Metrics:
    return _read(path, Metrics)


def _read(path: Path, kind: type[_Document]) -> _Document:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than the {MAX_BYTES} bytes that are read")
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except ValidationError as error:
        raise refusal(str(path), error) from error
