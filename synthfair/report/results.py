"""What a report shows: a folder's metrics.json and the clients' histories, validated."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthfair.client.history import History, read_history
from synthfair.config import DistillConfig
from synthfair.errors import InputError, reason, refusal

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Value(BaseModel):
    """A metric with its interval; None where undefined."""

    model_config = _STRICT

    value: float | None
    low: float | None
    high: float | None


class Part(BaseModel):
    """The metrics of some test rows."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    accuracy: Value
    spd: Value
    equal_opportunity_difference: Value
    equalized_odds_difference: Value
    covariance: Value


class Rates(BaseModel):
    """Rates of one group; None where it has no row that counts."""

    model_config = _STRICT

    n: int = Field(ge=0)
    selection_rate: float | None
    true_positive_rate: float | None
    false_positive_rate: float | None
    error_rate: float | None


class Metrics(Part):
    """A metrics.json."""

    model_config = _STRICT

    per_client: dict[str, Part]
    by_group: dict[str, Rates]
    n_test: int = Field(ge=1)
    n_synthetic: int | None = Field(default=None, ge=1)
    config: dict[str, DistillConfig]
    method: str = "single_shot"
    converged: bool
    seconds: float | None = None
    schema_hash: str
    version: str
    seed: int


class Result(NamedTuple):
    """One run.

    Attributes:
        name: of its folder.
        metrics: from metrics.json.
        histories: of the clients, by name; only where they were kept.
    """

    name: str
    metrics: Metrics
    histories: dict[str, History]

    @property
    def rho_o(self) -> float | None:
        """Weight of the penalty, if all clients had the same."""
        weights = {config.rho_o for config in self.metrics.config.values()}
        return weights.pop() if len(weights) == 1 else None


def read_result(folder: Path) -> Result:
    """A run from its folder: ``metrics.json``, and every ``*.history.csv``.

    Raises:
        InputError: metrics.json is unreadable or not what a server writes, or a history is not.
    """
    path = folder / "metrics.json"
    try:
        metrics = Metrics.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except ValidationError as error:
        raise refusal(str(path), error) from error
    histories = {
        file.name.removesuffix(".history.csv"): read_history(file)
        for file in sorted(folder.glob("*.history.csv"))
    }
    return Result(folder.resolve().name, metrics, histories)
