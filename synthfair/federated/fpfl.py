"""Fairness constraints by the modified method of differential multipliers, from noisy sums alone.

Solves, over the rows of all users,

    min_w L(w)/n   subject to   |F(w)/n' - F_a(w)/n'_a| <= alpha   for every group a,

by a gradient step on the loss with a multiplier and a damping term for each constraint that is
violated, of which each user sends what the server needs as sums. Rodríguez-Gálvez et al. (2021):
(10), (11) and algorithm 1. On users of one row each, without clipping, it is their central MMDM;
without a constraint it is FederatedSGD (McMahan et al. 2017), private or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from pydantic import Field

from synthfair.federated.method import AtLeast0, Given, InCohorts, Positive, Share, given
from synthfair.federated.parity import Differences, Parity, ParityNotion, RateSums, is_right
from synthfair.federated.single_rows import SummandWeights, UserRows
from synthfair.federated.users import UserData
from synthfair.model import Params
from synthfair.postprocess.histogram import MIN_COUNT_ERRORS

TOLERANCE_SHARE, MIN_TOLERANCE = 0.1, 1e-3
"""Share of alpha, and difference of rates, beyond which a constraint counts as violated where
params are chosen: multipliers reach it from outside, and without noise never quite."""

UNKNOWN_OFFSET = -2.0
"""Added to the accuracy where a group's rate is not known: less than any violation."""


# What users send, and what the server keeps


class CohortSums(NamedTuple):
    """The counts of a cohort, which may be noisy."""

    rates: RateSums  # of the constraint; [0, 0] each where there is none
    right: jax.Array  # number of rows that the model decides rightly
    rows: jax.Array  # number of rows


class Statistics(NamedTuple):
    """The report of a user, (17), and how good the model is on its rows."""

    loss_gradient: Params  # of the sum of losses
    rate_gradients: Params  # of each value of the constraint, leaves [Q, G, ...], times a scale
    sums: CohortSums  # times scales


class FpflState(NamedTuple):
    """The state of the server."""

    params: Params  # w
    multipliers: jax.Array  # [Q, G] lambda
    recent: tuple[CohortSums, Params]  # sums of cohorts and of their params, older ones weigh less
    weight: jax.Array  # of these cohorts together; that of the last one is 1
    best: Params  # by the recent cohorts
    quality: jax.Array  # of the best, see GradientSteps


class FpflRecord(NamedTuple):
    """The record of a round."""

    sums: CohortSums  # as the server received them, with noise if there was any
    multipliers: jax.Array  # [Q, G] after the round
    quality: jax.Array  # of the params that the cohort was asked about


# The method


