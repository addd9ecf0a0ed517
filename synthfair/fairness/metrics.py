"""Rates by group, signed gaps between them.

What is reported of two groups, 0 and 1, is signed: that of group 1 minus that of group 0, as in Wu
et al. (2024) eq. (4); with more groups it is the largest minus the smallest value over groups.
Where a group has no row that counts, a metric is not-a-number.

A decision that is drawn enters by its mean: what is reported is then the mean over all draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from synthfair.errors import InputError
from synthfair.settings import Count, Share

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CONFIDENCE = 0.95


NOTION_METRICS = {
    "statistical_parity": "spd",
    "equal_opportunity": "equal_opportunity_difference",
    "equalized_odds": "equalized_odds_difference",
}
"""The metric by which a notion of fairness is measured."""


_Float = TypeVar("_Float", bound=float)


class Metric(NamedTuple, Generic[_Float]):
    """A value with a 95 % interval that contains it; not-a-number where undefined."""

    value: _Float
    low: _Float
    high: _Float


class Scored(NamedTuple):
    """A table of rows with a model's scores.

    Attributes:
        y: [N] label, -1 or +1; not-a-number of all rows where labels are not known.
        score: [N] score.
        s: [N] group index.
        n_groups: number of groups that there are.
        probability: [N] of the decision +1; if None, it is +1 where the score is positive.
    """

    y: np.ndarray
    score: np.ndarray
    s: np.ndarray
    n_groups: int = 2
    probability: np.ndarray | None = None

    @property
    def selected(self) -> np.ndarray:
        """[N] probability of the decision +1: 0 or 1 where nothing is drawn."""
        return (self.score > 0).astype(float) if self.probability is None else self.probability

    def take(self, index: np.ndarray) -> Scored:
        """Return the rows at these positions."""
        chance = None if self.probability is None else self.probability[index]
        return Scored(self.y[index], self.score[index], self.s[index], self.n_groups, chance)

    def grouped(self, grouping: Sequence[int]) -> Scored:
        """Return the rows by other groups: of each index s, or -1 for rows that are left out."""
        if tuple(grouping) == tuple(range(self.n_groups)):
            return self
        s = np.asarray(grouping)[self.s]
        n_groups = max(grouping, default=-1) + 1
        return self._replace(s=s, n_groups=n_groups).take(np.flatnonzero(s >= 0))


def statistical_parity_difference(
    y_true: ArrayLike,  # noqa: ARG001 - as its neighbours of fairlearn take it
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike,
    pos_label: Any = 1,
) -> float:
    """Return P(decision = +1 | s = 1) - P(decision = +1 | s = 0), Wu et al. (2024) eq. (4).

    Its size is ``fairlearn.metrics.demographic_parity_difference``.

    Args:
        y_true: [N] labels; they do not enter.
        y_pred: [N] decisions, of two values.
        sensitive_features: [N] groups, of any values that can be sorted; of two, s = 1 is the last.
        pos_label: the decision that counts as +1.

    Returns:
        From -1 to 1; with more than two groups the largest rate minus the smallest; not-a-number
        with one.

    Raises:
        InputError: more than two decisions, or two of which none is ``pos_label``; a missing
            value, or arguments of different lengths.

    Example:
        >>> import synthfair as sf
        >>> y, decisions, s = [1, 0, 1, 0], [1, 1, 1, 0], ["b", "b", "a", "a"]
        >>> sf.fairness.statistical_parity_difference(y, decisions, sensitive_features=s)
        0.5
    """
    from pandas import Series, isna

    decided, groups = (np.ravel(np.asarray(of, object)) for of in (y_pred, sensitive_features))
    if len(decided) != len(groups) or isna([*decided, *groups]).any():
        raise InputError("y_pred, sensitive_features: must have one value a row, none missing")
    values = list(dict.fromkeys(decided))
    if len(values) > 2 or (len(values) == 2 and pos_label not in values):
        raise InputError(f"y_pred: holds {values[:3]}; must be two values, pos_label among them")
    rates = Series(decided == pos_label).groupby(groups).mean().tolist()
    if len(rates) < 2:
        return float("nan")
    return rates[1] - rates[0] if len(rates) == 2 else max(rates) - min(rates)


class Rates(NamedTuple):
    """The rates of one group; not-a-number where it has no row that counts.

    Attributes:
        n: number of its rows.
        selection_rate: P(decision = +1).
        true_positive_rate: the same among its rows with y = +1.
        false_positive_rate: the same among its rows with y = -1.
        error_rate: P(decision != y).
    """

    n: Count
    selection_rate: Share
    true_positive_rate: Share
    false_positive_rate: Share
    error_rate: Share

    @property
    def label_share(self) -> float:
        """Return the share p of rows with y = +1, of which rates are means; if known.

        The selection rate is p TPR + (1 - p) FPR, and the error rate p (1 - TPR) + (1 - p) FPR.
        """
        _, selected, hit, false, wrong = self
        if np.isnan(hit) or np.isnan(false):  # no rows with one of the labels, or no labels
            return np.nan if np.isnan(wrong) else float(np.isnan(false))
        parts = (selected - false, hit - false), (wrong - false, 1 - hit - false)
        above, below = max(parts, key=lambda part: abs(part[1]))
        return above / below if below else np.nan


def group_rates(rows: Scored) -> list[Rates]:
    """Return the rates of each group, 0 to n_groups - 1."""
    selected, rates = rows.selected, []
    for group in range(rows.n_groups):
        mine, y = selected[rows.s == group], rows.y[rows.s == group]
        parts = (mine, mine[y > 0], mine[y < 0], np.abs(mine - (1 + y) / 2))
        rates.append(Rates(len(y), *(float(p.mean()) if len(p) else np.nan for p in parts)))
    return rates
