"""Guarantees of differential privacy: unit, relation, adversary, mechanisms.

They are codes and numbers, which :mod:`synthfair.report.privacy_words` says in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from synthfair.data.schema import Numeric, Schema
from synthfair.errors import InputError
from synthfair.privacy.accounting import (
    ACCOUNTANT,
    DISCRETE_EXCESS,
    MIN_NOISE_STEPS,
    Composition,
    SampledSums,
    Sampling,
    accountant,
    common_noise,
    discrete_delta_of,
    discrete_mu_for,
    epsilon_of_choice,
)
from synthfair.privacy.mechanism import (
    NEVER_OPPOSED,
    SCORE_GRID,
    ExponentialMechanism,
    GaussianMechanism,
    Relation,
    SumName,
    grid_for,
    rounded_norm,
    sensitivity,
)
from synthfair.release.settings import ReleaseSettings
from synthfair.settings import MIN_GUARANTEE_DELTA, Checked, Epsilon

Unit = Literal["row", "user"]
"""The unit of privacy, whose presence is protected: a row, or a user with all its rows."""

Adversary = Literal["anyone", "sees_sums", "sees_uploads", "all_but_one"]
"""The adversary: anyone; whoever sees the noisy sums, and nothing else of the reports; whoever sees
what clients send in the rounds, and the model; or all aggregators but one, with all who see the
noisy sums."""

Condition = Literal["teacher"]
"""A condition of a guarantee: that a teacher which was trained on the same rows without noise gives
nothing away."""

DELTA_TOLERANCE = 1e-6
"""The share by which a claimed delta may lie under the computed one."""

MechanismName = SumName | Literal["tree"]
"""Sums, and the choice of a tree over columns."""

Summed = Literal["reports", "gradients", "teacher_gradients", "student_gradients"]
"""The summands of a mechanism's sums."""

MAX_NOISY_NUMBERS = 2**32
"""The most numbers that a guarantee with discrete noise covers, in all rounds together."""


FEATURE_GRID = 2.0**-12
"""The grid to which the features of a fair release are rounded, as a part of the range that the
schema gives a feature. It is public, and the same for all: nothing hides in lower bits. On public
tables no decision changed; at 2^-10, one in 4,000 did."""

BUDGET_SHARES: Mapping[MechanismName, float] = {
    "histograms": 0.175,
    "tree": 0.05,
    "tables": 0.05,
    "pairs": 0.275,
    "column_moments": 0.2,
    "anchors": 0.3,
}
"""Shares of mu^2, in proportion: the others share what is absent. "tables" stand in for the tree
where many clients choose one."""

