"""What the benchmark of PrivFairFL computes: its metrics, its local baseline, the published noise."""

import numpy as np
import pytest
from builders import make_schema

import synthfair as sf
from benchmarks.privfairfl import (
    FairValues,
    SplitTable,
    least_epsilon,
    measured,
    randomised_response,
    responses,
)


def test_metrics_are_those_of_the_paper():
    """Rates by hand: TPR 1/2 and 1, FPR 0 and 1/2, selected 1/4 and 3/4."""
    s, y = np.repeat([0, 1], 4), np.tile([1.0, 1.0, -1.0, -1.0], 2)
    rows = SplitTable(make_schema(), None, None, sf.Encoded(np.zeros((8, 1)), s, y))
    certain = measured(rows, np.array([1.0, 0, 0, 0, 1, 1, 1, 0]))
    assert certain == pytest.approx(FairValues(0.75, 1.0, 0.5, 0.5, 0.5, 0.5))
    mixed = measured(rows, np.array([0.5, 0.5, 0, 0, 1, 1, 0, 0]))
    assert mixed == pytest.approx(FairValues(0.875, 1.0, 0.5, 0.25, 0.25, 0.5))


def test_randomised_responses_have_no_bias():
    """A mean of 200 runs more than 5 standard errors off: 1e-6 for each of 4 cells."""
    total, rng = np.array([4000, 1000, 300, 0]), np.random.default_rng(0)
    rows = np.repeat(np.arange(4), total)
    estimates = np.array([responses(total, 1.0, rng) for _ in range(200)])
    error = estimates.std(axis=0) / 200**0.5
    assert (abs(estimates.mean(axis=0) - total) < 5 * error + 0.5).all()
    reported = [
        np.bincount(randomised_response(rows, 4, 1.0, rng), minlength=4) for _ in range(200)
    ]
    assert (abs(np.mean(reported, axis=0) - total) > 5 * error).any()  # with its bias


def test_published_noise_costs_what_its_privacy_loss_says():
    """Of Laplace noise the pure epsilon is n / scale; an (epsilon, delta) one is less."""
    assert 300 < least_epsilon(1.0, 1e-6) < 1001
    assert least_epsilon(0.1, 1e-6) < least_epsilon(0.5, 1e-6)
