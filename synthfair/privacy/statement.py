"""What a release says about privacy: its guarantee, if it has one, and what it gives away."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from synthfair.config import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON
from synthfair.privacy.accounting import ACCOUNTANT, composed, delta_of

Relation = Literal["add_or_remove", "replace"]
"""Which tables are neighbours: one has a row more than the other; or one row is another."""

Line = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that is safe to show."""

ROUNDING = 1e-6
"""By which a claimed delta may lie under the computed one, relatively."""

RISKS = {
    "copies": "Holds copies of real rows.",
    "near": "Holds more near copies of real rows than chance allows.",
    "labels": "Holds the groups and labels of the real rows, in order.",
}
"""What stops a release, in words that say nothing else of the real rows."""

UNSEEN = "To be released whatever the checks found, or did not find."
"""What a release with an epsilon says instead: what was found is not covered by it."""

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

Sum = Literal["moments", "curvature", "gradients", "rates"]
"""What mechanisms release sums of; see :class:`synthfair.privacy.plan.Plan`."""

NOT_COVERED = (
    "What was decided by looking at private data: settings tried before, the schema, whether the"
    " checks before a release let it pass, that a table is refused for being empty or not fitting"
    " the schema.",
    "The settings, delta among them: they are published, and must not be computed from the table.",
    "Attacks on floating-point arithmetic (Mironov 2012): the noise is not discrete.",
    "Timing, memory and files on the client's machine.",
    "Other releases about the same persons; the client's ledger adds up those that it knows of.",
)
"""Of every guarantee."""


class Mechanism(BaseModel):
    """One Gaussian mechanism.

    Attributes:
        name: what it released.
        sensitivity: Euclidean norm by which a neighbour can change the sum.
        noise: standard deviation of what was added to each entry.
        times: how often it was used, at most.
    """

    model_config = _STRICT

    name: Sum
    sensitivity: float = Field(gt=0)
    noise: float = Field(gt=0)
    times: int = Field(ge=1, le=10_000)

    @property
    def mu(self) -> float:
        """Of Gaussian differential privacy."""
        return math.sqrt(self.times) * self.sensitivity / self.noise


class Guarantee(BaseModel):
    """(epsilon, delta)-differential privacy of one release.

    For every two neighbouring tables and every set A of files, P(file in A) on one is at most
    exp(epsilon) times that on the other, plus delta. Dwork et al. (2006).

    Attributes:
        epsilon: positive.
        delta: above 0, below 1.
        unit: whose presence is protected.
        relation: which tables are neighbours.
        mechanisms: through which real rows were read.
        accountant: by what epsilon and delta follow from them.
        not_covered: what the guarantee does not speak of.
    """

    model_config = _STRICT

    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)
    unit: Literal["one row"] = "one row"
    relation: Relation
    mechanisms: tuple[Mechanism, ...] = Field(min_length=1, max_length=100)
    accountant: str = Field(pattern=ACCOUNTANT)
    not_covered: tuple[Line, ...] = Field(default=NOT_COVERED, max_length=20)

    @property
    def mu(self) -> float:
        """Of Gaussian differential privacy, all mechanisms together."""
        return composed(mechanism.mu for mechanism in self.mechanisms)

    @field_validator("not_covered")
    @classmethod
    def _in_full(cls, said: tuple[str, ...]) -> tuple[str, ...]:
        if said != NOT_COVERED:
            raise ValueError("must say all that is not covered, and nothing else")
        return said

    @model_validator(mode="after")
    def _follows_from_the_mechanisms(self) -> Guarantee:
        delta = delta_of(self.mu, self.epsilon)
        if delta > self.delta * (1 + ROUNDING):
            raise ValueError(
                f"mechanisms of mu = {self.mu:.4g} have delta = {delta:.3g} at epsilon ="
                f" {self.epsilon:g}, more than the {self.delta:g} claimed"
            )
        return self


class PrivacyStatement(BaseModel):
    """What a release claims and what it gives away.

    Attributes:
        guarantee: of differential privacy, or None: then nothing is claimed.
        discloses: in words, what a reader of the file learns about the real rows.
        accepted_risks: findings of the checks in front of a release that its sender accepted.
    """

    model_config = _STRICT

    guarantee: Guarantee | None = None
    discloses: tuple[Line, ...] = Field(max_length=20)
    accepted_risks: tuple[Line, ...] = Field(default=(), max_length=20)

    @model_validator(mode="after")
    def _knows_its_risks(self) -> PrivacyStatement:
        known = {UNSEEN} if self.guarantee else set(RISKS.values())
        if unknown := set(self.accepted_risks) - known:
            raise ValueError(f"accepted_risks: {min(unknown)!r} is none of {sorted(known)}")
        return self
