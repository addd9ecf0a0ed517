"""Thresholds, and mixtures of thresholds, that are best where groups' rates may hardly differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROUNDING = 1e-12
"""By which rates may differ that are equal but for rounding."""

LEAST_WEIGHT = 1e-9
"""Of a threshold in a mixture; what is below is rounding of the linear programme."""


class _Windows:
    """Windows [low, low + alpha] of a rate [G, T], low being each of its W values in turn.

    One threshold of each group is chosen: their rates differ by at most alpha if and only if some
    window holds them all.
    """

    def __init__(self, rate: np.ndarray, alpha: float) -> None:
        self.rate, self.low = rate, np.unique(rate)
        self.high = self.low + alpha + ROUNDING
        self.order = np.argsort(rate, axis=1)
        ordered = np.take_along_axis(rate, self.order, axis=1)
        self.start = np.stack([np.searchsorted(own, self.low) for own in ordered])
        self.stop = np.stack([np.searchsorted(own, self.high, side="right") for own in ordered])

    def inside(self, window: int) -> np.ndarray:
        """[G, T] whether each threshold's rate lies in a window."""
        return (self.rate >= self.low[window]) & (self.rate <= self.high[window])

    def best(self, value: np.ndarray) -> np.ndarray:
        """[W] sum over groups of the largest value [G, T] in a window; -inf where a group has none.

        Two stretches of 2^k thresholds, in the order of their rates, cover a window of up to
        2^(k + 1); the largest value of every stretch of each length is computed once.
        """
        length = self.stop - self.start
        largest = np.full(length.shape, -np.inf)
        stretches = np.take_along_axis(value, self.order, axis=1)
        for width in (2**k for k in range(value.shape[1].bit_length())):
            if half := width // 2:
                stretches = np.maximum(stretches[:, :-half], stretches[:, half:])
            g, w = np.nonzero((length >= width) & (length < 2 * width))
            first, last = self.start[g, w], self.stop[g, w] - width
            largest[g, w] = np.maximum(stretches[g, first], stretches[g, last])
        return largest.sum(axis=0)


def best_thresholds(rates: Sequence[np.ndarray], value: np.ndarray, alpha: float) -> np.ndarray:
    """[G] a threshold for each group, with the largest sum of values under the constraints.

    Exact, for any number of groups: every window of the first rate is tried with every window of
    the last, the most promising first, until no other can be better. Two rates of G groups and T
    thresholds take at most G T passes over G T numbers.

    Args:
        rates: one or two, each [G, T].
        value: [G, T] of each threshold.
        alpha: most by which a rate may differ between two groups; at least 0. Some choice must be
            possible.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.search import best_thresholds
        >>> rate = np.array([[0.0, 0.5, 1.0], [0.0, 0.4, 1.0]])
        >>> value = np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 0.0]])
        >>> [best_thresholds([rate], value, alpha).tolist() for alpha in (0.0, 0.1, 0.6)]
        [[2, 2], [1, 1], [2, 1]]
    """
    first, last = _Windows(rates[0], alpha), _Windows(rates[-1], alpha)
    bounds = first.best(value)
    best, chosen = -np.inf, np.zeros(len(value), int)
    for window in np.argsort(-bounds, kind="stable"):
        if bounds[window] <= best:
            break
        allowed = np.where(first.inside(window), value, -np.inf)
        totals = last.best(allowed)
        if totals.max() > best:
            best, inside = totals.max(), last.inside(int(totals.argmax()))
            chosen = np.where(inside, allowed, -np.inf).argmax(axis=1)
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
    found = linprog(
        np.append(-value[place] / np.abs(value).max(), np.zeros(n_rates)),
        A_ub=np.vstack([above, -above]),
        b_ub=np.repeat([alpha, 0.0], len(above)),
        A_eq=np.hstack([member, np.zeros((n_groups, n_rates))]),
        b_eq=np.ones(n_groups),
        bounds=[(0, 1)] * (len(group) + n_rates),
    )
    if not found.success:
        raise ArithmeticError(f"linear programme: {found.message}")
    weights, solved = np.zeros(value.shape), found.x[: len(group)]
    weights[place] = np.where(solved < LEAST_WEIGHT, 0.0, solved)
    return weights / weights.sum(axis=1, keepdims=True)
