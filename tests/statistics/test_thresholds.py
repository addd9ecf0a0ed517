"""What noise does to thresholds and to the estimates of their effect."""

import numpy as np
import pytest
from scipy.stats import norm
from score_rows import histogram_of, metrics, scored_rows
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.fairness.metrics import Scored
from synthfair.postprocess import choose_decision
from synthfair.postprocess.thresholds import _estimates


def test_thresholds_of_noisy_counts_err_as_they_say():
    """z-scores of 400 draws have mean 0 and deviation 1; false alarm once in a million.

    The planted bug, the noise of one aggregator in place of two, gives a deviation of 1.41.
    """
    z, s, y = scored_rows()
    clean, rng = histogram_of(z, s, y), np.random.default_rng(0)
    weights = np.eye(12)[[4, 7]]
    true, found = _estimates(clean, "statistical_parity", weights), []
    for _ in range(400):
        noisy = histogram_of(z, s, y, noise=(0.5, rng))
        estimates = _estimates(noisy, "statistical_parity", weights)
        found.append([(e.value - t.value) / e.error for e, t in zip(estimates, true, strict=True)])
    bound, deviation = norm.isf(0.5e-6 / 6), np.std(found, axis=0)
    assert (np.abs(np.mean(found, axis=0)) < bound / 20).all()
    far = bound / np.sqrt(2 * 400) * 1.1  # heavier tails
    assert (np.abs(deviation - 1) < far).all()
    assert (np.abs(1.41 * deviation - 1) > far).all()


def after(scored, s, y, histogram):
    """Gap and accuracy of the best mixture without a gap, on the rows themselves."""
    chosen = choose_decision(histogram, "equalized_odds", 0.0, randomized=True).decision
    found = metrics(Scored(y, scored, s, probability=chosen.probabilities(scored, s)))
    return np.array([found["equalized_odds_difference"], found["accuracy"]])


def test_thresholds_of_noisy_counts_are_nearly_as_good():
    """With epsilon = 1 and two aggregators, 20,000 rows."""
    z, s, y = scored_rows(20_000)
    noisy = histogram_of(z, s, y, 51, noise=(1.0, np.random.default_rng(1)))
    assert noisy.array().min() < 0
    gap, accuracy = after(z, s, y, noisy)
    assert gap < 0.02
    assert accuracy > after(z, s, y, histogram_of(z, s, y, 51))[1] - 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
def test_thresholds_of_noisy_counts_of_adult_have_a_gap_below_a_hundredth():
    """On average over five histograms with epsilon = 1; without noise it is 0.005 at most."""
    x, s, y = sf.encode(*sf.load_dataset("adult"))
    z = LogisticRegression(max_iter=100, tol=1e-2).fit(x, y).decision_function(x)
    clean = after(z, s, y, histogram_of(z, s, y, 101))
    noisy = np.mean([after(z, s, y, histogram_of(z, s, y, 101, noise=(1.0, np.random.default_rng(
        seed)))) for seed in range(5)], axis=0)  # fmt: skip
    assert clean[0] < 0.005 < metrics(Scored(y, z, s))["equalized_odds_difference"] / 2
    assert noisy[0] < 0.01
    assert noisy[1] > clean[1] - 0.002
