"""Thresholds, and mixtures of thresholds, that are best where groups' rates may hardly differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROUNDING = 1e-12
"""By which rates may differ that are equal but for rounding."""

LEAST_WEIGHT = 1e-9
"""Of a threshold in a mixture; what is below is rounding of the linear programme."""


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
        >>> from synthfair.postprocess.search import best_thresholds
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
        start = np.stack([np.searchsorted(-own, -high) for own in rate])
        stop = np.stack([np.searchsorted(-own, -low, side="right") for own in rate])
        return start, stop

    def largest_sums(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """[W] sum over groups of the largest value of a stretch; -inf where one is empty.

        Two stretches of 2^k thresholds cover one of up to 2^(k + 1).
        """
        length = stop - start
        k = np.log2(np.maximum(length, 1)).astype(int)
        both = np.maximum(maxima[k, each, start], maxima[k, each, stop - 2**k])
        return np.where(length > 0, both, -np.inf).sum(axis=0)

    first, last = stretches(rates[0]), stretches(rates[-1])
    bounds = largest_sums(*first)
    best, chosen = -np.inf, np.zeros(n_groups, int)
    for window in np.argsort(-bounds, kind="stable"):
        if bounds[window] <= best:
            break
        start = np.maximum(first[0][:, [window]], last[0])
        stop = np.minimum(first[1][:, [window]], last[1])
        sums = largest_sums(start, stop)
        if sums.max() > best:
            best, other = sums.max(), sums.argmax()
            ends = zip(value, start[:, other], stop[:, other], strict=True)
            chosen = np.array([a + own[a:b].argmax() for own, a, b in ends])
    return chosen


def upper_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the vertices of the upper convex hull of points [T], from left to right.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.search import upper_hull
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
    group = np.repeat(np.arange(n_groups), [len(own) for own in vertices])
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
    weights, solved = np.zeros(value.shape), solution.x[: len(group)]
    weights[place] = np.where(solved < LEAST_WEIGHT, 0.0, solved)
    return weights / weights.sum(axis=1, keepdims=True)
