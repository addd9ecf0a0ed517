"""Differentiable surrogates of group fairness, to be added to a loss.

A penalty is called as ``penalty(scores, rows)`` and returns a scalar; the same one serves real,
synthetic and weighted rows. Users pass any hashable callable of that kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp

from synthfair.config import Notion
from synthfair.model import Rows


class Penalty(Protocol):
    """How unfair scores are on some rows; at least 0, differentiable, hashable.

    One that is convex in the scores may say so by ``convex = True``: training needs one start then.
    One that is half the sum of squares of sums over rows, each row's part a function of its score,
    may give these sums as ``gaps(scores, rows)``: its Hessian takes a third of the time.
    """

    def __call__(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """The penalty, a scalar, of scores [N]. A row of weight 0 is as if it were not there."""
        ...


def group_weights(rows: Rows, dtype: jnp.dtype, *, notion: Notion, n_groups: int) -> jax.Array:
    """[K, G, N] weights of rows in each stratum, the rows among which groups are compared.

    Those of a stratum sum to 1 over its rows; for each group they are 0 where a row is another's.
    """
    y = rows.y
    strata = {
        "statistical_parity": [jnp.ones_like(y)],
        "equal_opportunity": [y > 0],
        "equalized_odds": [y > 0, y < 0],
    }[notion]
    weights = jnp.stack(strata).astype(y.dtype)
    if rows.weight is not None:
        weights = weights * rows.weight
    weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    members = (rows.s == jnp.arange(n_groups)[:, None]).astype(dtype)
    return weights.astype(dtype)[:, None] * members


def _compared(by_group: jax.Array) -> jax.Array:
    """Of [K, G] the groups that are each held against the rest.

    With two groups the two comparisons differ in sign alone, so only group 1 is kept.
    """
    return by_group[:, 1:] if by_group.shape[1] == 2 else by_group


def group_covariances(scores: jax.Array, rows: Rows, *, notion: Notion, n_groups: int) -> jax.Array:
    """[K, G] covariance of group membership and score, in each stratum, for each group.

        C_g = (1/N) sum_i (1[s_i = g] - share_g) z_i

    In the binary case the one entry is Wu et al. (2024) eq. (2), (3), signed.
    """
    weights = group_weights(rows, scores.dtype, notion=notion, n_groups=n_groups)
    # The weights are the same in each step, and made once, for the gaps below, too. With two lines
    # or more, XLA's product with scores is fast.
    sums, shares = weights @ scores, jnp.sum(weights, axis=-1)
    return _compared(sums - shares * jnp.sum(sums, axis=1, keepdims=True))


def selection_rate_gaps(
    scores: jax.Array, rows: Rows, *, notion: Notion, n_groups: int, temperature: float
) -> jax.Array:
    """[K, G] smooth selection rate of a group minus that of the rest, in each stratum.

        gap_g = mean_{s = g} sigma(tau z) - mean_{s != g} sigma(tau z)

    sigma(tau z) tends to the decision 1[z > 0] as the temperature tau grows.
    """
    selected = jax.nn.sigmoid(temperature * scores)
    weights = group_weights(rows, selected.dtype, notion=notion, n_groups=n_groups)
    sums, shares = weights @ selected, jnp.sum(weights, axis=-1)
    other_sums, other_shares = (jnp.sum(x, axis=1, keepdims=True) - x for x in (sums, shares))
    return _compared(sums / shares - other_sums / other_shares)


@partial(jax.jit, static_argnames=("notion", "n_groups"))
def decision_gaps(scores: jax.Array, rows: Rows, *, notion: Notion, n_groups: int) -> jax.Array:
    """[K] largest minus smallest rate of the decisions 1[z > 0] over groups, in each stratum.

    Not differentiable, but what users mean, and what is reported: with statistical parity it is
    |SPD| on these rows. Groups without a row in a stratum do not count there.
    """
    weights = group_weights(rows, scores.dtype, notion=notion, n_groups=n_groups)
    rates = weights @ (scores > 0).astype(scores.dtype) / jnp.sum(weights, axis=-1)
    return jnp.nanmax(rates, axis=1) - jnp.nanmin(rates, axis=1)


@dataclass(frozen=True)
class CovariancePenalty:
    """Half the sum of squared covariances of group and score: rho_o times it is Wu et al. (12).

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
    """

    convex: ClassVar[bool] = True
    n_groups: int = 2
    notion: Notion = "statistical_parity"

    @property
    def name(self) -> str:
        """For release files."""
        return f"covariance, {self.notion}"

    def gaps(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """[K, G] C_g of strata and groups."""
        return group_covariances(scores, rows, notion=self.notion, n_groups=self.n_groups)

    def __call__(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """1/2 sum of C_g^2 over strata and groups."""
        return 0.5 * jnp.sum(self.gaps(scores, rows) ** 2)


@dataclass(frozen=True)
class SelectionRatePenalty:
    """Half the sum of squared smooth gaps in selection rate; nearer to SPD than the covariance.

    Every compared group and its rest must have a row in every stratum. Not convex in params.

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
        temperature: tau > 0; the larger, the closer to hard decisions and the harder to optimise.
    """

    n_groups: int = 2
    notion: Notion = "statistical_parity"
    temperature: float = 4.0

    @property
    def name(self) -> str:
        """For release files."""
        return f"selection rate at temperature {self.temperature:g}, {self.notion}"

    def gaps(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """[K, G] gap_g of strata and groups."""
        of = {"notion": self.notion, "n_groups": self.n_groups, "temperature": self.temperature}
        return selection_rate_gaps(scores, rows, **of)

    def __call__(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """1/2 sum of gap_g^2 over strata and groups."""
        return 0.5 * jnp.sum(self.gaps(scores, rows) ** 2)
