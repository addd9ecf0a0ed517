"""Decisions by group, chosen from a histogram of scores that may have noise in it.

PrivFairFL-Post (Pentyala et al. 2022, protocols 3 and 4), of one histogram in place of a confusion
matrix for each threshold: a row is in one entry, and so its noise protects all thresholds at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.config.rules import Notion, notion_of
from synthfair.errors import InputError
from synthfair.postprocess.decision import MOST_BINS, GroupDecision
from synthfair.postprocess.histogram import BOTH, ScoreHistogram, require_rows

_COMPARED: dict[Notion, tuple[tuple[int, ...], ...]] = {
    "statistical_parity": (BOTH,),
    "equal_opportunity": ((1,),),
    "equalized_odds": ((1,), (0,)),
}
"""Labels, 0 for -1 and 1 for +1, of the rows of which each rate is the selected share."""

ROUNDING = 1e-12
"""The largest difference of rates that are equal but for rounding."""

LEAST_WEIGHT = 1e-9
"""The least weight of a threshold in a mixture; less is rounding of the linear programme."""


class NoisyShare(NamedTuple):
    """A share that was estimated from noisy counts.

    Attributes:
        value: the estimate.
        error: its standard error due to the noise, to first order; 0 without noise. What other
            rows would have given is not in it.
    """

    value: float
    error: float


class DecisionChoice(NamedTuple):
    """Decisions, and what they do to the rows of the histogram.

    Attributes:
        decision: by group and score.
        accuracy: share of right decisions, on average over coins.
        gap: largest difference of the notion's rates between two groups, likewise.
        constant_accuracy: of the more frequent label for everybody.
    """

    decision: GroupDecision
    accuracy: NoisyShare
    gap: NoisyShare
    constant_accuracy: NoisyShare


def choose_decision(
    histogram: ScoreHistogram, notion: Notion, alpha: float, *, randomized: bool = False
) -> DecisionChoice:
    """The most accurate decisions by group and score whose rates differ by at most alpha.

    Compared are, between groups, P(+1) for statistical parity, P(+1 | y = +1) for equal
    opportunity, and P(+1 | y = +1) and P(+1 | y = -1) for equalized odds. Decisions are a threshold
    for each group, the best of all combinations; or, randomised, a mixture of thresholds for each
    group, the best of all mixtures: points on or below the upper convex hull of its ROC curve. With
    alpha = 0 that is the rule of Hardt, Price and Srebro (2016).

    To choose, counts below 0 are taken as 0, so that rates rise with the threshold and lie in
    [0, 1]. To estimate what was chosen, they count as they are: sums of them have no bias. The
    estimated gap can therefore exceed alpha where there is noise; and since the best was chosen,
    both estimates tend to flatter. They flatter more where the model was trained on the rows that
    are counted: count others.

    Guarantee: that of the histogram, as nothing else of the rows is read; the decision carries its
    statement.

    Args:
        histogram: of scores, with two bins or more.
        notion: statistical_parity, equal_opportunity or equalized_odds.
        alpha: from 0 to below 1.
        randomized: whether decisions may be drawn by coins.

    Raises:
        InputError: no such notion; alpha out of range; plain counts, or too many bins; or a group
            whose rows of a label that the notion compares do not stand out from the noise.

    Example:
        >>> import synthfair as sf
        >>> histogram = sf.postprocess.ScoreHistogram(
        ...     schema_hash="0" * 64, model="0" * 64, groups=("a", "b"),
        ...     counts=(((8, 1, 1), (0, 2, 8)), ((6, 3, 1), (4, 4, 2))),
        ... )
        >>> chosen = sf.postprocess.choose_decision(histogram, "equal_opportunity", 0.25)
        >>> chosen.decision.steps, round(chosen.accuracy.value, 3), round(chosen.gap.value, 3)
        ((((2, 1.0),), ((1, 1.0),)), 0.725, 0.2)
        >>> mixed = sf.postprocess.choose_decision(
        ...     histogram, "equal_opportunity", 0.1, randomized=True
        ... )
        >>> mixed.decision.steps, round(mixed.accuracy.value, 4), round(mixed.gap.value, 3)
        ((((1, 1.0),), ((0, 0.75), (1, 1.0))), 0.7125, 0.1)
    """
    n_bins = histogram.array().shape[2]
    if not 0 <= alpha < 1:
        raise InputError(f"alpha = {alpha}: must be from 0 to below 1")
    if not 2 <= n_bins <= MOST_BINS:
        raise InputError(f"histogram: bins: {n_bins}; thresholds need 2 to {MOST_BINS}")
    notion = notion_of(notion)
    labels_of_rates = _COMPARED[notion]
    require_rows(histogram, (*labels_of_rates, BOTH))

    # selected [G, 2, B + 1]: rows in bin t or above, by label; none for t = B.
    counts = np.maximum(histogram.array(), 0)
    above = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1].astype(float)
    selected = np.concatenate([above, np.zeros((*above.shape[:-1], 1))], axis=-1)
    rows = [selected[:, list(labels)].sum(axis=1) for labels in labels_of_rates]
    rates = [some / some[:, :1] for some in rows]
    negative, positive = selected.swapaxes(0, 1)
    right = positive + negative[:, :1] - negative

    # The best threshold of each group, or weights of some.
    if randomized:
        hulls = [upper_hull(f, t) for f, t in zip(negative, positive, strict=True)]
        weights = best_mixture(rates, right, alpha, hulls)
    else:
        weights = np.eye(n_bins + 1)[best_thresholds(rates, right, alpha)]

    # A row in bin b is selected by the thresholds up to b.
    chance = np.minimum(np.cumsum(weights, axis=1).round(12), 1.0)
    steps = tuple(
        tuple((int(t), float(chances[t])) for t in np.flatnonzero(weight[:-1]))
        for chances, weight in zip(chance, weights, strict=True)
    )

    # The key of the coins follows from the model, the schema and the counts alone. Who chooses the
    # settings cannot look among them for a key whose coins fall well; who can alter counts can.
    text = json.dumps([histogram.schema_hash, histogram.model, histogram.counts])
    certain = all(probability == 1 for chances in steps for _, probability in chances)
    decision = GroupDecision(
        notion=notion,
        alpha=alpha,
        n_bins=n_bins,
        steps=steps,
        key=None if certain else hashlib.sha256(text.encode()).hexdigest(),
        statement=histogram.statement,
    )
    return DecisionChoice(decision, *_estimates(histogram, notion, weights))


def _estimates(
    histogram: ScoreHistogram, notion: Notion, weights: np.ndarray
) -> tuple[NoisyShare, NoisyShare, NoisyShare]:
    """Accuracy, gap, and accuracy of the constant classifier, of weights of thresholds."""
    counts = histogram.array()
    chance = np.cumsum(weights, axis=1)[:, None, :-1]
    everyone = np.ones(counts.shape)
    positive = everyone * np.array([0, 1])[:, None]

    def share(hits: np.ndarray, among: np.ndarray) -> NoisyShare:
        """Sum of hits over sum of among, arrays of counts' shape that multiply them."""
        rows = float((among * counts).sum())
        value = float((hits * counts).sum()) / rows
        spread = ((hits - value * among) ** 2).sum()
        return NoisyShare(value, math.sqrt(histogram.variance * spread) / rows)

    gaps = []
    for labels in _COMPARED[notion]:
        rates = []
        for group in range(len(counts)):
            among = np.zeros(counts.shape)
            among[group, list(labels)] = 1
            rates.append(share(among * chance, among))
        high, low = max(rates), min(rates)
        gaps.append(NoisyShare(high.value - low.value, math.hypot(high.error, low.error)))
    accuracy = share(np.where(positive, chance, 1 - chance), everyone)
    constant = max(share(label, everyone) for label in (1 - positive, positive))
    return accuracy, max(gaps), constant


