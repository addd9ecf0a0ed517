"""Differentiable measures of group unfairness, to be added to a loss.

A penalty is called as ``penalty(scores, rows)`` and returns a scalar; the same one serves real,
synthetic and weighted rows, as arrays of NumPy or of JAX. Users pass any hashable callable of that
kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from synthfair.model import Rows
from synthfair.settings import Notion, notion_of

Array = Any
"""An array of NumPy or of JAX."""

STRATA: dict[str, tuple[tuple[float, ...], ...]] = {
    "statistical_parity": ((-1.0, 1.0),),
    "equal_opportunity": ((1.0,),),
    "equalized_odds": ((1.0,), (-1.0,)),
}
"""The labels of each stratum, the rows among which a notion compares groups."""


class Penalty(Protocol):
    """A measure of how unfair scores are on rows: at least 0, differentiable, hashable."""

    def __call__(self, scores: Array, rows: Rows) -> Array:
        """Return the penalty, a scalar, of scores [N]; a row of weight 0 does not count."""
        ...


def group_weights(rows: Rows, dtype: Any, *, notion: Notion, n_groups: int) -> Array:
    """Return the weights [K, G, N] of rows in each stratum and group.

    Those of a stratum sum to 1 over its rows; for each group they are 0 where a row is another's.
    """
    weights = strata(rows.y, notion).astype(rows.y.dtype)
    if rows.weight is not None:
        weights = weights * rows.weight
    weights = weights / weights.sum(axis=1, keepdims=True)
    members = (rows.s == np.arange(n_groups)[:, None]).astype(dtype)
    return weights.astype(dtype)[:, None] * members


def strata(y: Array, notion: Notion) -> Array:
    """Return the mask [K, N] of the rows of each stratum, of labels [N]."""
    labels = STRATA[notion_of(notion)]
    xp = y.__array_namespace__()
    return xp.stack([(y == of[0]) | (y == of[-1]) for of in labels])


Grouping = tuple[int, ...]
"""The group of each index s, from 0 on; of an index that is not compared, -1. Where s tells sex and
race, say, each of them has a grouping of its own."""


def grouped(by_index: Array, grouping: Grouping) -> Array:
    """Return the sums [..., G'] over the groups of a grouping, of sums [..., G] by index s."""
    members = np.asarray(grouping)[:, None] == np.arange(max(grouping) + 1)
    return by_index @ members.astype(by_index.dtype)


def _compared(by_group: Array) -> Array:
    """Return the groups, of [..., G], that are each held against the rest.

    With two groups the two comparisons differ in sign alone, so only group 1 is kept.
    """
    return by_group[..., 1:] if by_group.shape[-1] == 2 else by_group


def decision_gaps(
    scores: Array,
    rows: Rows,
    *,
    notion: Notion,
    n_groups: int,
    by: tuple[Grouping, ...] = (),
) -> Array:
    """Return the largest minus the smallest rate [K] of the decisions 1[z > 0], in each stratum.

    Not differentiable, but what users mean, and what is reported: with statistical parity it is
    |SPD| on these rows. Groups without a row in a stratum do not count there. With several
    groupings ``by``, [B K] of one after the other.
    """
    weights = group_weights(rows, scores.dtype, notion=notion, n_groups=n_groups)
    sums, shares = weights @ (scores > 0).astype(scores.dtype), weights.sum(axis=-1)
    return rate_differences(sums, shares, by)


def rate_differences(sums: Array, shares: Array, by: tuple[Grouping, ...]) -> Array:
    """Return the largest minus the smallest rate [..., B K], of sums and shares [..., K, G].

    Not-a-number where no group has a share.
    """
    xp, gaps = sums.__array_namespace__(), []
    for grouping in by or [tuple(range(sums.shape[-1]))]:
        total, share = grouped(sums, grouping), grouped(shares, grouping)
        has_share = share > 0
        rate = total / xp.where(has_share, share, 1.0)
        most = xp.where(has_share, rate, -xp.inf).max(axis=-1, initial=-xp.inf)
        gap = most - xp.where(has_share, rate, xp.inf).min(axis=-1, initial=xp.inf)
        gaps.append(xp.where(has_share.any(axis=-1), gap, xp.nan))
    return xp.concatenate(gaps, axis=-1)


class SumPenalty:
    """A penalty that is half the sum of squared gaps, linear in sums by stratum and group."""

    convex: ClassVar[bool] = False
    n_groups: int
    notion: Notion
    by: tuple[Grouping, ...] = ()

    def __post_init__(self) -> None:
        """Take the notion by its own name. Raises InputError: there is no such notion."""
        object.__setattr__(self, "notion", notion_of(self.notion))

    def term(self, scores: Array) -> Array:
        """Return what is summed of each row [N], by its score alone."""
        return self.derivatives(scores)[0]

    def derivatives(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return :meth:`term` [N] of scores, and its first two derivatives."""
        raise NotImplementedError

    def compare_groups(self, sums: Array, shares: Array) -> Array:
        """Return the gaps [..., K, C] of sums [..., K, G] of terms; shares sum to 1 over G."""
        raise NotImplementedError

    def compare(self, sums: Array, shares: Array) -> Array:
        """Return the gaps of sums [..., K, G] of weighted terms, and of the weights.

        They are linear in the sums. The weights of a stratum sum to 1, see :func:`group_weights`.
        Those of several groupings stand one after the other in the last axis.
        """
        if not self.by:
            return self.compare_groups(sums, shares)
        gaps = []
        for grouping in self.by:
            own_sums, own_shares = grouped(sums, grouping), grouped(shares, grouping)
            total = own_shares.sum(axis=-1, keepdims=True)
            gaps.append(self.compare_groups(own_sums / total, own_shares / total))
        return sums.__array_namespace__().concatenate(gaps, axis=-1)

    def gaps(self, scores: Array, rows: Rows) -> Array:
        """Return the gaps [K, C] of strata and groups; of two groups there is one, of group 1."""
        weights = group_weights(rows, scores.dtype, notion=self.notion, n_groups=self.n_groups)
        # The weights are the same in each step, and made once. With two lines or more, XLA's
        # product with terms is fast.
        return self.compare(weights @ self.term(scores), weights.sum(axis=-1))

    def __call__(self, scores: Array, rows: Rows) -> Array:
        """Return half the sum of squared gaps over strata and groups."""
        return 0.5 * (self.gaps(scores, rows) ** 2).sum()


def sum_gaps(penalty: SumPenalty, shares: Array, sums: Array) -> Array:
    """Return the gaps [..., C, m] of sums [..., K, G, m] by stratum and group, of weighted rows.

    Args:
        penalty: says what is compared.
        shares: [..., K, G] sums of the weights.
        sums: [..., K, G, m] of m terms, or derivatives of terms.
    """
    xp = sums.__array_namespace__()
    with np.errstate(divide="ignore", invalid="ignore"):
        total = shares.sum(axis=-1, keepdims=True)
        means = xp.moveaxis(sums, -1, 0) / total
        gaps = penalty.compare(means, xp.broadcast_to(shares / total, means.shape))
    return xp.moveaxis(gaps.reshape(*gaps.shape[:-2], -1), 0, -1)


@dataclass(frozen=True)
class CovariancePenalty(SumPenalty):
    """A penalty of half the squared covariances of group and score: Wu et al. (12) without rho_o.

        C_g = (1/N) sum_i (1[s_i = g] - share_g) z_i

    In the binary case the one covariance is Wu et al. (2024) eq. (2), (3), signed.

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
        by: groupings, of which each has gaps of its own; without any, each index s is a group.
    """

    convex: ClassVar[bool] = True
    n_groups: int = 2
    notion: Notion = "statistical_parity"
    by: tuple[Grouping, ...] = ()

    @property
    def name(self) -> str:
        """The name in release files."""
        return f"covariance, {self.notion}"

    def derivatives(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return z, 1 and 0."""
        return scores, 0 * scores + 1.0, 0 * scores

    def compare_groups(self, sums: Array, shares: Array) -> Array:
        """Return C_g from sums of weighted scores."""
        return _compared(sums - shares * sums.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class SelectionRatePenalty(SumPenalty):
    """A penalty of half the squared smooth gaps in selection rate, nearer to SPD than covariances.

        gap_g = mean_{s = g} sigma(tau z) - mean_{s != g} sigma(tau z)

    sigma(tau z) tends to the decision 1[z > 0] as the temperature tau grows. Every compared group
    and its rest must have a row in every stratum. Not convex in params.

    Args:
        n_groups: number of groups, at least 2. Beyond two, each group is held against the rest.
        notion: which rows are compared.
        temperature: tau > 0; the larger, the closer to hard decisions and the harder to optimise.
        by: groupings, as of :class:`CovariancePenalty`.
    """

    n_groups: int = 2
    notion: Notion = "statistical_parity"
    temperature: float = 4.0
    by: tuple[Grouping, ...] = ()

    @property
    def name(self) -> str:
        """The name in release files."""
        return f"selection rate at temperature {self.temperature:g}, {self.notion}"

    def derivatives(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return g = sigma(tau z), g' = tau g (1 - g) and g'' = tau g' (1 - 2 g)."""
        g = (1.0 + scores.__array_namespace__().tanh(self.temperature / 2 * scores)) / 2
        slope = self.temperature * g * (1 - g)
        return g, slope, self.temperature * slope * (1 - 2 * g)

    def compare_groups(self, sums: Array, shares: Array) -> Array:
        """Return gap_g from sums of weighted smooth decisions."""
        other_sums, other_shares = (x.sum(axis=-1, keepdims=True) - x for x in (sums, shares))
        return _compared(sums / shares - other_sums / other_shares)


def named_penalty(settings: Any, *, n_groups: int, by: tuple[Grouping, ...] = ()) -> SumPenalty:
    """Return the penalty that settings name by ``penalty``, ``notion`` and ``temperature``."""
    if settings.penalty == "covariance":
        return CovariancePenalty(n_groups, settings.notion, by)
    return SelectionRatePenalty(n_groups, settings.notion, settings.temperature, by)
