"""The privacy statement of a release: its guarantee, if it has one, and what it discloses."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import BaseModel, Field, model_validator

from synthfair.config.client_settings import DistillConfig, SurrogateConfig
from synthfair.config.rules import STRICT
from synthfair.data.schema import Numeric, Schema
from synthfair.privacy.accounting import accountant, discrete_mu_for, epsilon_of_choice
from synthfair.privacy.guarantee import NOT_COVERED, Guarantee, Line, MechanismName
from synthfair.privacy.mechanism import (
    NEVER_OPPOSED,
    SCORE_GRID,
    ExponentialMechanism,
    GaussianMechanism,
    Relation,
    feature_ball,
    grid_for,
    input_ball,
    rounded_norm,
    sensitivity,
)

GRID = 2.0**-12
"""The grid to which the features of a fair release are rounded, as a part of the range that the
schema gives a feature. It is public, and the same for all: nothing hides in lower bits. On public
tables no decision changed; at 2^-10, one in 4,000 did."""

# The texts below stand in release files and are compared when a file is read: never change them.

RISKS = {
    "copies": "Holds copies of real rows.",
    "near": "Holds more near copies of real rows than chance allows.",
    "labels": "Holds the groups or labels of the real rows, in order.",
    "single": "Points to single real rows more often than chance allows.",
}
"""Reasons to stop a release, which say nothing else of the real rows."""

UNSEEN = "To be released whatever the checks found, or did not find."
"""The accepted risk of a release with an epsilon, which does not cover what checks find."""


SHARES: Mapping[MechanismName, float] = {"moments": 0.2, "curvature": 0.1, "gradients": 0.7}
"""Shares of mu^2 by sum. They were chosen, like the number of steps, by F on training rows; see
benchmarks/privacy."""

SHARES_WITH_RATES: Mapping[MechanismName, float] = {
    "moments": 0.1,
    "curvature": 0.1,
    "gradients": 0.4,
    "rates": 0.4,
}
"""Shares of mu^2 where the penalty needs the groups' smooth selection rates in every step."""

SHARES_OF_SURROGATES: Mapping[MechanismName, float] = {
    "histograms": 0.175,
    "tree": 0.05,
    "tables": 0.05,
    "pairs": 0.275,
    "column_moments": 0.2,
    "anchors": 0.3,
}
"""Shares of mu^2 of a surrogate, in proportion: the others share what is absent. "tables" stand in
for the tree where many clients choose one."""

PRIVATE_PROBLEMS = 10
"""Fair problems at whose models a private surrogate has smooth rates, two each."""


