"""What is reported, in NumPy: accuracy and gaps between groups.

Functions with fairlearn's names take what fairlearn's take, and are unsigned. What metrics.json
reports of two groups, 0 and 1, is signed: that of group 1 minus that of group 0, as in Wu et al.
(2024) eq. (4); with more groups it is the largest minus the smallest value over groups. Where a
group has no row that counts, a metric is not-a-number.

A decision that is drawn enters by its mean: what is reported is then the mean over all draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CONFIDENCE = 0.95


METRIC_OF = {
    "statistical_parity": "spd",
    "equal_opportunity": "equal_opportunity_difference",
    "equalized_odds": "equalized_odds_difference",
}
"""The metric by which a notion of fairness is measured."""


class Metric(NamedTuple):
    """A value with a 95 % interval that contains it; not-a-number where undefined."""

    value: float
    low: float
    high: float


class Scored(NamedTuple):
    """Rows with a model's scores.

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
        """The rows at these positions."""
        chance = None if self.probability is None else self.probability[index]
        return Scored(self.y[index], self.score[index], self.s[index], self.n_groups, chance)

    def grouped(self, grouping: Sequence[int]) -> Scored:
        """The rows by other groups: that of each index s, or -1 for rows that are left out."""
        if tuple(grouping) == tuple(range(self.n_groups)):
            return self
        s = np.asarray(grouping)[self.s]
        n_groups = max(grouping, default=-1) + 1
        return self._replace(s=s, n_groups=n_groups).take(np.flatnonzero(s >= 0))


def statistical_parity_difference(
    y_pred: np.ndarray, *, sensitive_features: np.ndarray, n_groups: int = 2
) -> float:
    """SPD = P(decision = +1 | s = 1) - P(decision = +1 | s = 0), Wu et al. (2024) eq. (4).

    Args:
        y_pred: [N] decision, -1 or +1, or its mean.
        sensitive_features: [N] group index, 0 to n_groups - 1.
        n_groups: number of groups that there are, whether or not they have rows here.

    Returns:
        From -1 to 1; with more than two groups the largest rate minus the smallest.

    Example:
        >>> import numpy as np
        >>> from synthfair.fairness.metrics import statistical_parity_difference
        >>> s = np.array([1, 1, 0, 0])
        >>> statistical_parity_difference(np.array([1, 1, 1, -1]), sensitive_features=s)
        0.5
    """
    s, counts = sensitive_features, np.ones(len(sensitive_features))
    return float(difference_of_rates(_rates((1 + y_pred) / 2, s, n_groups, counts)))


def demographic_parity_difference(
    y_true: ArrayLike,  # noqa: ARG001 - as fairlearn has it, so that one takes the other's place
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Max - min over groups of P(y_pred = 1 | group), the selection rates: |SPD| of two groups.

    Equals ``fairlearn.metrics.demographic_parity_difference``, as the next two do theirs with
    ``method="between_groups"`` and ``agg="worst_case"``, but for groups without a row that counts:
    where a rate is 0/0, fairlearn takes 0, and this is not-a-number.

    Args:
        y_true: [N], not read.
        y_pred: [N] decisions: 0 and 1, -1 and +1, or booleans; 1 is the positive one.
        sensitive_features: [N] groups, of any values; or columns [N, k], whose combinations are
            groups.
        sample_weight: [N] how much each row counts; all alike if None.

    Returns:
        From 0 to 1.

    Raises:
        InputError: labels of other values, such as text: compare them with the positive one first.

    Example:
        >>> import synthfair as sf
        >>> sf.fairness.demographic_parity_difference(
        ...     [1, 0, 1, 0], [1, 1, 1, 0], sensitive_features=["a", "a", "b", "b"]
        ... )
        0.5
    """
    selected = _positive(y_pred, "y_pred")
    return _gap(selected, sensitive_features, sample_weight, [np.ones(len(selected))])


def equal_opportunity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Max - min over groups of P(y_pred = 1 | y_true = 1, group), the true positive rates.

    Arguments and errors as of :func:`demographic_parity_difference`.
    """
    selected, true = _positive(y_pred, "y_pred"), _positive(y_true, "y_true")
    return _gap(selected, sensitive_features, sample_weight, [true])


def equalized_odds_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The larger of the differences of true and of false positive rates.

    Arguments and errors as of :func:`demographic_parity_difference`.
    """
    selected, true = _positive(y_pred, "y_pred"), _positive(y_true, "y_true")
    return _gap(selected, sensitive_features, sample_weight, [true, ~true])


def _positive(labels: ArrayLike, name: str) -> np.ndarray:
    """[N] which labels are 1."""
    array = np.asarray(labels)
    values = set(array.ravel().tolist())
    if not (values <= {0, 1} or values <= {-1, 1}):
        raise InputError(
            f"{name}: holds {sorted(values, key=str)[:3]}; must be 0 and 1, -1 and +1, or booleans,"
            " as of y == positive"
        )
    return array == 1


def _gap(
    selected: np.ndarray,
    sensitive_features: ArrayLike,
    sample_weight: ArrayLike | None,
    among: list[np.ndarray],
) -> float:
    """The largest, over the sets of rows ``among`` which groups are compared; [N] of each."""
    columns = np.asarray(sensitive_features)
    codes = [np.unique(c, return_inverse=True)[1] for c in columns.reshape(len(columns), -1).T]
    groups, s = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    weight = np.ones(len(s)) if sample_weight is None else np.asarray(sample_weight, float)
    return float(np.max([np.ptp(_rates(selected, s, len(groups), weight * a)) for a in among]))


def _rates(selected: np.ndarray, s: np.ndarray, n_groups: int, counts: np.ndarray) -> np.ndarray:
    """[n_groups] share of what counts that is selected; not-a-number where nothing counts."""
    size = np.bincount(s, weights=counts, minlength=n_groups)
    hits = np.bincount(s, weights=counts * selected, minlength=n_groups)
    return np.divide(hits, size, out=np.full(n_groups, np.nan), where=size > 0)


def difference_of_rates(rates: np.ndarray) -> np.ndarray:
    """Between groups, of rates [n_groups, ...]; not-a-number where one is."""
    if len(rates) == 2:
        return rates[1] - rates[0]
    return rates.max(axis=0) - rates.min(axis=0)


class Rates(NamedTuple):
    """What one group meets with; not-a-number where it has no row that counts.

    Attributes:
        n: number of its rows.
        selection_rate: P(decision = +1).
        true_positive_rate: the same among its rows with y = +1.
        false_positive_rate: the same among its rows with y = -1.
        error_rate: P(decision != y).
    """

    n: int
    selection_rate: float
    true_positive_rate: float
    false_positive_rate: float
    error_rate: float


def group_rates(rows: Scored) -> list[Rates]:
    """The rates of each group, 0 to n_groups - 1."""
    selected, rates = rows.selected, []
    for group in range(rows.n_groups):
        mine, y = selected[rows.s == group], rows.y[rows.s == group]
        parts = (mine, mine[y > 0], mine[y < 0], np.abs(mine - (1 + y) / 2))
        rates.append(Rates(len(y), *(float(p.mean()) if len(p) else np.nan for p in parts)))
    return rates
