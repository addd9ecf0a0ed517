"""Gaps of sites' noisy counts, with intervals of score tests in closed form."""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import brentq

from synthfair.measure.gaps_file import gaps_of_counts

COUNTS = np.array([[[900, 100], [850, 150]], [[60, 40], [50, 50]]])
"""[group, label -1 and +1, decision -1 and +1]."""


def limits(misses, hits, *, epsilon, sites, confidence):
    """Rate, and the rates at which the score test just does not reject."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    z *= 1 + max(z**2 - 3, 0) / (8 * sites)
    n, p = hits + misses, np.exp(-epsilon)
    v = sites * 2 * p / (1 - p) ** 2

    def rejected(r):
        variance = n * r * (1 - r) + v * ((1 - r) ** 2 + r**2)
        return (hits - r * n) ** 2 - z**2 * variance

    return hits / n, brentq(rejected, 0, hits / n), brentq(rejected, hits / n, 1)


@pytest.mark.parametrize(("sites", "confidence"), [(3, 0.95), (1, 0.99)])
def test_gaps_of_counts_are_second_minus_first_with_intervals_of_score_tests(sites, confidence):
    options = {"epsilon": 0.8, "sites": sites, "confidence": confidence}
    found = gaps_of_counts(COUNTS, ("a", "b"), **options)
    for gap, rate, label in zip(found, ("true", "false"), (1, 0), strict=True):
        (p, low_p, high_p), (q, low_q, high_q) = (limits(*own[label], **options) for own in COUNTS)
        assert (gap.rate, gap.first, gap.second) == (f"{rate}_positive_rate", "a", "b")
        expected = q - p - np.hypot(q - low_q, high_p - p), q - p + np.hypot(high_q - q, p - low_p)
        assert (gap.value, gap.low, gap.high) == pytest.approx((q - p, *expected))
    assert [gap.value for gap in found] == pytest.approx([0.35, 0.3])
