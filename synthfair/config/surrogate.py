"""Settings of a client's surrogate: a weighted table that stands in for its rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from synthfair.config.distill import DistillConfig
from synthfair.config.rules import (
    Delta,
    Epsilon,
    Neighbours,
    Relation,
    Seed,
    Settings,
)


class SurrogateConfig(Settings):
    """Settings of a surrogate release. Nothing in it is a choice of fairness: that is the server's.

    A cell is a pair of group and label.

    Raises:
        ValueError: a value out of range, an unknown key, or epsilon without delta.

    Example:
        >>> import synthfair as sf
        >>> sf.SurrogateConfig(epsilon=1.0, delta=1e-6).k_min
        50
    """

    release: Literal["surrogate"] = Field(default="surrogate", description="Kind of the release.")
    k_min: int = Field(
        default=50,
        ge=5,
        description="Least real rows of a sum. Where a pair of group and label has fewer, sums by"
        " label and by group stand in its place, as its own would give a few rows away; in tables"
        " of 60 times as many rows, and of groups or labels with fewer, it is left out. With"
        " epsilon, a pair whose noisy count is below that, or below three times the standard"
        " deviation of its noise, gets the number of rows that its label and its group suggest.",
    )
    epsilon: float | None = Epsilon
    delta: float | None = Delta
    relation: Relation = Neighbours
    seed: int = Seed

    @model_validator(mode="after")
    def _epsilon_and_delta(self) -> SurrogateConfig:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        return self


def _kind(config: Any) -> str:
    """The kind of settings, hostile until validated: all but a surrogate's are a fair release's."""
    release = (
        config.get("release") if isinstance(config, dict) else getattr(config, "release", None)
    )
    return "surrogate" if release == "surrogate" else "fair"


ReleaseConfig = Annotated[
    Annotated[DistillConfig, Tag("fair")] | Annotated[SurrogateConfig, Tag("surrogate")],
    Discriminator(_kind),
]
"""Settings of a release of either kind; those of a fair release do not name it."""