class PrivacyStatement(BaseModel):
    """The claims of a release about privacy, and its disclosures.

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
        names = {UNSEEN} if self.guarantee else set(RISKS.values())
        if unknown := set(self.accepted_risks) - names:
            raise ValueError(f"accepted_risks: {min(unknown)!r} is none of {sorted(names)}")
        return self


def make_guarantee(
    config: DistillConfig | SurrogateConfig, schema: Schema, *, common_tree: bool = False
) -> Guarantee:
    """The guarantee of a release, and with it how the budget is spent; no row is needed for it.

    Mechanism k gets the share p_k of mu^2, where mu is the largest that epsilon and delta allow:

        noise_k = sensitivity_k sqrt(times_k / p_k) / mu,

    so that all mechanisms together are mu-GDP. Dong, Roth and Su (2022), corollary 3.3. The noise
    that this would be without rounding gives the grid; with the grid, rounding counts in the
    sensitivity, and the noise becomes a whole number of steps. Choices get the epsilon of
    :func:`synthfair.privacy.accounting.epsilon_of_choice`.

    Args:
        config: of a release of either kind, with epsilon and delta.
        schema: public; its bounds are all that sensitivities rely on.
        common_tree: whether a surrogate's tree must be one of many clients, chosen from a sum of
            all their tables of two columns: then these tables are released, too.

    Raises:
        ValueError: epsilon and delta are not given.
        InputError: dp-accounting is not installed.
    """
    if config.epsilon is None or config.delta is None:
        raise ValueError("a private release needs epsilon and delta")
    # What each mechanism bounds, and which part of the budget it gets.
    bounds, account = term_bounds(config, schema, common_tree=common_tree), accountant()
    relation = config.relation
    if isinstance(config, SurrogateConfig):
        shares = SHARES_OF_SURROGATES
    else:
        shares = SHARES_WITH_RATES if "rates" in bounds else SHARES
    mu = discrete_mu_for(config.epsilon, config.delta)
    per_mu = sum(shares[one] for one in bounds) ** 0.5 / mu
    mechanisms = []
    for name, bound in bounds.items():
        times = uses(name, config, schema)
        of_noise = per_mu * (times / shares[name]) ** 0.5  # a unit of sensitivity
        if name == "tree":
            change, epsilon = largest_change(name, bound, relation), epsilon_of_choice(1 / of_noise)
            mechanisms.append(
                ExponentialMechanism(name=name, sensitivity=change, epsilon=epsilon, times=times)
            )
            continue
        # The noise without rounding gives the grid, and the grid the noise with rounding.
        grid = grid_for(largest_change(name, bound, relation) * of_noise)
        change = largest_change(name, bound, relation, grid)
        noise = math.ceil(change * of_noise / grid) * grid
        mechanisms.append(
            GaussianMechanism(name=name, sensitivity=change, noise=noise, times=times, grid=grid)
        )
    return Guarantee(
        epsilon=config.epsilon,
        delta=config.delta,
        relation=relation,
        mechanisms=tuple(mechanisms),
        accountant=account,
        not_covered=NOT_COVERED,
    )


def term_bounds(
    config: DistillConfig | SurrogateConfig, schema: Schema, *, common_tree: bool = False
) -> dict[MechanismName, tuple[float, int]]:
    """Bounds of each row's term, for each sum and score that the settings need.

    A bound is the norm to which a term is clipped before it is rounded, and how many numbers a row
    adds to; of sums of b b', how many b has.

    The sums of a surrogate are taken by cell, a pair of group and label. A row is in one cell
    alone. There it adds, with p columns and m numeric ones among them,

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
    bounds: dict[MechanismName, tuple[float, int]]
    if isinstance(config, DistillConfig):
        d = len(schema.encoded_names)
        ball = input_ball(schema, group_input=config.group_input)
        k, inputs = len(ball.centre) + 1, ball.norm_with_one
        features = feature_ball(schema).norm_with_one
        bounds = {
            "moments": (features, d + 1),
            "curvature": (inputs**2, k),
            "gradients": (config.clip * inputs, k),
        }
        if config.penalty == "selection_rate":
            # (sigma(tau z), d sigma(tau z)/dz (x, 1)), where sigma <= 1 and its slope <= tau/4
            norm = (1.0 + (config.temperature / 4 * features) ** 2) ** 0.5
            bounds["rates"] = norm, d + 2
        return bounds
    p, m = len(schema.features), sum(isinstance(c, Numeric) for c in schema.features.values())
    pairs, rates = p * (p - 1) // 2, 2 * PRIVATE_PROBLEMS
    bounds = {"histograms": (p**0.5, p)}
    if p > 1:
        bounds |= {"tables": (pairs**0.5, pairs)} if common_tree else {"tree": (1.0, 1)}
        bounds |= {"pairs": ((p - 1) ** 0.5, p - 1)}
    if m:
        products = m * (m + 1) // 2
        bounds["column_moments"] = (products / 16 + m / 4) ** 0.5, products + m
    bounds["anchors"] = rates**0.5 / 2, rates
    return bounds


def uses(name: MechanismName, config: DistillConfig | SurrogateConfig, schema: Schema) -> int:
    """Counts the uses of a mechanism: one a step, one for each edge of a tree, or one."""
    if name == "tree":
        return len(schema.features) - 1
    steps = config.private_steps if isinstance(config, DistillConfig) else 1
    return steps if name in ("gradients", "rates") else 1


def largest_change(
    name: MechanismName, bound: tuple[float, int], relation: Relation, grid: float | None = None
) -> float:
    """The sensitivity of a sum whose terms have this bound, or of the scores of a tree.

    Rounding to the grid of a sum counts, if it is given; in a score always, with a step for how it
    was rounded and computed.
    """
    if name == "tree":
        return sensitivity(1.0, relation) + SCORE_GRID
    norm = rounded_norm(name, *bound, grid) if grid else bound[0]
    return sensitivity(norm, relation, never_opposed=name in NEVER_OPPOSED)


def require_true(
    guarantee: Guarantee, config: DistillConfig | SurrogateConfig, schema: Schema
) -> None:
    """Refuses a guarantee whose mechanisms are not those that settings and schema imply.

    The noise is not compared, nor the epsilon of choices: that they are enough for epsilon the
    guarantee has checked itself.

    Raises:
        ValueError: it is of no release; or a mechanism is missing or unknown, has another
            sensitivity, or another number of uses.
    """
    # The guarantee is that of a release.
    unlike = guarantee.condition, guarantee.holds_against, guarantee.counts_epsilon
    if guarantee.unit != "one row" or any(part is not None for part in unlike):
        raise ValueError("must be of one row, without a condition, against everybody")
    if guarantee.samples:
        raise ValueError("mechanisms: must be of all rows, not of samples")
    # Its mechanisms are those of the settings, and change as much as the schema allows.
    bounds = term_bounds(config, schema)
    names = [mechanism.name for mechanism in guarantee.mechanisms]
    if sorted(names) != sorted(bounds):
        raise ValueError(f"mechanisms are {names}; must be {list(bounds)}, each once")
    for mechanism in guarantee.of_release:
        right = largest_change(
            mechanism.name, bounds[mechanism.name], config.relation, mechanism.grid
        )
        times = uses(mechanism.name, config, schema)
        if abs(mechanism.sensitivity / right - 1) > 1e-9 or mechanism.times != times:
            raise ValueError(
                f"mechanism {mechanism.name}: sensitivity {mechanism.sensitivity:g}, used"
                f" {mechanism.times} times; must be {right:g}, {times} times"
            )
