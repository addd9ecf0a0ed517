"""Fairness constraints by the modified method of differential multipliers, from noisy sums alone.

Solves, over the rows of all users,

    min_w L(w)/n   subject to   |F(w)/n' - F_a(w)/n'_a| <= alpha   for every group a,

by a gradient step on the loss with a multiplier and a damping term for each constraint that is
violated, of which each user sends what the server needs as sums. Rodríguez-Gálvez et al. (2021):
(10), (11) and algorithm 1. On users of one row each, without clipping, it is their central MMDM;
without a constraint it is FederatedSGD (McMahan et al. 2017), private or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from synthfair.federated.algorithm import require_at_least_0, require_positive, require_share
from synthfair.federated.networks import Trainable
from synthfair.federated.parity import Parity, RateSums, is_right
from synthfair.federated.users import UserRows
from synthfair.model import Params

SLACK, LEAST_SLACK = 0.1, 1e-3
"""Share of alpha, and difference of rates, beyond which a constraint counts as violated where
params are chosen: multipliers reach it from outside, and without noise never quite."""

UNKNOWN = -2.0
"""Added to the accuracy where a group's rate is not known: less than any violation."""


class CohortSums(NamedTuple):
    """Counts of a cohort, that may be noisy.

    Attributes:
        rates: of the constraint; [0, 0] each where there is none.
        right: number of rows that the model decides rightly.
        rows: number of rows.
    """

    rates: RateSums
    right: jax.Array
    rows: jax.Array


class Statistics(NamedTuple):
    """What a user sends, (17), and what of it says how good the model is.

    Attributes:
        loss_gradient: of the sum of losses.
        rate_gradients: of each value of the constraint, leaves [Q, G, ...], times a scale.
        sums: counts, times the algorithm's scales.
    """

    loss_gradient: Params
    rate_gradients: Params
    sums: CohortSums


class Recent(NamedTuple):
    """Of the latest rounds, older ones weighing less.

    Attributes:
        sums: of the cohorts.
        params: that the cohorts were asked about.
    """

    sums: CohortSums
    params: Params


class FpflState(NamedTuple):
    """The server's.

    Attributes:
        params: w.
        multipliers: [Q, G] lambda.
        recent: weighted sums of what the latest cohorts sent and of what they were asked about.
        weight: of these cohorts together; that of the last one is 1.
        best: the params that were best by them.
        quality: of these: accuracy where the constraint was met, up to :data:`SLACK`, or minus its
            violation; where that is not known, accuracy with :data:`UNKNOWN`.
    """

    params: Params
    multipliers: jax.Array
    recent: Recent
    weight: jax.Array
    best: Params
    quality: jax.Array