class GradientSteps(InCohorts):
    """A gradient step a round, with or without fairness constraints.

    The quality of params is their accuracy where the constraint was met, up to a tolerance, or
    minus its violation; where that is not known, the accuracy with UNKNOWN_OFFSET.

    Attributes:
        parity: the constraints; None for FederatedSGD.
        least_count: rows of a group in the recent cohorts, older ones weighing less, below which it
            is left out of the constraint, and no params count as meeting it; positive. With noise
            take a few of its standard deviations: of a count near 0 a rate means nothing.
    """

    notion: ParityNotion = "statistical_parity"
    """Rates that must not differ between groups: of true positives; of positive decisions; of true
    and of false positives; of right decisions."""

    also: tuple[str, ...] = Field(default=(), strict=False, max_length=20)
    """Further attributes, by column, whose groups are constrained likewise."""

    alpha: Share = 0.02
    """Most by which a group's rate may differ from all's."""

    multiplier_rate: AtLeast0 = 0.1
    """Step gamma of the multipliers."""

    damping: AtLeast0 = 2.0
    """Weight c of violated constraints."""

    memory: Share = 0.9
    """Share that sums of earlier cohorts keep in each round, in what is compared with the
    constraint and in the choice of the best params, which are then averages over the same rounds,
    with the same weights; 0, as published, takes each cohort by itself. The server computes it from
    what it has, at no cost in privacy."""

    count_scale: Positive = 1.0
    """The two counts of which accuracy is made are sent times this, so that they take less of the
    norm to which a report is clipped, and get more noise. 1, as published, treats all entries
    alike."""

    rate_scale: Positive = 1.0
    """The same for the sums of the constraint and their gradients. Where few rows meet its
    condition, these are divided by a small number: above 1 they get less noise."""

    parity: Given[Parity | None] = given()
    least_count: float = given(1.0)

    additive: ClassVar[bool] = True
    unsettled: ClassVar[str] = (
        "no round met the constraint on what the server saw of its cohorts, or they had too few"
        " rows of a group: the fairest model is taken, or the most accurate. Try more rounds,"
        " larger cohorts, or a larger alpha"
    )

    def plan(self, data: UserData) -> Self:
        """Return the method; groups are known only where counts stand out from the noise."""
        parity = Parity(self.notion, data.groups) if self.reads("notion") else None
        method = self.in_cohorts(data, parity=parity)
        # Standard deviation, in rows, of a group's noisy count in the recent cohorts:
        noise = float(method.protection.noise) / self.rate_scale
        noise *= (1 / (1 - self.memory**2)) ** 0.5
        return method.bound(least_count=max(1.0, MIN_COUNT_ERRORS * noise))

    def check(self, report: Statistics, least_rows: int, most_rows: float) -> None:  # noqa: ARG002
        """Refuse counts that no rows have. Raises ValueError."""
        if not 0 <= report.sums.right <= report.sums.rows:
            raise ValueError("its counts of rows are negative, or more are right than there are")

    def progress(self, history: FpflRecord) -> str:
        """Return the quality of the last params."""
        quality = float(history.quality[-1])
        if quality <= -1:
            return "too few rows of a group"
        return f"accuracy {quality:.3f}" if quality >= 0 else f"violation {-quality:.3f}"

    def converged(self, history: FpflRecord) -> bool | None:
        """Return whether some params met the constraint on what the server saw of their cohorts."""
        return None if self.parity is None else bool(history.quality.max() >= 0)

    # Server, before the first round

    def init(self, key: jax.Array) -> FpflState:
        """Return the model's first params, and multipliers of 0."""
        params = self.model.init(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        shape = (0, 0) if self.parity is None else self.parity.shape
        zero, none = jnp.zeros((), dtype), jnp.zeros(shape, dtype)
        recent = CohortSums(RateSums(none, none), zero, zero), jax.tree.map(jnp.zeros_like, params)
        return FpflState(params, none, recent, zero, params, zero - jnp.inf)

    # User

    def report(self, state: FpflState, rows: UserRows, key: jax.Array) -> Statistics:  # noqa: ARG002
        """Return sums over a user's rows, and their derivatives; see :class:`Statistics`."""

        def sums(params: Params) -> tuple[tuple[jax.Array, jax.Array], CohortSums]:
            scores = self.model.scores(params, rows.a)
            losses = self.model.loss(scores, rows.y)
            none = jnp.zeros((0, 0), scores.dtype)
            rates = self.parity.sums(scores, rows) if self.parity else RateSums(none, none)
            right = jnp.sum(rows.weight * is_right(scores, rows.y))
            totals = CohortSums(rates, right, jnp.sum(rows.weight))
            return (jnp.sum(rows.weight * losses), rates.values), totals

        (loss_gradient, rate_gradients), totals = jax.jacrev(sums, has_aux=True)(state.params)
        return self._scale(Statistics(loss_gradient, rate_gradients, totals), 1)

    def weights(self, state: FpflState, rows: UserRows) -> SummandWeights:
        """Return how much rows add to the sums: norms of gradients, by output of a layer."""

        def of_row(row: UserRows) -> tuple[jax.Array, list[jax.Array]]:
            rows = UserRows(*(leaf[None] for leaf in row))
            *gradients, sums = self.report(state, rows, jax.random.key(0))
            norms = jax.tree.map(lambda leaf: jnp.linalg.norm(leaf, axis=-1), gradients)
            parts = [leaf for leaf in jax.tree.leaves((norms, sums)) if leaf.size]
            return jnp.append(sums.rows, sums.rates.counts), parts

        by_row = jax.lax.map(of_row, rows, batch_size=100)
        members, parts = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), by_row)
        return SummandWeights(members, parts, jnp.zeros((0, len(rows.y))))

    def _scale(self, statistics: Statistics, power: int) -> Statistics:
        """Return sums times their scales, for sending (1), or over these, as received (-1)."""
        rate, count = self.rate_scale**power, self.count_scale**power
        rates, right, rows = statistics.sums
        sums = CohortSums(_times(rate, rates), count * right, count * rows)
        return Statistics(statistics.loss_gradient, _times(rate, statistics.rate_gradients), sums)

    # Server, after each round

    def update(
        self, state: FpflState, total: Statistics, cohort: float
    ) -> tuple[FpflState, FpflRecord]:
        """Return the state after both updates of (10), with the best params so far."""
        del cohort  # the report has the number of rows
        total = self._scale(total, -1)
        latest = total.sums, state.params
        recent = jax.tree.map(lambda old, new: self.memory * old + new, state.recent, latest)
        weight = self.memory * state.weight + 1.0

        # The multipliers rise, and the params go against loss and unfairness.
        d = self.parity and self.parity.differences(recent[0].rates, self.least_count)
        multipliers, pull = self._multipliers(state, total, d, weight)
        rate = self.learning_rate / jnp.maximum(total.sums.rows, 1.0)
        params = jax.tree.map(
            lambda w, loss, unfair: w - rate * loss - self.learning_rate * unfair,
            state.params,
            total.loss_gradient,
            pull,
        )

        # The best params are kept. Reports about params that are no numbers count as nothing when
        # they are clipped: what is left is noise, which must not choose them.
        quality, average = self._quality(recent[0], d), _times(1 / weight, recent[1])
        better = (quality > state.quality) & jnp.all(jnp.isfinite(ravel_pytree(average)[0]))
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), average, state.best)
        least = jnp.where(better, quality, state.quality)
        state = FpflState(params, multipliers, recent, weight, best, least)
        return state, FpflRecord(total.sums, multipliers, quality)

    def _multipliers(
        self, state: FpflState, total: Statistics, d: Differences | None, weight: jax.Array
    ) -> tuple[jax.Array, Params]:
        """Return new multipliers, and the constraints' part of the step.

        With d = F/n' - F_a/n'_a, a constraint is g_a = max(|d_a| - alpha, 0), and its gradient is
        sign(d_a) grad d_a where g_a > 0, 0 elsewhere, (11). Without any, there is no part.
        """
        if d is None:
            return state.multipliers, jax.tree.map(jnp.zeros_like, state.params)
        violation = jnp.maximum(jnp.abs(d.values) - self.alpha, 0.0)
        multipliers = state.multipliers + self.multiplier_rate * violation
        force = jnp.where(violation > 0, multipliers + self.damping * violation, 0.0)
        slope = weight * d.slope  # in the sums of one cohort, as they are on average
        in_sums = jnp.einsum("qg,qgh->qh", force * jnp.sign(d.values), slope)
        pull = jax.tree.map(lambda leaf: jnp.tensordot(in_sums, leaf, axes=2), total.rate_gradients)
        return multipliers, pull

    def _quality(self, sums: CohortSums, d: Differences | None) -> jax.Array:
        accuracy = jnp.clip(sums.right / jnp.maximum(sums.rows, 1.0), 0.0, 1.0)
        if d is None:
            return accuracy
        worst = jnp.max(jnp.abs(d.values)) - self.alpha
        quality = jnp.where(worst > TOLERANCE_SHARE * self.alpha + MIN_TOLERANCE, -worst, accuracy)
        return jnp.where(jnp.all(d.is_known), quality, UNKNOWN_OFFSET + accuracy)

    def params(self, state: FpflState) -> Params:
        """Return the best by the cohorts' sums: most accurate among the fair, or the fairest."""
        return state.best


