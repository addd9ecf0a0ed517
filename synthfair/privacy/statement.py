"""The guarantee of a release: from public settings alone, and compared with what a file claims."""

from __future__ import annotations

import math
from collections.abc import Mapping

from synthfair.data.schema import Numeric, Schema
from synthfair.privacy.accounting import accountant, discrete_mu_for, epsilon_of_choice
from synthfair.privacy.guarantee import Guarantee, MechanismName
from synthfair.privacy.mechanism import (
    NEVER_OPPOSED,
    SCORE_GRID,
    ExponentialMechanism,
    GaussianMechanism,
    Relation,
    grid_for,
    rounded_norm,
    sensitivity,
)
from synthfair.settings import ReleaseSettings

GRID = 2.0**-12
"""The grid to which the features of a fair release are rounded, as a part of the range that the
schema gives a feature. It is public, and the same for all: nothing hides in lower bits. On public
tables no decision changed; at 2^-10, one in 4,000 did."""

SHARES: Mapping[MechanismName, float] = {
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
    mu = discrete_mu_for(config.epsilon, config.delta)
    per_mu = sum(SHARES[one] for one in bounds) ** 0.5 / mu
    mechanisms = []
    for name, bound in bounds.items():
        of_noise = per_mu / SHARES[name] ** 0.5  # a unit of sensitivity
        if name == "tree":
            times, change = len(schema.features) - 1, largest_change(name, bound, relation)
            epsilon = epsilon_of_choice(1 / (of_noise * times**0.5))
            mechanisms.append(
                ExponentialMechanism(name=name, sensitivity=change, epsilon=epsilon, times=times)
            )
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
    """The sensitivity of a sum whose terms have this bound, or of the scores of a tree.

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
    if shared:
        who = guarantee.model_dump(include={"adversary", "aggregators", "simulated"})
        right = right.model_copy(update=who)
    free = {"mechanisms": right.mechanisms, "accountant": right.accountant}
    if guarantee.model_copy(update=free) != right:
        raise ValueError("must have the epsilon, delta and relation of the settings, for one row")
    names, bounds = (
        [[m.name for m in one.mechanisms] for one in (guarantee, right)],
        term_bounds(schema, common_tree=shared),
    )
    if names[0] != names[1]:
        raise ValueError(f"mechanisms are {names[0]}; must be {names[1]}")
    for mechanism, own in zip(guarantee.of_release, right.of_release, strict=True):
        name, grid = mechanism.name, mechanism.grid
        change = largest_change(name, bounds[name], config.relation, grid)
        times = [getattr(one, "times", 1) for one in (mechanism, own)]
        if times[0] != times[1]:
            raise ValueError(f"{name}: {times[0]} choices; must be {times[1]}")
        if abs(mechanism.sensitivity / change - 1) > 1e-12:
            raise ValueError(
                f"mechanism {name}: sensitivity {mechanism.sensitivity:g}; must be {change:g}"
            )
