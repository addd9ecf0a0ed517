"""Guarantees of differential privacy: of whom, against whom, and by which mechanisms.

They are codes and numbers, which :mod:`synthfair.report.privacy_words` says in words.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from synthfair.privacy.accounting import (
    ACCOUNTANT,
    LEAST_STEPS,
    Composition,
    SampledSums,
    Sampling,
    compose,
    discrete_delta_of,
)
from synthfair.privacy.mechanism import (
    ExponentialMechanism,
    GaussianMechanism,
    Relation,
    SumName,
    sensitivity,
)
from synthfair.settings import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, Checked

Unit = Literal["row", "user"]
"""The unit of privacy, whose presence is protected: a row, or a user with all its rows."""

Adversary = Literal["anyone", "sees_sums", "sees_uploads", "all_but_one"]
"""The adversary: anyone; whoever sees the noisy sums, and nothing else of the reports; whoever sees
what clients send in the rounds, and the model; or all aggregators but one, with all who see the
noisy sums."""

Condition = Literal["teacher"]
"""A condition of a guarantee: that a teacher which was trained on the same rows without noise gives
nothing away."""

ROUNDING = 1e-6
"""The share by which a claimed delta may lie under the computed one."""

MechanismName = SumName | Literal["tree"]
"""Sums, and the choice of a tree over columns."""

Summed = Literal["reports", "gradients", "teacher_gradients", "student_gradients"]
"""The summands of a mechanism's sums."""

MOST_NUMBERS = 2**32
"""The most numbers that a guarantee with discrete noise covers, in all rounds together."""


class SumOfShares(Checked):
    """The parameters of sums by shares, in which nobody sees a report, see :mod:`synthfair.secure`.

    Attributes:
        aggregators: that do not collude; each adds noise of its own, enough by itself.
        length: k, of a report.
        step: of the grid to which reports are rounded after they are clipped.
        norm: Euclidean norm that no report exceeds then: clip + step sqrt(k) / 2, or a little more.
    """

    aggregators: int = Field(ge=2, le=3)
    length: int = Field(ge=1)
    step: float = Field(gt=0)
    norm: float = Field(gt=0)


class SampledMechanism(Checked):
    """Repeated noisy sums over random samples.

    Attributes:
        name: what is summed up.
        sampling: how samples are drawn.
        population: number of users, or of a client's rows.
        sample: how many of them are in a sample, or expected to be.
        times: number of sums.
        clip: Euclidean norm that nobody's part of a sum exceeds.
        noise: standard deviation of what is added to each entry of a sum; of shares, by each
            aggregator.
        shares: how sums are made where nobody sees a report, with discrete noise.

    Raises:
        ValueError: of shares, a norm that leaves rounding out, or noise of too few steps of the
            grid to be accounted for as normal noise is.
    """

    name: Summed
    sampling: Sampling
    population: int = Field(ge=1, lt=2**53)
    sample: int = Field(ge=1, lt=2**53)
    times: int = Field(ge=1, lt=2**31)
    clip: float = Field(gt=0)
    noise: float = Field(gt=0)
    shares: SumOfShares | None = None

    @model_validator(mode="after")
    def _is_on_a_fine_grid(self) -> SampledMechanism:
        shares = self.shares
        if shares is None:
            return self
        least = self.clip + shares.step * math.sqrt(shares.length) / 2
        if shares.norm < least * (1 - 1e-12):  # floating point rounds it down
            raise ValueError("norm: must be at least clip + step sqrt(length) / 2")
        if self.noise < LEAST_STEPS * shares.step:
            raise ValueError("noise: must be at least 2^34 steps of the grid")
        if shares.length * self.times >= MOST_NUMBERS:
            raise ValueError("length: of all rounds together must be below 2^32")
        return self

    @property
    def sums(self) -> SampledSums:
        """The sums as the accounting describes them."""
        return SampledSums(self.population, self.sample, self.times, self.sampling)

    @property
    def multiplier(self) -> float:
        """Noise in units of the sensitivity; of shares, that of one aggregator alone."""
        norm = self.shares.norm if self.shares else self.clip
        return self.noise / sensitivity(norm, self.sums.relation)


def _kind(mechanism: Any) -> str:
    """The kind of a mechanism, or of a document that claims to be one."""
    names = mechanism if isinstance(mechanism, dict) else getattr(mechanism, "__dict__", {})
    return "samples" if "sampling" in names else "tree" if names.get("name") == "tree" else "sum"


Mechanism = Annotated[
    Annotated[GaussianMechanism, Tag("sum")]
    | Annotated[ExponentialMechanism, Tag("tree")]
    | Annotated[SampledMechanism, Tag("samples")],
    Discriminator(_kind),
]
"""A private way to read real rows: noisy sums, choices, or noisy sums over samples."""


_Epsilon = Annotated[float, Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)]