PRIVATE_PROBLEMS = 10
"""Fair problems at whose models private records have smooth rates, two each."""


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
    """A mechanism of repeated noisy sums over random samples.

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
        if (shares := self.shares) is None:
            return self
        least = self.clip + shares.step * math.sqrt(shares.length) / 2
        if shares.norm < least * (1 - 1e-12):  # floating point rounds it down
            raise ValueError("norm: must be at least clip + step sqrt(length) / 2")
        if self.noise < MIN_NOISE_STEPS * shares.step:
            raise ValueError("noise: must be at least 2^34 steps of the grid")
        if shares.length * self.times >= MAX_NOISY_NUMBERS:
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


Mechanism = Annotated[
    GaussianMechanism | ExponentialMechanism | SampledMechanism, Field(discriminator="name")
]
"""A private way to read real rows: noisy sums, choices, or noisy sums over samples."""


class Guarantee(Checked):
    """A guarantee of (epsilon, delta)-differential privacy of all that one booking pays for.

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

    epsilon: Epsilon
    delta: float = Field(default=0.0, ge=0, lt=1)
    unit: Unit = "row"
    relation: Relation
    adversary: Adversary = "anyone"
    condition: Condition | None = Field(default=None, exclude_if=not_)
    simulated: bool = Field(default=False, exclude_if=not_)
    mechanisms: tuple[Mechanism, ...] = Field(default=(), max_length=100, exclude_if=not_)
    accountant: str | None = Field(default=None, pattern=ACCOUNTANT, exclude_if=not_)
    counts_epsilon: Epsilon | None = Field(default=None, exclude_if=not_)
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
        """Return the mechanism of this name, which must be there."""
        return next(m for m in self.mechanisms if m.name == name)

    @property
    def composition(self) -> Composition:
        """The composition of all mechanisms."""
        pure = self.counts_epsilon or 0.0 if self.mechanisms else self.epsilon
        if not self.samples:
            return Composition(math.hypot(*(m.mu for m in self.of_release)), pure=pure)
        return replace(Composition.of((m.sums, m.multiplier) for m in self.samples), pure=pure)

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
        if not (self.delta >= MIN_GUARANTEE_DELTA if self.mechanisms else self.delta == 0):
            raise ValueError(
                f"delta: must be at least {MIN_GUARANTEE_DELTA:g} with mechanisms, and else 0"
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
        if delta > self.delta * (1 + DELTA_TOLERANCE):
            raise ValueError(
                f"mu = {mu:.4g}: delta = {delta:.3g}, more than the {self.delta:g} claimed"
            )
        return self


def make_guarantee(
    config: ReleaseSettings, schema: Schema, *, common_tree: bool = False
) -> Guarantee:
    """Return the guarantee of a release, and how its budget is spent; no row is needed for it.

    It is that of private records, which a surrogate holds, and a fair release is distilled from.

    Mechanism k gets the share p_k of mu^2, where mu is the largest that epsilon and delta allow:

        noise_k = sensitivity_k / (mu sqrt(p_k)),

    so that all mechanisms together are mu-GDP. Dong, Roth and Su (2022), corollary 3.3. The noise
    that this would be without rounding gives the grid; with the grid, rounding counts in the
    sensitivity, and the noise becomes a whole number of steps. Choices get the epsilon of
    :func:`synthfair.privacy.accounting.epsilon_of_choice`.

    Args:
        config: of a release of either kind, with epsilon and delta.
        schema: public; its bounds are all that sensitivities rely on.
        common_tree: whether the tree over columns must be one of many clients, chosen from a sum of
            all their tables of two columns: then these tables are released, too.

    Raises:
        ValueError: epsilon and delta are not given.
    """
    if config.epsilon is None or config.delta is None:
        raise ValueError("a private release needs epsilon and delta")
    # What each mechanism bounds, and which part of the budget it gets.
    bounds, relation = term_bounds(schema, common_tree=common_tree), config.relation
    mu, mechanisms = discrete_mu_for(config.epsilon, config.delta), []
    per_mu = sum(BUDGET_SHARES[name] for name in bounds) ** 0.5 / mu
    for name, bound in bounds.items():
        of_noise = per_mu / BUDGET_SHARES[name] ** 0.5  # a unit of sensitivity
        if name == "tree":
            times, change = len(schema.features) - 1, largest_change(name, bound, relation)
            choice = {"epsilon": epsilon_of_choice(1 / (of_noise * times**0.5)), "times": times}
            mechanisms.append(ExponentialMechanism(name=name, sensitivity=change, **choice))
            continue
        # The noise without rounding gives the grid, and the grid the noise with rounding.
        grid = grid_for(largest_change(name, bound, relation) * of_noise)
        change = largest_change(name, bound, relation, grid)
        noise = math.ceil(change * of_noise / grid) * grid
        mechanisms.append(GaussianMechanism(name=name, sensitivity=change, noise=noise, grid=grid))
    return Guarantee(
        epsilon=config.epsilon,
        delta=config.delta,
        relation=relation,
        mechanisms=tuple(mechanisms),
        accountant=accountant(),
    )


def term_bounds(
    schema: Schema, *, common_tree: bool = False
) -> dict[MechanismName, tuple[float, int]]:
    """Return bounds of each row's term, for each sum and score.

    A bound is the norm to which a term is clipped before it is rounded, and how many numbers a row
    adds to.

    The sums are taken by cell, a pair of group and label. A row is in one cell alone. There it
    adds, with p columns and m numeric ones among them,

    - histograms: 1 at one level of each column: norm sqrt(p);
    - tree: at most 1 to the score of two columns, the sum over cells and pairs of levels of
      |number of rows - expected|, as one number changes by 1 and what is expected by nothing: it is
      a function of the noisy histograms, which are public by then. (It would change, and the bound
      were 2, if it were computed from the rows.) A row in place of another changes two numbers;
    - pairs: 1 at one pair of levels for each of the p - 1 edges: norm sqrt(p - 1); tables likewise
      for all p (p - 1) / 2 pairs of columns;
    - column_moments: z_i z_j for i <= j, and v_i, all z and v being in [-1/2, 1/2]: with m (m + 1)
      / 2 squares of at most 1/16 and m of at most 1/4, the norm is sqrt(m (m + 1) / 32 + m / 4);
    - anchors: 2 Q numbers in [-1/2, 1/2]: norm sqrt(2 Q) / 2.

    Each norm is attained. Counts are never negative, so that a row in place of another changes
    sums of them by sqrt(2) times the norm.
    """
    p, m = len(schema.features), sum(isinstance(c, Numeric) for c in schema.features.values())
    pairs, rates = p * (p - 1) // 2, 2 * PRIVATE_PROBLEMS
    bounds: dict[MechanismName, tuple[float, int]] = {"histograms": (p**0.5, p)}
    if p > 1:
        bounds |= {"tables": (pairs**0.5, pairs)} if common_tree else {"tree": (1.0, 1)}
        bounds |= {"pairs": ((p - 1) ** 0.5, p - 1)}
    if m:
        products = m * (m + 1) // 2
        bounds["column_moments"] = (products / 16 + m / 4) ** 0.5, products + m
    bounds["anchors"] = rates**0.5 / 2, rates
    return bounds


def largest_change(
    name: MechanismName, bound: tuple[float, int], relation: Relation, grid: float | None = None
) -> float:
    """Return the sensitivity of a sum whose terms have this bound, or of the scores of a tree.

    Rounding to the grid of a sum counts, if it is given; in a score always, with a step for how it
    was rounded and computed.
    """
    if name == "tree":
        return sensitivity(1.0, relation) + SCORE_GRID
    norm = rounded_norm(*bound, grid) if grid else bound[0]
    return sensitivity(norm, relation, never_opposed=name in NEVER_OPPOSED)


def require_true(guarantee: Guarantee, config: ReleaseSettings, schema: Schema) -> None:
    """Refuse a guarantee that is not what settings and schema imply.

    The noise is not compared, nor the epsilon of choices: that they are enough for epsilon the
    guarantee has checked itself.

    Raises:
        ValueError: it is of no release, or of other settings; or a mechanism is missing or unknown,
            has another sensitivity, or another number of uses.
    """
    shared = guarantee.adversary == "all_but_one"  # of many clients' rows, by sums of shares
    right = make_guarantee(config, schema, common_tree=shared)
    chosen = "mechanisms", "accountant", *("adversary", "aggregators", "simulated") * shared
    free = {name: getattr(right, name) for name in chosen}
    if guarantee.model_copy(update=free) != right:
        raise ValueError("must have the epsilon, delta and relation of the settings, for one row")
    names, bounds = [m.name for m in guarantee.mechanisms], term_bounds(schema, common_tree=shared)
    if names != [*bounds]:
        raise ValueError(f"mechanisms are {names}; must be {[*bounds]}")
    for mechanism in guarantee.of_release:
        name, edges = mechanism.name, len(schema.features) - 1
        change = largest_change(name, bounds[name], config.relation, mechanism.grid)
        is_right = abs(mechanism.sensitivity / change - 1) <= 1e-12
        if not is_right or getattr(mechanism, "times", edges) != edges:
            wrong = f"sensitivity {mechanism.sensitivity:g}; must be {change:g}"
            raise ValueError(f"mechanism {name}: {wrong}, for {edges} choices if it chooses")


def training_guarantee(
    sums: Mapping[Summed, tuple[SampledSums, float]],
    *,
    epsilon: float,
    delta: float,
    shares: SumOfShares | None = None,
    noise: float | None = None,
    condition: Condition | None = None,
) -> Guarantee:
    """Return a guarantee for users, whose reports are summed, or for the rows of one client.

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
    # The noise, in units of the sensitivity, that all sums share.
    kinds = tuple(kind for kind, _ in sums.values())
    multiplier = (noise_for_shares if shares else common_noise)(kinds, epsilon, delta)
    mechanisms = tuple(
        SampledMechanism(
            name=name,
            **asdict(kind),
            clip=clip,
            noise=noise or multiplier * sensitivity(clip, kind.relation),
            shares=shares,
        )
        for name, (kind, clip) in sums.items()
    )
    given = mechanisms[0].multiplier
    if shares and given < multiplier * (1 - 1e-12):
        raise InputError(f"noise: {given:g} of the sensitivity; must be at least {multiplier:g}")
    of_users = "reports" in sums
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit="user" if of_users else "row",
        relation=kinds[0].relation,
        adversary="all_but_one" if shares else "sees_sums" if of_users else "sees_uploads",
        condition=condition,
        simulated=True,
        mechanisms=mechanisms,
        accountant=accountant(),
    )


def noise_for_shares(kinds: tuple[SampledSums, ...], epsilon: float, delta: float) -> float:
    """Return the discrete noise for users in rounds, in units of the sensitivity.

    Normal noise for an epsilon and a delta that are smaller by what discrete noise adds, see
    :func:`~synthfair.privacy.accounting.discrete_delta_of`, and one part in 10^9 more. That proof
    bounds the ratio of the chances of whatever is released for given reports, and so for reports of
    a random sample, too.

    Args:
        kinds: of sums, as for :func:`~synthfair.privacy.accounting.common_noise`.
        epsilon: positive.
        delta: above 0, below 1.

    Raises:
        InputError: no noise is enough.
    """
    noise = common_noise(kinds, epsilon - DISCRETE_EXCESS, delta * (1 - DISCRETE_EXCESS))
    return noise * (1 + 1e-9)
