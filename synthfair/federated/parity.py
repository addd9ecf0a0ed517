"""Group fairness as rates that must not differ.

Each user adds up sums, which say how the rates differ.

A rate is the mean of a function f of score and label over the rows that a condition admits, such
as 1 - p over y = +1 for the false negative rate. Its groups may be those of several attributes at
once. Rodríguez-Gálvez et al. (2021), (P), (13), (14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.errors import InputError
from synthfair.federated.single_rows import UserRows
from synthfair.settings import ParityNotion, notion_of


class RateSums(NamedTuple):
    """The sums over rows, which add up over users."""

    values: jax.Array  # [Q, G] of f, for each of Q rates and G groups
    counts: jax.Array  # [Q, G] number of rows that the condition admits


class Differences(NamedTuple):
    """The differences between the groups and all, estimated from sums."""

    values: jax.Array  # [Q, G] d; 0 of a group that is left out
    slope: jax.Array  # [Q, G, G] derivative of d[q, g] in the sum F[q, h], from which that in the
    # model's parameters follows, as the counts do not depend on them
    is_known: jax.Array  # [Q, G] whether a group was not left out


@dataclass(frozen=True)
class Parity:
    """A constraint: each group's rates must be near those of all rows.

    Args:
        notion: which rates.
        groups: number of groups of each attribute, at least 2 each.

    Raises:
        InputError: no such notion, or an attribute without two groups.

    Example:
        Rates of false negatives and of false positives, in two groups by sex and three by age.

        >>> import synthfair as sf
        >>> sf.federated.Parity("equalized_odds", groups=(2, 3)).shape
        (2, 5)
    """

    notion: ParityNotion
    groups: tuple[int, ...] = (2,)

    def __post_init__(self) -> None:
        """Refuse other notions, and attributes without two groups."""
        object.__setattr__(self, "notion", notion_of(self.notion, "accuracy_parity"))
        if not self.groups or min(self.groups) < 2:
            raise InputError(f"groups = {self.groups}: each attribute must have at least 2 groups")

    @property
    def shape(self) -> tuple[int, int]:
        """Q and G: number of rates, and of groups."""
        return (2 if self.notion == "equalized_odds" else 1, sum(self.groups))

    def sums(self, scores: jax.Array, rows: UserRows) -> RateSums:
        """Return the sums over rows, of probabilities for decisions: differentiable in the scores.

        Args:
            scores: [R] log-odds of y = +1, or [R, C] log-probabilities of C classes, up to a
                constant; only accuracy is defined for classes.
            rows: R rows.
        """
        members = self._members(rows.s, scores.dtype) * rows.weight[:, None]
        pairs = self._functions(scores, rows.y)
        values = jnp.stack([(condition * value) @ members for value, condition in pairs])
        counts = jnp.stack([condition @ members for _, condition in pairs])
        return RateSums(values, counts)

    def of_rows(self, scores: jax.Array, rows: UserRows, weights: jax.Array) -> jax.Array:
        """Return each row's part [R] in sum(weights * values): sum over q, g of weights[q, g] f_q.

        Args:
            scores: as for :meth:`sums`.
            rows: R rows.
            weights: [Q, G].
        """
        members = self._members(rows.s, scores.dtype)
        pairs = self._functions(scores, rows.y)
        parts = [a * v * (members @ w) for (v, a), w in zip(pairs, weights, strict=True)]
        return sum(parts, start=jnp.zeros_like(members[:, 0]))

    def differences(self, sums: RateSums, least: jax.Array | float = 1.0) -> Differences:
        """Return the overall rate minus each group's, from sums that may be noisy.

            d[q, g] = F[q] / n'[q] - F[q, g] / n'[q, g]

        Args:
            sums: of cohorts together.
            least: count below which a group is left out, as of it nothing is known: positive.
        """
        # A group is compared with all groups of its attribute, which together are all rows.
        attribute = np.repeat(np.arange(len(self.groups)), self.groups)
        same = jnp.asarray(attribute[:, None] == attribute, sums.values.dtype)
        enough = sums.counts >= least
        counts = jnp.where(enough, sums.counts, 1.0)
        overall = jnp.maximum((enough * counts) @ same, least)
        difference = ((enough * sums.values) @ same) / overall - sums.values / counts
        slope = same * enough[:, None, :] / overall[:, :, None]
        slope -= jnp.eye(len(same)) / counts[:, :, None]
        return Differences(enough * difference, enough[:, :, None] * slope, enough)

    def _members(self, s: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """Return indicators [R, G], one attribute's groups after the other's."""
        return jnp.hstack(
            [jax.nn.one_hot(s[:, i], n, dtype=dtype) for i, n in enumerate(self.groups)]
        )

    def _functions(self, scores: jax.Array, y: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """Return f and the condition, [R] each, for each rate."""
        if self.notion == "accuracy_parity":  # the probability of the label, (14)
            if scores.ndim == 1:
                right = jax.nn.sigmoid(y * scores)
            else:
                classes = y[:, None].astype(int)
                right = jnp.take_along_axis(jax.nn.softmax(scores), classes, axis=1)[:, 0]
            return [(right, jnp.ones_like(right))]
        if scores.ndim != 1:
            raise InputError(
                f"parity {self.notion!r}: needs two classes; accuracy_parity takes several"
            )
        selected = jax.nn.sigmoid(scores)
        positive = (y > 0).astype(scores.dtype)
        if self.notion == "statistical_parity":
            return [(selected, jnp.ones_like(positive))]
        false_negative = (1 - selected, positive)
        if self.notion == "equal_opportunity":
            return [false_negative]
        return [false_negative, (selected, 1 - positive)]


def is_right(scores: jax.Array, y: jax.Array) -> jax.Array:
    """Return whether the decision is the label, [R]."""
    if scores.ndim == 1:
        return (scores > 0) == (y > 0)
    return jnp.argmax(scores, axis=1) == y
