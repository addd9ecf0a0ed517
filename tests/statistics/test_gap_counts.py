"""Counts of a model's decisions: the noise of their epsilon, and intervals as wide as they say."""

from fractions import Fraction

import numpy as np
import pytest

from synthfair.fairness.metrics import Scored
from synthfair.measure.gaps_file import gaps_of_counts, noisy_counts
from synthfair.privacy.noise import discrete_laplace, seeded


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


@pytest.mark.parametrize("sites", [1, 4])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_intervals_hold_as_often_as_they_say(sites, epsilon, confidence):
    """Of samples of a population, with the noise of each site; 4.5 standard errors of 1,000."""
    rng, source = np.random.default_rng(1), seeded(1)
    size, rates, held = 250, np.array([0.1, 0.4]), []
    for _ in range(500):
        hits = rng.binomial(size, [rates, rates], (sites, 2, 2)).sum(axis=0).T  # [group, label]
        counts = np.stack([sites * size - hits, hits], axis=2)
        noise = discrete_laplace(1 / Fraction(repr(epsilon)), sites * 8, source)
        counts += noise.reshape(sites, 2, 2, 2).sum(axis=0)
        options = {"epsilon": epsilon, "sites": sites, "confidence": confidence}
        gaps = gaps_of_counts(counts, ("a", "b"), **options)
        held += [gap.low <= 0.3 <= gap.high for gap in gaps]
    assert np.mean(held) > confidence - 4.5 * np.sqrt((1 - confidence) * confidence / 1000)


def test_group_that_may_be_noise_leaves_all_open():
    counts = np.array([[[900, 100], [800, 200]], [[3, -2], [1, 4]]])
    for gap in gaps_of_counts(counts, ("a", "b"), epsilon=0.5, sites=2, confidence=0.95):
        assert gap.model_dump(mode="json")["value"] is None
        assert (gap.low, gap.high) == (-1, 1)


def test_decisions_of_coins_are_drawn():
    rows = Scored(np.ones(4000), np.ones(4000), np.zeros(4000, int), 2, np.full(4000, 0.25))
    counts = noisy_counts(rows, 100.0, seeded(0))
    assert counts[0, 1].sum() == 4000
    assert counts[0, 1, 1] == pytest.approx(1000, abs=5 * np.sqrt(4000 * 0.25 * 0.75))
