"""Gaps of sites' noisy counts, with intervals of score tests in closed form."""

from itertools import combinations, product
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import brentq

from synthfair.measure.gaps_file import gaps_of_counts

COUNTS = np.array([[[900, 100], [850, 150]], [[60, 40], [50, 50]], [[6, 4], [-2, 32]]])
"""[group, label -1 and +1, decision -1 and +1]; noise makes one negative."""


def limits(misses, hits, *, epsilon, sites, confidence):
    """Rate, and the rates at which the score test just does not reject."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    z *= 1 + max(z**2 - 3, 0) / (8 * sites)
    n, p = hits + misses, np.exp(-epsilon)
    hits = min(hits, n)
    v = sites * 2 * p / (1 - p) ** 2

    def rejected(r):
        variance = n * r * (1 - r) + v * ((1 - r) ** 2 + r**2)
        return (hits - r * n) ** 2 - z**2 * variance

    ends = [brentq(rejected, r, hits / n) if rejected(r) > 0 else r for r in (0, 1)]
    return hits / n, *ends


@pytest.mark.parametrize(("sites", "confidence"), [(3, 0.95), (1, 0.99)])
def test_gaps_of_counts_are_second_minus_first_with_intervals_of_score_tests(sites, confidence):
    options = {"epsilon": 0.8, "sites": sites, "confidence": confidence}
    found = gaps_of_counts(COUNTS, ("a", "b", "c"), **options)
    wanted = product((("true", 1), ("false", 0)), combinations(range(3), 2))
    for gap, ((rate, label), pair) in zip(found, wanted, strict=True):
        first, second = (limits(*COUNTS[g, label], **options) for g in pair)
        (p, low_p, high_p), (q, low_q, high_q) = first, second
        assert (gap.rate, gap.first, gap.second) == (
            f"{rate}_positive_rate",
            *("abc"[g] for g in pair),
        )
        expected = q - p - np.hypot(q - low_q, high_p - p), q - p + np.hypot(high_q - q, p - low_p)
        assert (gap.value, gap.low, gap.high) == pytest.approx((q - p, *expected))
