"""The guarantee of a training in rounds: its mechanisms, and the noise that an epsilon takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from synthfair.config import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, STRICT
from synthfair.errors import InputError
from synthfair.privacy.accounting import DISCRETE, LEAST_STEPS, accountant
from synthfair.privacy.mechanism import sensitivity
from synthfair.privacy.sampled import Composition, SampledSums, Sampling, common_noise
from synthfair.privacy.statement import Line, Relation

Unit = Literal["one user, with all its rows", "one row of one client"]
"""Whose presence is protected."""

SIMULATED = (
    "Rounds run in one process, as here: a simulation, in which that process sees everything."
)
"""Of rounds whose users are simulated."""

DEPLOYED = (
    "What a machine sees that computes: whoever can read a site's memory and files sees its rows,"
    " and whoever can read the server's sees what sites send, and noise that the server draws.",
    "When, how fast and with which code a site answers, and how much it sends.",
)
"""Of rounds between organisations, in its place."""

_NEVER_COVERED = (
    "What was decided by looking at private data: settings tried before, the schema, that a table"
    " is refused because nobody is of some group.",
    "Rows kept for testing: metrics are computed of them without noise.",
    "The settings, the numbers of users and of a cohort among them: they are public.",
    "Other releases about the same persons.",
    SIMULATED,
)

_FLOATING = (
    "Attacks on floating-point arithmetic (Mironov 2012), or on a generator of 64 bits of key: the"
    " noise is not discrete, and is drawn by JAX."
)

NOT_COVERED = (
    *_NEVER_COVERED,
    "Who took part in a round: assumed to be known to nobody who sees the sums; whoever knows it"
    " learns more than epsilon says.",
    "A server, or a third party that sums up, that sees single reports: summing them up securely is"
    " assumed.",
    _FLOATING,
)
"""Of guarantees for users, whose reports are summed up before noise is added."""

ROWS_NOT_COVERED = (
    *_NEVER_COVERED,
    "Which rows were in a batch: assumed to be known to nobody but the client; whoever knows it"
    " learns more than epsilon says.",
    "How many rows a client has: the number is public, as it sets the chance of a row to be in a"
    " batch and the client's weight in the mean.",
    _FLOATING,
)
"""Of guarantees for rows of clients, who add noise themselves."""

SHARES_NOT_COVERED = (
    *_NEVER_COVERED,
    "Who was drawn: users who were not must send shares of zeros in that round, so that no"
    " aggregator can tell; whoever knows it learns more than epsilon says.",
    "Aggregators that collude: together they see every user's report.",
    "False inputs, timing, memory and files on the machines of users and aggregators.",
)
"""Of guarantees for users whose reports are summed by shares, with discrete noise."""

COUNTS_NOT_COVERED = (
    "Aggregators of the counts that collude: together they see every client's counts.",
    "False counts: a client can send any; only totals that cannot be are refused.",
)
"""Of guarantees that include sums of counts, besides."""

MOST_NUMBERS = 2**32
"""With discrete noise, in all rounds together."""

ALL_WHO_SEE_SUMS = "everyone who sees the noisy sums, and nothing else of the reports"
"""Of users, whose reports must be summed up securely."""

ALL_WHO_SEE_UPLOADS = (
    "everyone who sees what clients send in the rounds, and the model: the server, and the other"
    " clients"
)
"""Of rows of clients: the noise is in what a client sends, and nobody else needs to add any."""

ALL_BUT_ONE = "any single aggregator, together with everyone who sees the noisy sums"
"""Of sums by shares: its own noise is known to it, and that of another one is enough."""

Summed = Literal["reports", "gradients", "teacher's gradients", "student's gradients"]
"""What sums are of."""


class SumOfShares(BaseModel):
    """How reports are summed so that nobody sees one, see :mod:`synthfair.secure`.

    Attributes:
        aggregators: that do not collude; each adds noise of its own, enough by itself.
        length: k, of a report.
        step: of the grid to which reports are rounded after they are clipped.
        norm: Euclidean norm that no report exceeds then: clip + step sqrt(k) / 2, or a little more.
        simulated: whether users and aggregators ran in one process, which saw everything.
    """

    model_config = STRICT

    aggregators: int = Field(ge=2, le=3)
    length: int = Field(ge=1)
    step: float = Field(gt=0)
    norm: float = Field(gt=0)
    simulated: bool = True


class SampledMechanism(BaseModel):
    """Noisy sums over samples.

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

    model_config = STRICT

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
        """As it is accounted for."""
        return SampledSums(self.population, self.sample, self.times, self.sampling)

    @property
    def multiplier(self) -> float:
        """Noise in units of the sensitivity; of shares, that of one aggregator alone."""
        norm = self.shares.norm if self.shares else self.clip
        return self.noise / sensitivity(norm, self.sums.relation)


