"""The published protocol of PrivFairFL-Post on shares: its counts, its noise, and its page."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, gamma, kstest, laplace

from benchmarks.privfairfl.peer import (
    ADULT,
    INSTALLED,
    PeerSetting,
    PeerValues,
    run_parties,
    show_peer,
)
from benchmarks.runs import Run, Runs

needs_mpyc = pytest.mark.skipif(not INSTALLED, reason="MPyC is in the extra bench alone")


def plain_counts(rows, thresholds):
    """[8, T], row by row."""
    counts = np.zeros((2, 2, 2, thresholds), int)  # label, decision, group
    for score, y, s in rows.T:
        for t in range(thresholds):
            accepted = score >= round(Fraction(2**16 * t, thresholds - 1))
            counts[y, int(accepted), s, t] += 1
    ordered = [(1, 1), (0, 1), (1, 0), (0, 0)]  # TP, FP, FN, TN
    return np.array([counts[*cell, s] for cell in ordered for s in (1, 0)])


def some_rows():
    """All pairs of group and label, with scores at the ends, at a threshold and just below it."""
    scores = [0, 1, round(2**16 * 0.3), round(2**16 * 0.3) - 1, 40_000, 2**16]
    return np.array([(score, y, s) for score in scores for y in (0, 1) for s in (0, 1)]).T


@pytest.mark.slow
@needs_mpyc
def test_without_noise_counts_are_those_of_the_rows():
    rows = some_rows()[:, 3:]  # the pairs are not equally many
    first, *others = run_parties(rows, 11, 0.0)
    np.testing.assert_array_equal(first["counts"], plain_counts(rows, 11))
    for party in (first, *others):
        assert party["seconds"] > 0
        assert party["sent"] > 8 * rows.shape[1] * 11  # at least one number for each comparison
    assert [party["counts"] for party in others] == [None, None]


def is_laplace(noise, scale):
    """Whether sizes, the largest, signs and shape fit, four tests at a level of 1e-6 in all."""
    sizes = np.abs(noise) / scale
    below = gamma.cdf(sizes.sum(), len(noise))
    largest = (1 - np.exp(-sizes.max())) ** len(noise)
    signs = binomtest(int((noise > 0).sum()), len(noise)).pvalue
    shape = kstest(noise, laplace(scale=scale).cdf).pvalue
    return min(2 * below, 2 - 2 * below, largest, signs, shape) > 1e-6 / 4


@pytest.mark.slow
@needs_mpyc
def test_noise_is_laplace_of_the_published_scale_and_what_is_not_is_seen():
    """Wrong with a chance of 1e-6; mean 0 follows from signs and sizes."""
    rows = some_rows()[:, :1]
    noise = (run_parties(rows, 101, 2.0)[0]["counts"] - plain_counts(rows, 101)).ravel()
    assert is_laplace(noise, 2.0)
    assert len(np.unique(noise)) > 0.99 * len(noise)  # each has bits of its own
    assert not is_laplace(noise * 1.5, 2.0)
    assert not is_laplace(noise / 2, 2.0)  # the published code's scale, 1 whatever epsilon is
    assert not is_laplace(np.abs(noise), 2.0)
    assert not is_laplace(np.clip(noise, -7, 7), 2.0)  # a logarithm that ends too early
    assert not is_laplace(np.where(noise > 0, noise, 0), 2.0)  # signs of 0 and 1, as printed


def test_adult_is_extrapolated_from_the_largest_run():
    largest = PeerSetting(ADULT[0] // 100, ADULT[1])
    runs = [
        Run(PeerSetting(10, 11), 0, PeerValues(5.0, 5.0, 5.0, 1.0)),
        Run(largest, 0, PeerValues(72.0, 36.0, 70.0, 0.5)),
        Run(PeerSetting(100, 11), 0, PeerValues(9.0, 9.0, 9.0, 1.0)),
    ]
    text = show_peer(Runs(runs))["peer.md"]
    assert "Extrapolated 100 times from 390 rows and 1,001 thresholds: 2.0 hours" in text
    assert "1.0 hours of processor a party, 7 GB sent by a party" in text
    assert "| 390 | 1001 | 72.00 | 36.00 | 70.00 | 0.50 | 144.0 | 184 | 92 |" in text
