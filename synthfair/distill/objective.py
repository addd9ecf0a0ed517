"""F(theta): what a model must achieve on the real rows. The only code that holds real rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp

from synthfair.fairness.penalties import Notion, Penalty, decision_gaps, group_covariances
from synthfair.model import Model, Params, Rows, mean_loss


class Objective(Protocol):
    """A function of params to minimise; a pytree: its arrays are inputs of compiled code."""

    def __call__(self, params: Params) -> jax.Array:
        """F(theta), a scalar."""
        ...

    def covariance(self, params: Params) -> jax.Array:
        """The covariance of group and score to show while F falls; the largest, signed."""
        ...

    def gap(self, params: Params) -> jax.Array:
        """The largest absolute gap between the groups' decision rates."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PenalizedLoss:
    """F(theta) = mean loss + rho_o penalty, on real rows. Wu et al. (2024) eq. (12), first line.

    Attributes:
        columns: [n, N] model inputs of the real rows, an input a line.
        s: [N] their groups.
        y: [N] their labels.
        rho_o: weight of the penalty, at least 0.
        model: what is trained.
        penalty: a differentiable measure of unfairness.
        notion: which rows :meth:`covariance` and :meth:`gap` compare.
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
        """F(theta); loss and penalty share one pass over the scores."""
        rows, scores = self.rows, self._scores(params)
        return mean_loss(self.model, scores, rows) + self.rho_o * self.penalty(scores, rows)

    def covariance(self, params: Params) -> jax.Array:
        """C(theta), eq. (2), (3): signed, of the stratum and the group where it is largest."""
        covariances = group_covariances(
            self._scores(params), self.rows, notion=self.notion, n_groups=self.n_groups
        )
        return covariances.ravel()[jnp.argmax(jnp.abs(covariances))]

    def gap(self, params: Params) -> jax.Array:
        """max_g P(decision = +1 | s = g) - min_g P(decision = +1 | s = g), on the real rows.

        Among the rows that the notion compares, the largest. With statistical parity that is
        |SPD|, eq. (4).
        """
        gaps = decision_gaps(
            self._scores(params), self.rows, notion=self.notion, n_groups=self.n_groups
        )
        return jnp.nanmax(gaps)

    def _scores(self, params: Params) -> jax.Array:
        return self.model.scores(params, self.rows.a)