class TrainingGuarantee(BaseModel):
    """(epsilon, delta)-differential privacy of a training, and of all that its server saw.

    Attributes:
        epsilon: positive.
        delta: above 0, below 1.
        unit: whose presence is protected.
        relation: which populations are neighbours: one user (or row) more or less, or one
            replaced. As numbers of users, and of a client's rows, are public settings here,
            ``add_or_remove`` reads: the one's part of each sum is there, or is zeroed out and the
            number stays (the "zero-out" relation of Kairouz et al. 2021).
        mechanisms: through which rows were read.
        accountant: by what epsilon and delta follow from them.
        condition: what must be so for it to hold, or None: then it holds from end to end.
        holds_against: whom.
        counts_epsilon: of sums of counts with discrete Laplace noise, about the same rows, which
            the epsilon includes; None without.
        not_covered: what the guarantee does not speak of.
    """

    model_config = STRICT

    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)
    unit: Unit
    relation: Relation
    mechanisms: tuple[SampledMechanism, ...] = Field(min_length=1, max_length=10)
    accountant: Line
    condition: Line | None = None
    holds_against: Line = ALL_WHO_SEE_SUMS
    counts_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    not_covered: tuple[Line, ...] = Field(default=NOT_COVERED, max_length=20)

    @model_validator(mode="after")
    def _one_relation(self) -> TrainingGuarantee:
        if {mechanism.sums.relation for mechanism in self.mechanisms} != {self.relation}:
            raise ValueError(f"mechanisms: must all be of the relation {self.relation!r}")
        return self

    @property
    def composition(self) -> Composition:
        """All mechanisms together."""
        found = Composition.of((m.sums, m.multiplier) for m in self.mechanisms)
        return replace(found, pure=self.counts_epsilon or 0.0)

    @property
    def deployed(self) -> TrainingGuarantee:
        """The same where server and users are machines of their own, and say so."""
        covered = [line for line in self.not_covered if line != SIMULATED]
        found: dict[str, Any] = self.model_dump() | {"not_covered": (*covered, *DEPLOYED)}
        for mechanism in found["mechanisms"]:
            if mechanism["shares"]:
                mechanism["shares"]["simulated"] = False
        return TrainingGuarantee.model_validate(found)

    def with_counts(self, epsilon: float) -> TrainingGuarantee:
        """The same, and counts of the same rows with this epsilon (pure): the epsilons add up."""
        changed = {
            "epsilon": self.epsilon + epsilon,
            "counts_epsilon": epsilon,
            "holds_against": f"{self.holds_against}; of the counts, any single aggregator, together"
            " with everyone who sees their totals",
            "not_covered": (*self.not_covered, *COUNTS_NOT_COVERED),
        }
        return TrainingGuarantee.model_validate(self.model_dump() | changed)


def training_guarantee(
    sums: Mapping[Summed, tuple[SampledSums, float]],
    *,
    epsilon: float,
    delta: float,
    shares: SumOfShares | None = None,
    noise: float | None = None,
    condition: str | None = None,
) -> TrainingGuarantee:
    """A guarantee for users, whose reports are summed, or for the rows of one client.

    Noise is the least that gives it, and that all kinds of sums share in units of their
    sensitivity. A client adds that for its rows itself, before it sends anything: no trusted
    server, and no secure sum, is assumed.

    Args:
        sums: by name, and the norm that a user's, or a row's, part of a sum is clipped to; of
            ``reports`` alone they are about users, else about rows.
        epsilon: positive, of all together.
        delta: above 0, below 1, of all together.
        shares: how reports are summed, if by shares.
        noise: of shares, standard deviation of what each aggregator adds to each entry.
        condition: what must be so for it to hold, if anything.

    Raises:
        InputError: no noise is enough, or that of shares is less than :func:`noise_for_shares`.
    """
    kinds = [kind for kind, _ in sums.values()]
    if shares is None:
        multiplier = common_noise(kinds, epsilon, delta)
    else:
        multiplier = noise_for_shares(kinds[0], epsilon, delta)
    mechanisms = tuple(
        SampledMechanism(
            name=name,
            sampling=kind.sampling,
            population=kind.population,
            sample=kind.sample,
            times=kind.times,
            clip=clip,
            noise=noise or multiplier * sensitivity(clip, kind.relation),
            shares=shares,
        )
        for name, (kind, clip) in sums.items()
    )
    if shares and mechanisms[0].multiplier < multiplier * (1 - 1e-12):
        raise InputError(
            f"noise: {mechanisms[0].multiplier:g} of the sensitivity; must be at least"
            f" {multiplier:g}"
        )
    account = accountant().replace("exact Gaussian composition", "sampled Gaussian mechanisms")
    unit: Unit = "one user, with all its rows"
    against, not_covered = ALL_WHO_SEE_SUMS, NOT_COVERED
    if shares:
        account += ", with discrete noise"
        against, not_covered = ALL_BUT_ONE, SHARES_NOT_COVERED
    elif "reports" not in sums:
        unit = "one row of one client"
        against, not_covered = ALL_WHO_SEE_UPLOADS, ROWS_NOT_COVERED
    return TrainingGuarantee(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        relation=kinds[0].relation,
        mechanisms=mechanisms,
        accountant=account,
        condition=condition,
        holds_against=against,
        not_covered=not_covered,
    )


def noise_for_shares(sums: SampledSums, epsilon: float, delta: float) -> float:
    """Discrete noise for users in rounds, in units of the sensitivity.

    Normal noise for an epsilon and a delta that are smaller by what discrete noise adds, see
    :func:`~synthfair.privacy.accounting.discrete_delta_of`, and one part in 10^9 more. That proof
    bounds the ratio of the chances of whatever is released for given reports, and so for reports of
    a random sample, too.

    Args:
        sums: cohorts and rounds.
        epsilon: positive.
        delta: above 0, below 1.

    Raises:
        InputError: no noise is enough.
    """
    return sums.noise(epsilon - DISCRETE, delta * (1 - DISCRETE)) * (1 + 1e-9)
