"""Gaps of sites' noisy counts: the noise of counts, and intervals in closed form."""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import brentq

from synthfair.fairness.metrics import Scored
from synthfair.measure.gaps_file import gaps_of_counts, noisy_counts
from synthfair.privacy.noise import seeded

COUNTS = np.array([[[900, 100], [850, 150]], [[60, 40], [50, 50]]])
"""[group, label -1 and +1, decision -1 and +1]."""


def test_noisy_counts_are_of_rows_by_group_label_and_decision_with_the_noise_of_epsilon():
    s, y, d = (np.repeat(part.ravel(), COUNTS.ravel()) for part in np.indices((2, 2, 2)))
    rows = Scored(2.0 * y - 1, 2.0 * d - 1, s)
    np.testing.assert_array_equal(noisy_counts(rows, 100.0, seeded(0)), COUNTS)
    source = seeded(1)
    noise = np.array([noisy_counts(rows, 0.5, source) - COUNTS for _ in range(400)])
    ratio = np.exp(-0.5)  # P(k) is proportional to ratio^|k|; 4.9 standard errors of 3,200
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(noise.mean()) < 4.9 * np.sqrt(variance / 3200)
    assert noise.var() == pytest.approx(variance, abs=4.9 * variance * np.sqrt(5 / 3200))


def test_noisy_counts_of_coins_are_drawn_with_their_probability():
    rows = Scored(np.ones(4000), np.ones(4000), np.zeros(4000, int), 2, np.full(4000, 0.25))
    counts = noisy_counts(rows, 100.0, seeded(0))
    assert counts[0, 1].sum() == 4000
    assert counts[0, 1, 1] == pytest.approx(1000, abs=4.9 * np.sqrt(4000 * 0.25 * 0.75))


def limits(misses, hits, *, epsilon, sites, confidence):
    """Rate, and the rates at which the score test just does not reject."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    z *= 1 + max(z**2 - 3, 0) / (8 * sites)
    n, p = hits + misses, np.exp(-epsilon)
    v = sites * 2 * p / (1 - p) ** 2

    def rejected(r):
        noise = v * ((1 - r) ** 2 + r**2)
        return (hits - r * n) ** 2 - z**2 * (n * r * (1 - r) + noise)

    rate = hits / n
    ends = [brentq(rejected, end, rate) if rejected(end) > 0 else end for end in (0.0, 1.0)]
    return rate, *ends


@pytest.mark.parametrize(("epsilon", "sites", "confidence"), [(1.0, 3, 0.95), (0.8, 1, 0.99)])
def test_gaps_of_counts_are_second_minus_first_with_intervals_of_score_tests(
    epsilon, sites, confidence
):
    options = {"epsilon": epsilon, "sites": sites, "confidence": confidence}
    found = gaps_of_counts(COUNTS, ("a", "b"), **options)
    for gap, rate, label in zip(found, ("true", "false"), (1, 0), strict=True):
        (p, low_p, high_p), (q, low_q, high_q) = (limits(*own[label], **options) for own in COUNTS)
        assert (gap.rate, gap.first, gap.second) == (f"{rate}_positive_rate", "a", "b")
        expected = q - p - np.hypot(q - low_q, high_p - p), q - p + np.hypot(high_q - q, p - low_p)
        assert gap.value == pytest.approx(q - p)
        assert (gap.low, gap.high) == pytest.approx(expected)
    assert [gap.value for gap in found] == pytest.approx([0.35, 0.3])


def test_gaps_of_a_group_that_may_be_noise_are_open():
    counts = np.array([[[900, 100], [800, 200]], [[3, -2], [1, 4]]])
    for gap in gaps_of_counts(counts, ("a", "b"), epsilon=0.5, sites=2, confidence=0.95):
        assert np.isnan(gap.value)
        assert (gap.low, gap.high) == (-1, 1)
