"""The settings that all estimators share, and the configurations that they stand for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from synthfair.data.encode import in_pandas
from synthfair.data.schema import MOST, TIMES
from synthfair.errors import InputError, refusal
from synthfair.fairness.penalties import Penalty
from synthfair.settings import Notion, PenaltyName, ServerConfig

Bounds = Mapping[Any, tuple[float, float]] | tuple[Any, Any]
"""A pair (lower, upper) by column; or one for all, of numbers or of arrays [n_features]."""

Categories = Mapping[Any, Any]
"""A list of values by column, for columns that are categories."""

GROUP = "sensitive_features"
"""Column of the sensitive features in the schema."""

SHARED = "max_gap", "penalty", "notion", "temperature", "groups_by"
"""Settings of fairness that a server and a client have alike."""

_Config = TypeVar("_Config", bound=BaseModel)


@dataclass(kw_only=True, eq=False, repr=False)
class FairEstimator(BaseEstimator):
    """Settings of fairness, and of how columns are read: FairLogisticRegression explains them."""

    keeps_shares: ClassVar[bool] = True
    """A flag: the schema may hold the shares of categories, which are statistics of the rows."""

    rho: float = 10.0
    max_gap: float | None = None
    notion: Notion = "statistical_parity"
    pos_label: Any = None
    groups_by: Sequence[Any] | None = None
    penalty: PenaltyName | Penalty | None = None
    temperature: float = 4.0
    bounds: Bounds | None = None
    categories: Categories | None = None
    basis: Literal["spline"] | None = None
    interactions: Sequence[tuple[Any, Any]] = ()

    def _fairness(self, **more: float) -> ServerConfig:
        """Return what is asked of a model. Raises InputError: a setting is not allowed."""
        given = {name: getattr(self, name) for name in SHARED} | more
        if self.groups_by is not None:
            if isinstance(self.groups_by, str):
                raise InputError(f"groups_by = {self.groups_by!r}: must be a list of columns")
            given["groups_by"] = tuple(
                TIMES.join(map(group_column, str(name).split(TIMES))) for name in self.groups_by
            )
        if self.max_gap is None:
            given["rho"] = self.rho
        if self.penalty is None or self._own_penalty:
            del given["penalty"]
        if self._own_penalty and self.groups_by is not None:
            raise InputError("groups_by: needs a penalty by name; a function has its own groups")
        return self._checked(ServerConfig, given)

    @property
    def _own_penalty(self) -> Penalty | None:
        """The penalty, where it is a function."""
        return self.penalty if callable(self.penalty) else None

    def _checked(self, kind: type[_Config], settings: dict[str, Any]) -> _Config:
        try:
            return kind.model_validate(settings)
        except ValidationError as error:
            raise refusal(type(self).__name__, error) from error


def as_pandas(x: Any) -> Any:
    """Return tables of polars and Arrow in pandas, and sparse rows as an array; others as is.

    Raises InputError: sparse rows of more columns than a schema may have.
    """
    if issparse(x) and x.shape[1] <= MOST:
        return x.toarray()
    if issparse(x):
        raise InputError(f"X: {x.shape[1]} columns; at most {MOST} are allowed")
    return in_pandas(x)


def group_column(name: object) -> str:
    """Return the schema's name of one of several sensitive features; X may have that name."""
    return f"{GROUP}: {name}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line of the user: the first that is not of this package."""
    level = 1
    while str(sys._getframe(level).f_globals.get("__name__")).startswith("synthfair."):
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)
