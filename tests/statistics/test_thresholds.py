"""What noise does to thresholds and to the estimates of their effect."""

import numpy as np
from scipy.stats import norm
from score_rows import histogram_of, scored_rows

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
