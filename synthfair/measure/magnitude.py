"""The size of a gap, from a noisy signed one."""

from __future__ import annotations

import math
from statistics import NormalDist

_NORMAL = NormalDist()

STEPS = 12
"""To 1e-4 errors where there is hardly a gap, and to the last digit elsewhere."""


def folded_mean(theta: float) -> float:
    """E |theta + Z| for a standard normal Z: theta (2 Phi(theta) - 1) + 2 phi(theta)."""
    return theta * (2 * _NORMAL.cdf(theta) - 1) + 2 * _NORMAL.pdf(theta)


def unfolded(value: float, error: float) -> float:
    """The size theta of a true gap for which E |value| is |value|, or 0 where there is none.

    The size of a noisy gap is sqrt(2 / pi) errors on average where there is no gap at all (Leone,
    Nelson and Nottingham 1961). No estimate of it is unbiased: this one is on average half an error
    too large where there is no gap, and from half an error on within 0.12 errors of the truth.

    Args:
        value: signed estimate, taken to be normal.
        error: its standard error, not negative; infinite where it is not known.
    """
    if not math.isfinite(value) or math.isinf(error):
        return math.nan
    if abs(value) >= 9 * error:  # where the mean size is the size, to the last digit
        return abs(value)
    wanted = theta = abs(value) / error
    if wanted <= folded_mean(0.0):
        return 0.0
    for _ in range(STEPS):  # Newton's: a convex function, from above its root
        slope = 2 * _NORMAL.cdf(theta) - 1
        theta -= (folded_mean(theta) - wanted) / slope
    return theta * error
