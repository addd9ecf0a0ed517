"""What a release says about privacy: its guarantee, if it has one, and what it discloses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from synthfair.config import (
    LARGEST_EPSILON,
    LEAST_DELTA,
    LEAST_EPSILON,
    DistillConfig,
    SurrogateConfig,
)
from synthfair.config.rules import STRICT
from synthfair.data.schema import Schema
from synthfair.privacy.accounting import (
    ACCOUNTANT,
    accountant,
    composed,
    delta_of,
    discrete_delta_of,
    discrete_mu_for,
)
from synthfair.privacy.mechanism import (
    NEVER_OPPOSED,
    GaussianMechanism,
    Relation,
    SumName,
    cell_moments_bound,
    feature_ball,
    grid_for,
    histograms_bound,
    input_ball,
    numeric_features,
    rounded_norm,
    sensitivity,
)

Line = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that is safe to show."""

ROUNDING = 1e-6
"""By which a claimed delta may lie under the computed one, relatively."""

GRID = 2.0**-12
"""To whole multiples of this, as parts of the range that the schema gives a feature, the features
of a fair release are rounded. Public, the same for all: nothing hides in lower bits. On public
tables no decision changed; at 2^-10, one in 4,000 did."""

# The texts below stand in release files and are compared when a file is read: never change them.

RISKS = {
    "copies": "Holds copies of real rows.",
    "near": "Holds more near copies of real rows than chance allows.",
    "labels": "Holds the groups and labels of the real rows, in order.",
    "single": "Points to single real rows more often than chance allows.",
    "transformed": "Holds real rows with columns scaled, shifted, reversed or in another order.",
}
"""What stops a release, in words that say nothing else of the real rows."""

UNSEEN = "To be released whatever the checks found, or did not find."
"""What a release with an epsilon says instead: what was found is not covered by it."""

NOT_COVERED = (
    "What was decided by looking at private data: settings tried before, the schema, whether the"
    " checks before a release let it pass, that a table is refused for being empty or not fitting"
    " the schema.",
    "The settings, delta among them: they are published, and must not be computed from the table.",
    "Timing, memory and files on the client's machine.",
    "Other releases about the same persons; the client's ledger adds up those that it knows of.",
)
"""Of every guarantee."""

NOT_COVERED_CONTINUOUS = (
    *NOT_COVERED[:2],
    "Attacks on floating-point arithmetic (Mironov 2012): the noise is not discrete.",
    *NOT_COVERED[2:],
)
"""Of guarantees of earlier versions, whose mechanisms have no grid."""

SHARES: Mapping[SumName, float] = {"moments": 0.2, "curvature": 0.1, "gradients": 0.7}
"""Of mu^2 that each sum gets. Chosen, like the number of steps, by F on training rows; see
benchmarks/privacy."""

SHARES_WITH_RATES: Mapping[SumName, float] = {
    "moments": 0.1,
    "curvature": 0.1,
    "gradients": 0.4,
    "rates": 0.4,
}
"""The same where the penalty needs the groups' smooth selection rates in every step."""

SHARES_OF_MOMENTS: Mapping[SumName, float] = {"cell_moments": 1.0}
"""Of a surrogate's moments alone."""

SHARES_WITH_HISTOGRAMS: Mapping[SumName, float] = {"cell_moments": 0.5, "histograms": 0.5}
"""Of a surrogate for every penalty. On training rows of Dutch and Law School by race, epsilon = 1,
neither 0.3 nor 0.7 for the moments was better on both."""

ALL_SHARES = (SHARES, SHARES_WITH_RATES, SHARES_OF_MOMENTS, SHARES_WITH_HISTOGRAMS)
"""One for each set of sums that settings can need."""


