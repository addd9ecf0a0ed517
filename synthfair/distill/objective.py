"""F(theta): what a model must achieve on the real rows. The only code that holds real rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp

from synthfair.fairness.penalties import (
    CovariancePenalty,
    Notion,
    Penalty,
    SelectionRatePenalty,
    decision_gaps,
    group_covariances,
)
from synthfair.model import LinearModel, Model, Params, Rows

OF_SCORES = (CovariancePenalty, SelectionRatePenalty)
"""Penalties that can be told the scores."""


class Objective(Protocol):
    """Anything that judges params; a pytree, so that its arrays are arguments to compiled code."""

    def __call__(self, params: Params) -> jax.Array:
        """F(theta), a scalar to be minimised."""
        ...

    def covariance(self, params: Params) -> jax.Array:
        """The covariance of group and score to show while F falls; the largest, signed."""
        ...

    def gap(self, params: Params) -> jax.Array:
        """The largest absolute gap between groups of what is decided."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PenalizedLoss:
    """F(theta) = mean loss + rho_o penalty, on real rows. Wu et al. (2024) eq. (12), first line.

    Attributes:
        columns: [n, N] of the model inputs of the real rows.
        s: [N] their groups.
        y: [N] their labels.
        rho_o: weight of the penalty, at least 0.
        model: what is trained.
        penalty: a surrogate of unfairness.
        notion: which rows :meth:`covariance` compares.
        n_groups: number of groups.
    """

    columns: jax.Array
    s: jax.Array
    y: jax.Array
    rho_o: jax.Array | float
    model: Model = field(metadata={"static": True})
    penalty: Penalty = field(metadata={"static": True})
    notion: Notion = field(default="statistical_parity", metadata={"static": True})
    n_groups: int = field(default=2, metadata={"static": True})

    @property
    def rows(self) -> Rows:
        """The real rows."""
        return Rows(self.columns.T, self.s, self.y)

    def __call__(self, params: Params) -> jax.Array:
        """F(theta)."""
        rows, model, penalty = self.rows, self.model, self.penalty
        # Exact types: a subclass may compute otherwise. Loss and penalty ask for the same scores;
        # the compiler would compute them once, but differentiate them twice.
        if type(model) is LinearModel and type(penalty) in OF_SCORES:
            scores = model.scores(params, rows.a)
            loss = jnp.mean(model.margin_loss(rows.y * scores))
            return loss + self.rho_o * penalty.of_scores(scores, rows)  # type: ignore[attr-defined]
        loss = jnp.mean(model.loss(params, rows.a, rows.y))
        return loss + self.rho_o * penalty(model, params, rows)

    def covariance(self, params: Params) -> jax.Array:
        """C(theta), eq. (2), (3): signed, of the stratum and the group where it is largest."""
        scores = self.model.scores(params, self.rows.a)
        gaps = group_covariances(scores, self.rows, notion=self.notion, n_groups=self.n_groups)
        return gaps.ravel()[jnp.argmax(jnp.abs(gaps))]

    def gap(self, params: Params) -> jax.Array:
        """max_g P(decision = +1 | s = g) - min_g P(decision = +1 | s = g), on the real rows.

        Among the rows that the notion compares, the largest. With statistical parity that is
        |SPD|, eq. (4).
        """
        scores = self.model.scores(params, self.rows.a)
        gaps = decision_gaps(scores, self.rows, notion=self.notion, n_groups=self.n_groups)
        return jnp.nanmax(gaps)
