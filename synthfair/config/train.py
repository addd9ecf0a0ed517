"""Settings of the methods that train in rounds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from synthfair.config.rules import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, STRICT, Seed

Method = Literal["fedavg", "fedsgd", "fpfl", "mmdm", "two_phase"]
"""Federated averaging; a gradient step a round; the same under fairness constraints; the same with
all rows in one place; a fair teacher on each client and a private student of it, averaged."""

_TWO_PHASE = {"rounds": 4, "learning_rate": 2.0, "alpha": 0.01}
"""Other defaults of that method."""


class TrainConfig(BaseModel):
    """Settings of a method that trains in rounds. Symbols of Rodríguez-Gálvez et al. (2021)."""

    model_config = STRICT

    method: Method = Field(
        default="fpfl",
        description="fedavg: local steps, then averaging. fedsgd: one gradient step a round. fpfl:"
        " the same under fairness constraints. mmdm: that with all rows in one place. two_phase: a"
        " fair teacher on each client, and a student of it by noisy steps, averaged in 4 rounds"
        " unless said otherwise.",
    )
    hidden: tuple[int, ...] = Field(
        default=(),
        strict=False,
        max_length=20,
        description="Widths of a network's hidden layers; none for a linear model.",
    )
    group_input: bool = Field(
        default=True, description="Whether the model sees the sensitive attribute."
    )
    rounds: int = Field(default=500, ge=1, lt=2**31, description="Rounds in all.")
    cohort: int | None = Field(
        default=None,
        ge=1,
        description="Users of a round, or, with Poisson sampling, on average; all if not given.",
    )
    sampling: Literal["poisson", "fixed"] = Field(
        default="poisson",
        description="Each user by itself with the same chance, which protects whether a user is"
        " there at all; or cohorts of a fixed number, which protects what a user's rows are.",
    )
    learning_rate: float = Field(
        default=0.5, gt=0, description="eta, of a step; of fedavg, of a local step."
    )
    local_steps: int = Field(
        default=5, ge=1, lt=2**31, description="Steps of a user in a round of fedavg."
    )
    notion: Literal[
        "equal_opportunity", "statistical_parity", "equalized_odds", "accuracy_parity"
    ] = Field(
        default="statistical_parity",
        description="Rates that must not differ between groups: of true positives; of positive"
        " decisions; of true and of false positives; of right decisions.",
    )
    also: tuple[str, ...] = Field(
        default=(),
        strict=False,
        max_length=20,
        description="Further attributes, by column, whose groups are held to the same.",
    )
    alpha: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="Most by which a group's rate may differ from all's; of two_phase, from another"
        " group's (0.01 if not given).",
    )
    multiplier_rate: float = Field(default=0.1, ge=0, description="gamma, of the multipliers.")
    damping: float = Field(default=2.0, ge=0, description="c, of violated constraints.")
    memory: float = Field(
        default=0.9,
        ge=0,
        lt=1,
        description="Share that earlier cohorts' counts keep in each round; 0 as published.",
    )
    count_scale: float = Field(
        default=1.0, gt=0, description="The counts for accuracy are sent times this, then clipped."
    )
    rate_scale: float = Field(
        default=1.0,
        gt=0,
        description="The same for the constraint's sums and gradients; above 1 with less noise.",
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        description="Euclidean norm to which what a user sends is clipped; needed with epsilon.",
    )
    epsilon: float | None = Field(
        default=None,
        ge=LEAST_EPSILON,
        le=LARGEST_EPSILON,
        description="Makes training differentially private, a user with all its rows being"
        " protected. Without it nothing is promised.",
    )
    delta: float | None = Field(
        default=None,
        ge=LEAST_DELTA,
        lt=1,
        description="Goes with epsilon; at most 1 / (number of users), chosen without counting.",
    )
    end_to_end: bool = Field(
        default=False,
        description="two_phase: whether the teachers are private, too. If not, its epsilon is"
        " conditional on them, and nothing is promised from end to end.",
    )
    batch: int = Field(default=500, ge=1, description="two_phase: rows of a batch, on average.")
    local_epochs: float = Field(
        default=5.0, gt=0, description="two_phase: passes over a client's rows in a round."
    )
    teacher_epochs: float = Field(
        default=10.0, gt=0, description="two_phase: passes of the teacher."
    )
    kappa: float = Field(
        default=1.0, ge=0, description="two_phase: first weight of the teacher's unfairness."
    )
    kappa_rate: float = Field(default=0.0, ge=0, description="two_phase: by which that grows.")
    seed: int = Seed

    @model_validator(mode="before")
    @classmethod
    def _other_defaults(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("method") == "two_phase":
            return {**_TWO_PHASE, **data}
        return data

    @model_validator(mode="after")
    def _of_two_phases(self) -> TrainConfig:
        if self.method != "two_phase":
            return self
        if self.notion not in ("statistical_parity", "equalized_odds"):
            raise ValueError("two_phase: notion must be statistical_parity or equalized_odds")
        if self.cohort is not None or self.also:
            raise ValueError("two_phase: all clients take part, and one attribute counts")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        if self.epsilon is not None and self.clip is None:
            raise ValueError("epsilon needs clip: what a user may send must be bounded")
        if self.method == "mmdm" and self.clip is not None:
            raise ValueError("mmdm holds all rows in one place; for clip or epsilon take fpfl")
        if min(self.hidden, default=1) < 1:
            raise ValueError("hidden: widths must be at least 1")
        return self

    @property
    def in_steps(self) -> bool:
        """Whether the server takes steps under constraints."""
        return self.method in ("fpfl", "mmdm")

    @property
    def constrained(self) -> bool:
        """Whether groups are compared."""
        return self.method in ("fpfl", "mmdm", "two_phase")