def best_thresholds(rates: Sequence[np.ndarray], value: np.ndarray, alpha: float) -> np.ndarray:
    """[G] a threshold for each group, with the largest sum of values under the constraints.

    Rates differ by at most alpha between groups if and only if a window [low, low + alpha] holds
    them all, and low may be the smallest of them. As rates fall with the threshold, those of a
    group in a window are a stretch of thresholds. Exact, for any number of groups: every window of
    the first rate is tried with every window of the last, the most promising first, until no other
    can be better. Two rates of G groups and T thresholds take at most G T passes over G T numbers.

    Args:
        rates: one or two, each [G, T], which never rise with the threshold.
        value: [G, T] of each threshold.
        alpha: most by which a rate may differ between two groups; at least 0. Some choice must be
            possible.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.thresholds import best_thresholds
        >>> rate = np.array([[1.0, 0.5, 0.0], [1.0, 0.4, 0.0]])
        >>> value = np.array([[4.0, 2.0, 1.0], [0.0, 3.0, 1.0]])
        >>> [best_thresholds([rate], value, alpha).tolist() for alpha in (0.0, 0.1, 0.6)]
        [[0, 0], [1, 1], [0, 1]]
    """
    n_groups, n_thresholds = value.shape
    each = np.arange(n_groups)[:, None]

    # maxima[k][g, t] is the largest of the 2^k values from t on.
    levels = n_thresholds.bit_length()
    maxima = np.full((levels, n_groups, n_thresholds + 1), -np.inf)
    maxima[0, :, :-1] = value
    for k in range(1, levels):
        half = 2 ** (k - 1)
        maxima[k, :, :-half] = np.maximum(maxima[k - 1, :, :-half], maxima[k - 1, :, half:])

    def stretches(rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[G, W] first threshold in each window, and the first behind it."""
        low = np.unique(rate)
        high = low + alpha + ROUNDING
        start = np.stack([np.searchsorted(-of_group, -high) for of_group in rate])
        stop = np.stack([np.searchsorted(-of_group, -low, side="right") for of_group in rate])
        return start, stop

    def largest_sums(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """[W] sum over groups of the largest value of a stretch; -inf where one is empty.

        Two stretches of 2^k thresholds cover one of up to 2^(k + 1).
        """
        length = stop - start
        k = np.log2(np.maximum(length, 1)).astype(int)
        largest = np.maximum(maxima[k, each, start], maxima[k, each, stop - 2**k])
        return np.where(length > 0, largest, -np.inf).sum(axis=0)

    # Windows of the first rate by their bounds, until no further one can be better.
    first, last = stretches(rates[0]), stretches(rates[-1])
    bounds = largest_sums(*first)
    best, thresholds = -np.inf, np.zeros(n_groups, int)
    for window in np.argsort(-bounds, kind="stable"):
        if bounds[window] <= best:
            break
        start = np.maximum(first[0][:, [window]], last[0])
        stop = np.minimum(first[1][:, [window]], last[1])
        sums = largest_sums(start, stop)
        if sums.max() > best:
            best, other = sums.max(), sums.argmax()
            ends = zip(value, start[:, other], stop[:, other], strict=True)
            thresholds = np.array([a + own[a:b].argmax() for own, a, b in ends])
    return thresholds


def upper_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the vertices of the upper convex hull of points [T], from left to right.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.thresholds import upper_hull
        >>> upper_hull(np.array([0.0, 0.3, 0.6, 1.0]), np.array([0.0, 0.8, 0.7, 1.0])).tolist()
        [0, 1, 3]
    """
    hull: list[int] = []
    for i in np.lexsort((y, x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (x[b] - x[a]) * (y[i] - y[a]) < (y[b] - y[a]) * (x[i] - x[a]):
                break  # a right turn at b
            hull.pop()
        hull.append(int(i))
    return np.array(hull)


def best_mixture(
    rates: Sequence[np.ndarray],
    value: np.ndarray,
    alpha: float,
    vertices: Sequence[np.ndarray],
) -> np.ndarray:
    """[G, T] weights of each group's thresholds, of sum 1, with the largest weighted sum of values.

        maximise  sum_gt w_gt value_gt   such that   low_r <= sum_t w_gt rate_rgt <= low_r + alpha

    for every group g and rate r, low_r being free: a linear programme. With alpha = 0 it is that
    of Hardt, Price and Srebro (2016), section 3.2, whose points are the same for all groups.

    Args:
        rates: each [G, T].
        value: [G, T] of each threshold.
        alpha: most by which a rate may differ between two groups; at least 0. Some choice must be
            possible.
        vertices: the thresholds of each group that may have a weight.

    Raises:
        ArithmeticError: the programme is not solved, which a possible choice rules out.
    """
    from scipy.optimize import linprog

    n_groups, n_rates = len(value), len(rates)
    group = np.repeat(np.arange(n_groups), [len(corners) for corners in vertices])
    place = group, np.concatenate(vertices)
    member = (group == np.arange(n_groups)[:, None]).astype(float)
    above = np.vstack(
        [
            np.hstack([member * rate[place], np.tile(-low, (n_groups, 1))])
            for rate, low in zip(rates, np.eye(n_rates), strict=True)
        ]
    )
    solution = linprog(
        np.append(-value[place] / np.abs(value).max(), np.zeros(n_rates)),
        A_ub=np.vstack([above, -above]),
        b_ub=np.repeat([alpha, 0.0], len(above)),
        A_eq=np.hstack([member, np.zeros((n_groups, n_rates))]),
        b_eq=np.ones(n_groups),
        bounds=[(0, 1)] * (len(group) + n_rates),
    )
    if not solution.success:
        raise ArithmeticError(f"linear programme: {solution.message}")
    weights, shares = np.zeros(value.shape), solution.x[: len(group)]
    weights[place] = np.where(shares < LEAST_WEIGHT, 0.0, shares)
    return weights / weights.sum(axis=1, keepdims=True)
