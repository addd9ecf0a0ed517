"""Guarantees of differential privacy: to whom, of what, against whom, and by which mechanisms."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

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
from synthfair.settings import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, Checked, Line

Unit = Literal["one row", "one user, with all its rows", "one row of one client"]
"""The unit of privacy: whose presence is protected."""

ROUNDING = 1e-6
"""The share by which a claimed delta may lie under the computed one."""

MechanismName = SumName | Literal["tree"]
"""Sums, and the choice of a tree over columns."""

Summed = Literal["reports", "gradients", "teacher's gradients", "student's gradients"]
"""The summands of a mechanism's sums."""

MOST_NUMBERS = 2**32
"""The most numbers that a guarantee with discrete noise covers, in all rounds together."""

# The texts below stand in files and are compared when they are read: never change them.

NOT_COVERED = (
    "What was decided by looking at private data: settings tried before, the schema, that a table"
    " is refused for being empty or not fitting the schema.",
    "The settings, delta among them: they are published, and must not be computed from the table.",
    "Timing, memory and files on the client's machine.",
    "Other releases about the same persons; the client's ledger adds up those that it knows of.",
)
"""Limits of every guarantee."""

SIMULATED = (
    "Rounds run in one process, as here: a simulation, in which that process sees everything."
)
"""A limit of guarantees for rounds with simulated users."""

DEPLOYED = (
    "What a machine sees that computes: whoever can read a site's memory and files sees its rows,"
    " and whoever can read the server's sees what sites send, and noise that the server draws.",
    "When, how fast and with which code a site answers, and how much it sends.",
)
"""The limits that guarantees for rounds between organisations have in its place."""

COUNTS_NOT_COVERED = (
    "Aggregators of the counts that collude: together they see every client's counts.",
    "False counts: a client can send any; only totals that cannot be are refused.",
)
"""Further limits of guarantees that include sums of counts."""


class SumOfShares(Checked):
    """The parameters of sums by shares, in which nobody sees a report, see :mod:`synthfair.secure`.

    Attributes:
        aggregators: that do not collude; each adds noise of its own, enough by itself.
        length: k, of a report.
        step: of the grid to which reports are rounded after they are clipped.
        norm: Euclidean norm that no report exceeds then: clip + step sqrt(k) / 2, or a little more.
        simulated: whether users and aggregators ran in one process, which saw everything.
    """

    aggregators: int = Field(ge=2, le=3)
    length: int = Field(ge=1)
    step: float = Field(gt=0)
    norm: float = Field(gt=0)
    simulated: bool = True


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
        mechanisms: through which real rows were read.
        accountant: by what epsilon and delta follow from them.
        condition: what must be so for it to hold; None where it holds from end to end.
        holds_against: whom; None where everybody sees all of it.
        counts_epsilon: of sums of counts with discrete Laplace noise, about the same rows, which
            the epsilon includes; None without.
        not_covered: what the guarantee does not speak of.

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

    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Unit = "one row"
    relation: Relation
    mechanisms: tuple[Mechanism, ...] = Field(default=(), max_length=100)
    accountant: Line = ""
    condition: Line | None = None
    holds_against: Line | None = None
    counts_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    not_covered: tuple[Line, ...] = Field(default=(), max_length=20)

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
    def for_deployment(self) -> Guarantee:
        """The same guarantee for a training whose server and users are machines of their own."""
        limits = [line for line in self.not_covered if line != SIMULATED]
        fields: dict[str, Any] = self.model_dump() | {"not_covered": (*limits, *DEPLOYED)}
        for mechanism in fields["mechanisms"]:
            if mechanism["shares"]:
                mechanism["shares"]["simulated"] = False
        return Guarantee.model_validate(fields)

    def with_counts(self, epsilon: float) -> Guarantee:
        """Adds counts of the same rows with this (pure) epsilon: the epsilons add up."""
        changes = {
            "epsilon": self.epsilon + epsilon,
            "counts_epsilon": epsilon,
            "holds_against": f"{self.holds_against}; of the counts, any single aggregator, together"
            " with everyone who sees their totals",
            "not_covered": (*self.not_covered, *COUNTS_NOT_COVERED),
        }
        return Guarantee.model_validate(self.model_dump() | changes)

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
        if self.samples or not self.mechanisms:
            return self
        if not re.match(ACCOUNTANT, self.accountant):
            raise ValueError(f"accountant: {self.accountant!r} is none")
        if self.not_covered != NOT_COVERED:
            raise ValueError("not_covered: must say all that is not covered, and nothing else")
        mu = self.mu
        delta = discrete_delta_of(mu, self.epsilon)
        if delta > self.delta * (1 + ROUNDING):
            raise ValueError(
                f"mechanisms of mu = {mu:.4g} have delta = {delta:.3g} at epsilon ="
                f" {self.epsilon:g}, more than the {self.delta:g} claimed"
            )
        return self

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out fields that do not apply."""
        return {
            name: value for name, value in dump(self).items() if value not in (None, "", (), [])
        }