class FedSgd(GradientSteps):
    """The method FederatedSGD: one gradient step a round."""

    method: Literal["fedsgd"] = "fedsgd"

    unread: ClassVar[frozenset[str]] = frozenset(
        {"notion", "also", "alpha", "multiplier_rate", "damping", "rate_scale"}
    )


class Fpfl(GradientSteps):
    """The method FPFL: a step a round on the rows of a cohort, under fairness constraints.

    Example:
        >>> import synthfair as sf
        >>> method = sf.federated.Fpfl(
        ...     model=sf.federated.LogisticRegression(n_inputs=5),
        ...     parity=sf.federated.Parity("equal_opportunity", groups=(2,)),
        ...     alpha=0.05,
        ... )
        >>> method.memory, method.multiplier_rate
        (0.9, 0.1)
    """

    method: Literal["fpfl"] = "fpfl"

    unconstrained: ClassVar[Mapping[str, str | float]] = {"method": "fedsgd"}


class Mmdm(GradientSteps):
    """The method FPFL with all rows in one place; it is never private."""

    method: Literal["mmdm"] = "mmdm"

    unread: ClassVar[frozenset[str]] = frozenset({"clip", "epsilon", "delta", "secure"})
    one_place: ClassVar[bool] = True
    is_job: ClassVar[bool] = False
    unconstrained: ClassVar[Mapping[str, str | float]] = {"multiplier_rate": 0.0, "damping": 0.0}


def _times(factor: float | jax.Array, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, tree)