class Guarantee(Checked):
    """(epsilon, delta)-differential privacy of all that one booking pays for.

    For every two neighbouring tables and every set A of what may be seen,

        P(seen in A | table) <= exp(epsilon) P(seen in A | neighbour) + delta.

    Dwork et al. (2006). It is of a release; of a training, and all that its server saw; or, with no
    mechanism named and a delta of 0, of counts or reports with noise of Laplace's kind, whose
    epsilon is pure. One whose mechanisms have no samples, and do not give its epsilon and delta,
    cannot be made: it is checked by :func:`synthfair.privacy.accounting.discrete_delta_of`.

    Attributes:
        epsilon: positive.
        delta: above 0, below 1; 0 without mechanisms.
        unit: whose presence is protected.
        relation: which tables, or populations, are neighbours: ``add_or_remove`` one of them, or
            ``replace`` one. Where numbers of users, and of a client's rows, are public settings,
            ``add_or_remove`` reads: the one's part of each sum is there, or is zeroed out and the
            number stays (the "zero-out" relation of Kairouz et al. 2021).
        adversary: against whom it holds.
        condition: what must be so for it to hold; None where it holds from end to end.
        simulated: whether rounds or sums ran in one process, which saw everything.
        mechanisms: through which real rows were read.
        accountant: by which epsilon and delta follow from them, with its version.
        counts_epsilon: of sums of counts with discrete Laplace noise, about the same rows, which
            the epsilon includes; None without. Against aggregators these hold for all but one.
        aggregators: of a sum by shares, each of which adds noise that is enough by itself.
        rows_per_user: of sums of counts about users: at most so many of each count at one client.

    Raises:
        ValueError: the mechanisms give less, or a value is out of range.

    Example:
        >>> import synthfair as sf
        >>> _, schema = sf.load_dataset("loanapp")
        >>> guarantee = sf.privacy.make_guarantee(
        ...     sf.DistillConfig(epsilon=1.0, delta=1e-5), schema
        ... )
        >>> [mechanism.name for mechanism in guarantee.mechanisms]
        ['histograms', 'tree', 'pairs', 'column_moments', 'anchors']
        >>> round(guarantee.mu, 3)
        0.268
    """

    epsilon: _Epsilon
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Unit = "row"
    relation: Relation
    adversary: Adversary = "anyone"
    condition: Condition | None = Field(default=None, exclude_if=not_)
    simulated: bool = Field(default=False, exclude_if=not_)
    mechanisms: tuple[Mechanism, ...] = Field(default=(), max_length=100, exclude_if=not_)
    accountant: str | None = Field(default=None, pattern=ACCOUNTANT, exclude_if=not_)
    counts_epsilon: _Epsilon | None = Field(default=None, exclude_if=not_)
    aggregators: int | None = Field(default=None, ge=2, le=3, exclude_if=not_)
    rows_per_user: int | None = Field(default=None, ge=1, le=10**6, exclude_if=not_)

    @property
    def of_release(self) -> tuple[GaussianMechanism | ExponentialMechanism, ...]:
        """The mechanisms of a release, which have no samples."""
        return tuple(m for m in self.mechanisms if not isinstance(m, SampledMechanism))

    @property
    def samples(self) -> tuple[SampledMechanism, ...]:
        """The mechanisms of a training, which are noisy sums over samples."""
        return tuple(m for m in self.mechanisms if isinstance(m, SampledMechanism))

    def mechanism(self, name: MechanismName) -> Any:
        """Finds the mechanism of this name, which must be there."""
        return next(m for m in self.mechanisms if m.name == name)

    @property
    def composition(self) -> Composition:
        """The composition of all mechanisms."""
        if not self.mechanisms:
            return Composition(pure=self.epsilon)
        samples = Composition()
        if self.samples:
            samples = Composition.of((m.sums, m.multiplier) for m in self.samples)
        mus = samples.mu, *(m.mu for m in self.of_release)
        return replace(samples, mu=compose(mus), pure=self.counts_epsilon or 0.0)

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of all mechanisms without samples together."""
        return self.composition.mu

    @property
    def scale(self) -> Fraction:
        """The scale of discrete Laplace noise on counts, by which the epsilon holds alone."""
        rows = (self.rows_per_user or 1) * (1 if self.relation == "add_or_remove" else 2)
        return rows / Fraction(repr(self.epsilon))

    @model_validator(mode="after")
    def _follows_from_the_mechanisms(self) -> Guarantee:
        if not (self.delta >= LEAST_DELTA if self.mechanisms else self.delta == 0):
            raise ValueError(
                f"delta: must be at least {LEAST_DELTA:g} with mechanisms, and 0 without any"
            )
        if self.samples and self.of_release:
            raise ValueError("mechanisms: must be those of a release, or of a training, not both")
        if {m.sums.relation for m in self.samples} - {self.relation}:
            raise ValueError(f"mechanisms: must all be of the relation {self.relation!r}")
        # That of a release comes from outside, and must follow from its mechanisms.
        if not self.of_release:
            return self
        mu = self.mu
        delta = discrete_delta_of(mu, self.epsilon)
        if delta > self.delta * (1 + ROUNDING):
            raise ValueError(
                f"mechanisms of mu = {mu:.4g} have delta = {delta:.3g} at epsilon ="
                f" {self.epsilon:g}, more than the {self.delta:g} claimed"
            )
        return self
