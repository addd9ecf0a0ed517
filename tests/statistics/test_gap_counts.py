"""Counts of a model's decisions: the noise of their epsilon, and intervals as wide as they say."""

import numpy as np
import pytest

from synthfair.fairness.metrics import Scored
from synthfair.measure.gaps_file import gaps_of_counts, noisy_counts
from synthfair.privacy.noise import seeded


def test_counts_have_the_noise_of_their_epsilon():
    """Mean and variance of 4,000 counts, by a known seed; noise of half or twice as much fails."""
    rows = Scored(np.ones(9), np.ones(9), np.arange(9) % 2, 2, np.ones(9))
    true, source = np.zeros((2, 2, 2)), seeded(0)
    true[:, 1, 1] = 5, 4
    noise = [noisy_counts(rows, 0.5, source) - true for _ in range(500)]
    ratio = np.exp(-0.5)  # P(k) is proportional to ratio^|k|
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(np.mean(noise)) < 5 * np.sqrt(variance / 4000)
    assert abs(np.mean(np.square(noise)) / variance - 1) < 5 * np.sqrt(5 / 4000)


def test_group_that_may_be_noise_leaves_all_open():
    """Of 11 rows, as 11.5 are within the noise; or of fewer than none."""
    counts = np.array([[[900, 100], [800, 200]], [[6, 5], [-400, 99]]])
    for gap in gaps_of_counts(counts, ("a", "b"), epsilon=0.5, sites=2, confidence=0.95):
        assert gap.model_dump(mode="json")["value"] is None
        assert (gap.low, gap.high) == (-1, 1)


def test_decisions_of_coins_are_drawn():
    rows = Scored(np.ones(4000), np.ones(4000), np.zeros(4000, int), 2, np.full(4000, 0.25))
    counts = noisy_counts(rows, 100.0, seeded(0))
    assert counts[0, 1].sum() == 4000
    assert counts[0, 1, 1] == pytest.approx(1000, abs=5 * np.sqrt(4000 * 0.25 * 0.75))