class Guarantee(BaseModel):
    """(epsilon, delta)-differential privacy of one release.

    For every two neighbouring tables and every set A of files,

        P(file in A | table) <= exp(epsilon) P(file in A | neighbour) + delta.

    Dwork et al. (2006). A guarantee whose mechanisms do not give its epsilon and delta cannot be
    made: it is checked by :func:`delta_of`.

    Attributes:
        epsilon: positive.
        delta: above 0, below 1.
        unit: whose presence is protected.
        relation: which tables are neighbours: ``add_or_remove`` a row, or ``replace`` one.
        mechanisms: through which real rows were read.
        accountant: by what epsilon and delta follow from them.
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
        ['moments', 'curvature', 'gradients']
        >>> round(guarantee.mu, 3)
        0.268
    """

    model_config = STRICT

    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)
    unit: Literal["one row"] = "one row"
    relation: Relation
    mechanisms: tuple[GaussianMechanism, ...] = Field(min_length=1, max_length=100)
    accountant: str = Field(pattern=ACCOUNTANT)
    not_covered: tuple[Line, ...] = Field(default=NOT_COVERED, max_length=20)

    @property
    def mu(self) -> float:
        """Of Gaussian differential privacy, all mechanisms together."""
        return composed(mechanism.mu for mechanism in self.mechanisms)

    def mechanism(self, name: SumName) -> GaussianMechanism:
        """The one of this name, which must be there."""
        return next(m for m in self.mechanisms if m.name == name)

    @property
    def is_discrete(self) -> bool:
        """Whether all noise is; that of earlier versions is not."""
        return all(mechanism.grid for mechanism in self.mechanisms)

    @model_validator(mode="after")
    def _says_what_is_not_covered(self) -> Guarantee:
        if self.not_covered != (NOT_COVERED if self.is_discrete else NOT_COVERED_CONTINUOUS):
            raise ValueError("not_covered: must say all that is not covered, and nothing else")
        return self

    @model_validator(mode="after")
    def _follows_from_the_mechanisms(self) -> Guarantee:
        delta = (discrete_delta_of if self.is_discrete else delta_of)(self.mu, self.epsilon)
        if delta > self.delta * (1 + ROUNDING):
            raise ValueError(
                f"mechanisms of mu = {self.mu:.4g} have delta = {delta:.3g} at epsilon ="
                f" {self.epsilon:g}, more than the {self.delta:g} claimed"
            )
        return self


class PrivacyStatement(BaseModel):
    """What a release claims about privacy, and what it discloses.

    Attributes:
        guarantee: of differential privacy, or None: then nothing is claimed.
        discloses: in words, what a reader of the file learns about the real rows.
        accepted_risks: findings of the checks in front of a release that its sender accepted.
    """

    model_config = STRICT

    guarantee: Guarantee | None = None
    discloses: tuple[Line, ...] = Field(max_length=20)
    accepted_risks: tuple[Line, ...] = Field(default=(), max_length=20)

    @model_validator(mode="after")
    def _risks_are_known(self) -> PrivacyStatement:
        known = {UNSEEN} if self.guarantee else set(RISKS.values())
        if unknown := set(self.accepted_risks) - known:
            raise ValueError(f"accepted_risks: {min(unknown)!r} is none of {sorted(known)}")
        return self


def make_guarantee(
    config: DistillConfig | SurrogateConfig,
    schema: Schema,
    *,
    shares: Mapping[SumName, float] | None = None,
) -> Guarantee:
    """The guarantee of a release, and with it how the budget is spent; no row is needed for it.

    The sum k gets the share p_k of mu^2, where mu is the largest that epsilon and delta allow:

        noise_k = sensitivity_k sqrt(times_k / p_k) / mu,

    so that all mechanisms together are mu-GDP. Dong, Roth and Su (2022), corollary 3.3. The noise
    that this would be without rounding gives the grid; with the grid, rounding counts in the
    sensitivity, and the noise becomes a whole number of steps.

    Args:
        config: of a release of either kind, with epsilon and delta.
        schema: public; its bounds are all that sensitivities rely on.
        shares: of mu^2, by sum, together 1; chosen by what the settings need if not given.

    Raises:
        ValueError: epsilon and delta are not given.
        InputError: dp-accounting is not installed.
    """
    if config.epsilon is None or config.delta is None:
        raise ValueError("a private release needs epsilon and delta")
    bounds, name = term_bounds(config, schema), accountant()
    shares = shares or next(known for known in ALL_SHARES if known.keys() == bounds.keys())
    per_mu = 1 / discrete_mu_for(config.epsilon, config.delta)
    mechanisms = []
    for sum_, (bound, size) in bounds.items():
        times = uses(sum_, config)
        of_noise = per_mu * (times / shares[sum_]) ** 0.5
        grid = grid_for(_largest_change(sum_, bound, config.relation) * of_noise)
        rounded = rounded_norm(sum_, bound, size, grid)
        change = _largest_change(sum_, rounded, config.relation)
        noise = math.ceil(change * of_noise / grid) * grid
        mechanisms.append(
            GaussianMechanism(name=sum_, sensitivity=change, noise=noise, times=times, grid=grid)
        )
    return Guarantee(
        epsilon=config.epsilon,
        delta=config.delta,
        relation=config.relation,
        mechanisms=tuple(mechanisms),
        accountant=name,
    )


