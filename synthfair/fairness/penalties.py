"""Differentiable surrogates of group fairness, to be added to a loss.

A penalty is called as ``penalty(scores, rows)`` and returns a scalar; the same one serves real,
synthetic and weighted rows. Users pass any hashable callable of that kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config.rules import Notion, notion_of
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
    weights = strata(rows.y, notion).astype(rows.y.dtype)
    if rows.weight is not None:
        weights = weights * rows.weight
    weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    members = (rows.s == jnp.arange(n_groups)[:, None]).astype(dtype)
    return weights.astype(dtype)[:, None] * members


def strata(y: jax.Array, notion: Notion) -> jax.Array:
    """[K, N] whether each row of label y [N] is in a stratum."""
    return jnp.stack(
        {
            "statistical_parity": [jnp.ones_like(y, bool)],
            "equal_opportunity": [y > 0],
            "equalized_odds": [y > 0, y < 0],
        }[notion_of(notion)]
    )


Grouping = tuple[int, ...]
"""The group of each index s, from 0 on; of an index that is not compared, -1. Where s tells sex and
race, say, each of them has a grouping of its own."""


def grouped(by_index: jax.Array, grouping: Grouping) -> jax.Array:
    """[..., G'] sums over the groups of a grouping, of sums [..., G] for each index s."""
    members = np.asarray(grouping)[:, None] == np.arange(max(grouping) + 1)
    return by_index @ members.astype(by_index.dtype)


def _compared(by_group: jax.Array) -> jax.Array:
    """Of [..., G] the groups that are each held against the rest.

    With two groups the two comparisons differ in sign alone, so only group 1 is kept.
    """
    return by_group[..., 1:] if by_group.shape[-1] == 2 else by_group


@partial(jax.jit, static_argnames=("notion", "n_groups", "by"))
def decision_gaps(
    scores: jax.Array,
    rows: Rows,
    *,
    notion: Notion,
    n_groups: int,
    by: tuple[Grouping, ...] = (),
) -> jax.Array:
    """[K] largest minus smallest rate of the decisions 1[z > 0] over groups, in each stratum.

    Not differentiable, but what users mean, and what is reported: with statistical parity it is
    |SPD| on these rows. Groups without a row in a stratum do not count there. With several
    groupings ``by``, [B K] of one after the other.
    """
    weights = group_weights(rows, scores.dtype, notion=notion, n_groups=n_groups)
    sums, shares = weights @ (scores > 0).astype(scores.dtype), jnp.sum(weights, axis=-1)
    return _differences(sums, shares, by)


@partial(jax.jit, static_argnames=("notion", "n_groups", "by", "clients"))
def client_gaps(
    scores: jax.Array,
    rows: Rows,
    *,
    notion: Notion,
    n_groups: int,
    by: tuple[Grouping, ...] = (),
    clients: int,
) -> jax.Array:
    """[clients] the largest of :func:`decision_gaps` on the rows of each client by itself.

    Rows as of :func:`client_sums`.
    """
    sums = client_sums((scores > 0).astype(scores.dtype), rows, notion, n_groups, clients)
    return jnp.nanmax(_differences(*sums, by), axis=-1)


def _differences(sums: jax.Array, shares: jax.Array, by: tuple[Grouping, ...]) -> jax.Array:
    """[..., B K] largest minus smallest rate, of sums and shares [..., K, G]."""
    rates = [sums / shares] if not by else [grouped(sums, g) / grouped(shares, g) for g in by]
    gaps = [jnp.nanmax(rate, axis=-1) - jnp.nanmin(rate, axis=-1) for rate in rates]
    return jnp.concatenate(gaps, axis=-1)


def client_sums(
    terms: jax.Array, rows: Rows, notion: Notion, n_groups: int, clients: int
) -> tuple[jax.Array, jax.Array]:
    """[clients, K, G] sums of terms [N] on each client's own rows, by weight, and the shares.

    The index s of the rows is client * n_groups + group; rows of a larger one are of no client that
    is compared. The shares of a client's stratum sum to 1; without rows there, the sums are 0 and
    the shares alike. What is held grows with N, not with N times the number of clients.
    """
    weights = strata(rows.y, notion).astype(terms.dtype)
    weights = weights * (1.0 if rows.weight is None else rows.weight)

    def by_client(numbers: jax.Array) -> jax.Array:
        by_index = jax.ops.segment_sum(numbers.T, rows.s, clients * n_groups)
        return by_index.reshape(clients, n_groups, -1).swapaxes(1, 2)

    sums, shares = by_client(weights * terms), by_client(weights)
    total = jnp.sum(shares, axis=-1, keepdims=True)
    there = total > 0
    total = jnp.where(there, total, 1.0)
    return sums / total, jnp.where(there, shares / total, 1 / n_groups)


class SumPenalty:
    """Half the sum of squared gaps, each a linear combination of sums by stratum and group."""

    n_groups: int
    notion: Notion
    by: tuple[Grouping, ...] = ()
    clients: int = 0

    def __post_init__(self) -> None:
        """Takes the notion by its own name. Raises InputError: there is no such notion."""
        object.__setattr__(self, "notion", notion_of(self.notion))

    def term(self, scores: jax.Array) -> jax.Array:
        """[N] what is summed of each row, by its score alone."""
        raise NotImplementedError

    def compare_groups(self, sums: jax.Array, shares: jax.Array) -> jax.Array:
        """[..., K, C] gaps of sums [..., K, G] of weighted terms; shares sum to 1 over G."""
        raise NotImplementedError

    def compare(self, sums: jax.Array, shares: jax.Array) -> jax.Array:
        """Gaps of sums [..., K, G] of weighted terms, and of the weights: linear in sums.

        The weights of a stratum sum to 1, see :func:`group_weights`. Those of several groupings
        stand one after the other in the last axis.
        """
        if not self.by:
            return self.compare_groups(sums, shares)
        gaps = []
        for grouping in self.by:
            own_sums, own_shares = grouped(sums, grouping), grouped(shares, grouping)
            total = jnp.sum(own_shares, axis=-1, keepdims=True)
            gaps.append(self.compare_groups(own_sums / total, own_shares / total))
        return jnp.concatenate(gaps, axis=-1)

    def gaps(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """[K, C] gaps of strata and groups; of two groups there is one, that of group 1.

        With clients as many numbers in a line, and then those of each client's own rows.
        """
        terms, everyone = self.term(scores), rows
        if self.clients:
            everyone = rows._replace(s=rows.s % self.n_groups)
        weights = group_weights(everyone, scores.dtype, notion=self.notion, n_groups=self.n_groups)
        # The weights are the same in each step, and made once. With two lines or more, XLA's
        # product with terms is fast.
        gaps = self.compare(weights @ terms, jnp.sum(weights, axis=-1))
        if not self.clients:
            return gaps
        own = self.compare(*client_sums(terms, rows, self.notion, self.n_groups, self.clients))
        return jnp.concatenate([gaps.ravel(), own.ravel()])

    def __call__(self, scores: jax.Array, rows: Rows) -> jax.Array:
        """1/2 sum of squared gaps over strata and groups."""
        return 0.5 * jnp.sum(self.gaps(scores, rows) ** 2)


@dataclass(frozen=True)
class CovariancePenalty(SumPenalty):
    """Half the sum of squared covariances of group and score: rho_o times it is Wu et al. (12).

        C_g = (1/N) sum_i (1[s_i = g] - share_g) z_i

    In the binary case the one covariance is Wu et al. (2024) eq. (2), (3), signed.

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
        by: groupings, of which each has gaps of its own; without any, each index s is a group.
        clients: number of clients of which each has gaps of its own, too, on its own rows. The
            index s is then that of :func:`client_sums`, and groups are s modulo ``n_groups``.
    """

    convex: ClassVar[bool] = True
    n_groups: int = 2
    notion: Notion = "statistical_parity"
    by: tuple[Grouping, ...] = ()
    clients: int = 0

    @property
    def name(self) -> str:
        """For release files."""
        return f"covariance, {self.notion}"

    def term(self, scores: jax.Array) -> jax.Array:
        """[N] the scores."""
        return scores

    def compare_groups(self, sums: jax.Array, shares: jax.Array) -> jax.Array:
        """C_g from sums of weighted scores."""
        return _compared(sums - shares * jnp.sum(sums, axis=-1, keepdims=True))


@dataclass(frozen=True)
class SelectionRatePenalty(SumPenalty):
    """Half the sum of squared smooth gaps in selection rate; nearer to SPD than the covariance.

        gap_g = mean_{s = g} sigma(tau z) - mean_{s != g} sigma(tau z)

    sigma(tau z) tends to the decision 1[z > 0] as the temperature tau grows. Every compared group
    and its rest must have a row in every stratum. Not convex in params.

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
        temperature: tau > 0; the larger, the closer to hard decisions and the harder to optimise.
        by: groupings, as of :class:`CovariancePenalty`.
        clients: as of :class:`CovariancePenalty`.
    """

    n_groups: int = 2
    notion: Notion = "statistical_parity"
    temperature: float = 4.0
    by: tuple[Grouping, ...] = ()
    clients: int = 0

    @property
    def name(self) -> str:
        """For release files."""
        return f"selection rate at temperature {self.temperature:g}, {self.notion}"

    def term(self, scores: jax.Array) -> jax.Array:
        """[N] sigma(tau z)."""
        return jax.nn.sigmoid(self.temperature * scores)

    def compare_groups(self, sums: jax.Array, shares: jax.Array) -> jax.Array:
        """gap_g from sums of weighted smooth decisions."""
        other_sums, other_shares = (jnp.sum(x, axis=-1, keepdims=True) - x for x in (sums, shares))
        return _compared(sums / shares - other_sums / other_shares)


def named_penalty(
    penalty: Literal["covariance", "selection_rate"],
    notion: Notion,
    temperature: float,
    *,
    n_groups: int,
    by: tuple[Grouping, ...] = (),
) -> SumPenalty:
    """The penalty that settings name."""
    if penalty == "covariance":
        return CovariancePenalty(n_groups, notion, by)
    return SelectionRatePenalty(n_groups, notion, temperature, by)