class FpflRecord(NamedTuple):
    """Of one round, before the update.

    Attributes:
        sums: what the server received, counts as they came, with noise if there was any.
        multipliers: [Q, G] after the round.
        quality: of the params that the cohort was asked about.
    """

    sums: CohortSums
    multipliers: jax.Array
    quality: jax.Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=(
        "alpha",
        "learning_rate",
        "multiplier_rate",
        "damping",
        "memory",
        "count_scale",
        "rate_scale",
        "least_count",
    ),
    meta_fields=("model", "parity"),
)
@dataclass(frozen=True)
class Fpfl:
    """Modified method of differential multipliers on cohorts.

    Args:
        model: what is trained.
        parity: the constraint; None for FederatedSGD.
        alpha: tolerance of the constraint, a difference of rates, 0 to below 1.
        learning_rate: eta, positive.
        multiplier_rate: gamma, at least 0.
        damping: c, at least 0.
        memory: share that sums of earlier cohorts keep in each round, 0 to below 1, in what is
            compared with the constraint and in the choice of the best params, which are then
            averages over the same rounds, with the same weights; 0, as published, takes each
            cohort by itself. The server computes it from what it has, at no cost in privacy.
        count_scale: the two counts of which accuracy is made are sent times this, so that they
            take less of the norm to which a report is clipped, and get more noise. 1, as
            published, treats all entries alike.
        rate_scale: the same for the sums of the constraint and their gradients. Where few rows
            meet its condition, these are divided by a small number: above 1 they get less noise.
        least_count: rows of a group in the recent cohorts, older ones weighing less, below which it
            is left out of the constraint, and no params count as meeting it; positive. With noise
            take a few of its standard deviations: of a count near 0 a rate means nothing.

    Raises:
        InputError: a value out of range.

    Example:
        >>> import synthfair as sf
        >>> model = sf.federated.LogisticRegression(n_inputs=5)
        >>> parity = sf.federated.Parity("equal_opportunity", groups=(2,))
        >>> algorithm = sf.federated.Fpfl(model, parity, alpha=0.05, multiplier_rate=0.1)
    """

    model: Trainable
    parity: Parity | None = None
    alpha: float = 0.02
    learning_rate: float = 0.1
    multiplier_rate: float = 0.01
    damping: float = 2.0
    memory: float = 0.0
    count_scale: float = 1.0
    rate_scale: float = 1.0
    least_count: float = 1.0

    additive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuses values out of range."""
        require_positive(learning_rate=self.learning_rate)
        require_positive(count_scale=self.count_scale, rate_scale=self.rate_scale)
        require_positive(least_count=self.least_count)
        require_at_least_0(multiplier_rate=self.multiplier_rate, damping=self.damping)
        require_share(alpha=self.alpha, memory=self.memory)

    def init(self, key: jax.Array) -> FpflState:
        """The model's first params, and multipliers of 0."""
        params = self.model.init(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        shape = (0, 0) if self.parity is None else self.parity.shape
        zero, none = jnp.zeros((), dtype), jnp.zeros(shape, dtype)
        sums = CohortSums(RateSums(none, none), zero, zero)
        recent = Recent(sums, jax.tree.map(jnp.zeros_like, params))
        return FpflState(params, none, recent, zero, params, zero - jnp.inf)

    def report(self, state: FpflState, rows: UserRows, key: jax.Array) -> Statistics:  # noqa: ARG002
        """Sums over a user's rows, and their derivatives; see :class:`Statistics`."""

        def sums(params: Params) -> tuple[tuple[jax.Array, jax.Array], CohortSums]:
            scores = self.model.scores(params, rows.a)
            losses = self.model.loss(scores, rows.y)
            none = jnp.zeros((0, 0), scores.dtype)
            rates = self.parity.sums(scores, rows) if self.parity else RateSums(none, none)
            right = jnp.sum(rows.weight * is_right(scores, rows.y))
            counted = CohortSums(rates, right, jnp.sum(rows.weight))
            return (jnp.sum(rows.weight * losses), rates.values), counted

        (loss_gradient, rate_gradients), counted = jax.jacrev(sums, has_aux=True)(state.params)
        return Statistics(loss_gradient, *self._scaled(rate_gradients, counted, 1))

    def _scaled(self, gradients: Params, sums: CohortSums, power: int) -> tuple[Params, CohortSums]:
        """All but the gradient of the loss, for sending (1) or as received (-1)."""
        rate, count = self.rate_scale**power, self.count_scale**power
        scaled = CohortSums(_times(rate, sums.rates), count * sums.right, count * sums.rows)
        return _times(rate, gradients), scaled

    def update(
        self, state: FpflState, total: Statistics, cohort: float
    ) -> tuple[FpflState, FpflRecord]:
        """Both updates of (10), and the best params so far."""
        del cohort  # the report has the number of rows
        total = Statistics(total.loss_gradient, *self._scaled(*total[1:], -1))
        latest = Recent(total.sums, state.params)
        recent = jax.tree.map(lambda old, new: self.memory * old + new, state.recent, latest)
        weight = self.memory * state.weight + 1.0
        multipliers, pull = self._multipliers(state, total, recent.sums.rates, weight)
        rate = self.learning_rate / jnp.maximum(total.sums.rows, 1.0)
        params = jax.tree.map(
            lambda w, loss, unfair: w - rate * loss - self.learning_rate * unfair,
            state.params,
            total.loss_gradient,
            pull,
        )
        quality = self._quality(recent.sums)
        best = _better(quality, _times(1 / weight, recent.params), state)
        state = FpflState(params, multipliers, recent, weight, *best)
        return state, FpflRecord(total.sums, multipliers, quality)

    def _multipliers(
        self, state: FpflState, total: Statistics, rates: RateSums, weight: jax.Array
    ) -> tuple[jax.Array, Params]:
        """New multipliers, and the constraints' part of the step.

        With d = F/n' - F_a/n'_a, a constraint is g_a = max(|d_a| - alpha, 0), and its gradient is
        sign(d_a) grad d_a where g_a > 0, 0 elsewhere, (11).
        """
        if self.parity is None:
            return state.multipliers, jax.tree.map(jnp.zeros_like, state.params)
        found = self.parity.differences(rates, self.least_count)
        violation = jnp.maximum(jnp.abs(found.values) - self.alpha, 0.0)
        multipliers = state.multipliers + self.multiplier_rate * violation
        force = jnp.where(violation > 0, multipliers + self.damping * violation, 0.0)
        slope = weight * found.slope  # in the sums of one cohort, as they are on average
        in_sums = jnp.einsum("qg,qgh->qh", force * jnp.sign(found.values), slope)
        pull = jax.tree.map(lambda leaf: jnp.tensordot(in_sums, leaf, axes=2), total.rate_gradients)
        return multipliers, pull

    def _quality(self, sums: CohortSums) -> jax.Array:
        accuracy = jnp.clip(sums.right / jnp.maximum(sums.rows, 1.0), 0.0, 1.0)
        if self.parity is None:
            return accuracy
        found = self.parity.differences(sums.rates, self.least_count)
        worst = jnp.max(jnp.abs(found.values)) - self.alpha
        quality = jnp.where(worst > SLACK * self.alpha + LEAST_SLACK, -worst, accuracy)
        return jnp.where(jnp.all(found.known), quality, UNKNOWN + accuracy)

    def params(self, state: FpflState) -> Params:
        """The best by the cohorts' sums: most accurate among the fair, or the fairest."""
        return state.best


def _times(factor: float | jax.Array, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def _better(quality: jax.Array, params: Params, state: FpflState) -> tuple[Params, jax.Array]:
    """These params, or the best before, with their quality.

    Reports about params that are no numbers count as nothing when they are clipped: what is left is
    noise, which must not choose them.
    """
    better = (quality > state.quality) & jnp.all(jnp.isfinite(ravel_pytree(params)[0]))
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), params, state.best)
    return best, jnp.where(better, quality, state.quality)