class Bound(NamedTuple):
    """Of a row's term in a sum, before it is rounded.

    Attributes:
        norm: to which it is clipped.
        size: how many numbers a row adds to; of sums of b b', how many b has.
    """

    norm: float
    size: int


def term_bounds(config: DistillConfig | SurrogateConfig, schema: Schema) -> dict[SumName, Bound]:
    """Of the term of each row, for each sum that the settings need."""
    d = len(schema.encoded_names)
    if isinstance(config, SurrogateConfig):
        return _surrogate_bounds(config, schema)
    features, inputs = feature_ball(schema).norm_with_one, input_ball(schema).norm_with_one
    k = d + len(schema.groups)
    bounds: dict[SumName, Bound] = {
        "moments": Bound(features, d + 1),
        "curvature": Bound(inputs**2, k),
        "gradients": Bound(config.clip * inputs, k),
    }
    if config.penalty == "selection_rate":
        # (sigma(tau z), d sigma(tau z)/dz (x, 1)), where sigma <= 1 and its slope <= tau/4
        norm = (1.0 + (config.temperature / 4 * features) ** 2) ** 0.5
        bounds["rates"] = Bound(norm, d + 2)
    return bounds


def _surrogate_bounds(config: SurrogateConfig, schema: Schema) -> dict[SumName, Bound]:
    size, numbers = len(schema.encoded_names) + 1, len(numeric_features(schema))
    bounds: dict[SumName, Bound] = {"cell_moments": Bound(cell_moments_bound(schema), size)}
    if numbers and not config.moments_only:  # the means tell all of what is 0 or 1
        bounds["histograms"] = Bound(histograms_bound(schema), numbers)
    return bounds


def uses(name: SumName, config: DistillConfig | SurrogateConfig) -> int:
    """How often a sum is released: in every step, or once."""
    steps = config.private_steps if isinstance(config, DistillConfig) else 1
    return steps if name in ("gradients", "rates") else 1


def _largest_change(name: SumName, bound: float, relation: Relation) -> float:
    return sensitivity(bound, relation, never_opposed=name in NEVER_OPPOSED)


def require_true(
    guarantee: Guarantee, config: DistillConfig | SurrogateConfig, schema: Schema
) -> None:
    """Refuses a guarantee whose mechanisms are not those that settings and schema imply.

    The noise is not compared: that it is enough for epsilon the guarantee has checked itself.

    Raises:
        ValueError: a mechanism is missing or unknown, has another sensitivity, or another number of
            uses.
    """
    bounds = term_bounds(config, schema)
    names = [mechanism.name for mechanism in guarantee.mechanisms]
    if sorted(names) != sorted(bounds):
        raise ValueError(f"mechanisms are {names}; must be {list(bounds)}, each once")
    for found in guarantee.mechanisms:
        norm, size = bounds[found.name]
        if found.grid is not None:
            norm = rounded_norm(found.name, norm, size, found.grid)
        right, times = _largest_change(found.name, norm, config.relation), uses(found.name, config)
        if abs(found.sensitivity / right - 1) > 1e-9 or found.times != times:
            raise ValueError(
                f"mechanism {found.name}: sensitivity {found.sensitivity:g}, used {found.times}"
                f" times; must be {right:g}, {times} times"
            )
