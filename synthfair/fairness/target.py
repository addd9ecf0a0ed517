"""The fairness target of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from synthfair.settings import STRICT

DEFAULT_FAIR_GAP = 0.1
"""Gap that counts as fair enough where nobody says another. Documentation of fairness libraries
names it as acceptable (Holistic AI's ``statistical_parity``); it is no law and no theorem."""


class Target(BaseModel):
    """A fairness target of a run; metrics.json has it as ``asked``.

    Attributes:
        by: what asks for fairness: the ``weight`` of a penalty (rho, rho_o); the ``tolerance`` of a
            constraint (alpha, eps); the largest ``gap`` that is wanted, for which a weight is
            searched; ``row_weights``, by group and label; or ``nothing``, in a method that has none
            of these.
        amounts: weights, tolerances or gaps of the clients, each once; a tolerance without one
            means that the constraint is left out.
        client_gap: the largest gap of a client that is wanted; None where none is.
        min_ratio: the least ratio of selection rates that is wanted; None where none is.

    Example:
        >>> import synthfair as sf
        >>> asked = sf.DistillConfig(max_gap=0.05).asked
        >>> asked.by, asked.amounts, asked.fairness
        ('gap', (0.05,), True)
        >>> sf.ServerConfig(rho=0.0).asked.fairness
        False
    """

    model_config = STRICT

    by: Literal["weight", "tolerance", "gap", "row_weights", "nothing"]
    amounts: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(), max_length=100_000)
    client_gap: float | None = Field(default=None, gt=0, lt=1)
    min_ratio: float | None = Field(
        default=None, gt=0, lt=1, exclude_if=lambda given: given is None
    )

    @classmethod
    def of(cls, clients: Iterable[Target]) -> Target:
        """Combine several clients' targets; where some want a gap, those gaps."""
        targets = list(clients) or [cls(by="nothing")]
        combined = [target for target in targets if target.by == "gap"] or targets
        amounts = dict.fromkeys(amount for target in combined for amount in target.amounts)
        return cls(by=combined[0].by, amounts=tuple(amounts))

    @property
    def fairness(self) -> bool:
        """Return whether fairness is asked for at all; a weight of 0 asks for none."""
        if self.by == "weight":
            return any(self.amounts)
        return bool(self.amounts) if self.by == "tolerance" else self.by != "nothing"

    @property
    def max_gap(self) -> float | None:
        """Return the largest gap over all rows that is wanted, of several clients' the smallest."""
        return min(self.amounts) if self.by == "gap" and self.amounts else None

    @property
    def client_limit(self) -> float:
        """Return the gap up to which a client counts as treated fairly."""
        return self.client_gap or self.max_gap or DEFAULT_FAIR_GAP

    @model_validator(mode="after")
    def _amounts_fit(self) -> Target:
        others = self.client_gap, self.min_ratio
        if self.by in ("weight", "gap") and not self.amounts and others == (None, None):
            raise ValueError(f"amounts: {self.by} needs at least one")
        if self.by in ("row_weights", "nothing") and self.amounts:
            raise ValueError(f"amounts: {self.by} has none")
        return self


def with_penalty(data: Any) -> Any:
    """Return settings with the penalty of a search, which needs one near the gap itself."""
    limits = "max_gap", "max_client_gap", "min_ratio"
    if isinstance(data, dict) and any(map(data.get, limits)):
        return {"penalty": "selection_rate", **data}
    return data
