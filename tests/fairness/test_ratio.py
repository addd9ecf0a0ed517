"""The ratio of selection rates, its interval, and a model that meets a limit on it."""

import numpy as np
import pytest
from builders import SCHEMA, TABLE
from scipy.stats import binom

import synthfair as sf
from synthfair.errors import InputError
from synthfair.fairness.intervals import (
    Shares,
    metrics_with_intervals,
    ratio_interval,
    ratio_verdict,
)
from synthfair.fairness.metrics import Metric, Scored


def test_ratio_is_the_lowest_rate_over_the_highest_whichever_group_has_it():
    rng = np.random.default_rng(0)
    s, y = rng.integers(3, size=900), rng.choice([-1.0, 1.0], 900)
    score = np.where(rng.random(900) < np.array([0.5, 0.2, 0.4])[s], 1.0, -1.0)
    rows = Scored(y, score, s, 3)
    rates = [np.mean(score[s == group] > 0) for group in range(3)]
    ratio = metrics_with_intervals(rows, resamples=1, seed=0)["selection_ratio"]
    assert ratio.value == pytest.approx(min(rates) / max(rates))
    assert ratio.low < ratio.value < ratio.high


@pytest.mark.parametrize(("hits", "size", "value"), [
    ([0, 5], [10, 10], 0.0),
    ([0, 0], [10, 10], np.nan),
    ([3], [9], np.nan),
    ([1, 0], [2, 0], np.nan),
])  # fmt: skip
def test_ratio_of_rates_of_zero_is_zero_or_undefined(hits, size, value):
    ratio = ratio_interval(Shares(np.array(hits, float), np.array(size)))
    np.testing.assert_equal(ratio.value, value)
    if value == 0:
        assert ratio.low == 0 < ratio.high


def coverage(rates, size, interval, runs=2000):
    """How often an interval contains the true ratio, of groups of so many rows."""
    rng = np.random.default_rng(1)
    true = min(rates) / max(rates)
    hits = rng.binomial(size, rates, (runs, len(rates)))
    return sum(
        found.low <= true <= found.high or np.isnan(found.value)
        for found in (
            interval(Shares(row.astype(float), np.full(len(rates), size))) for row in hits
        )
    )


LEAST = binom.ppf(1e-6, 2000, 0.95)
"""Of 2,000 intervals that contain the truth in 95 of 100, fewer do less than once in 10^6."""


@pytest.mark.parametrize("rates", [(0.5, 0.4), (0.1, 0.1), (0.3, 0.3, 0.2), (0.6, 0.5, 0.5, 0.4)])
def test_ratio_interval_contains_the_true_ratio_in_95_of_100(rates):
    assert coverage(rates, 80, ratio_interval) >= LEAST


def test_ratio_interval_of_wide_tails_is_noticed():
    assert coverage((0.5, 0.4), 80, lambda shares: ratio_interval(shares, tail=0.1)) < LEAST


def test_ratio_verdict_is_as_sure_as_its_interval():
    verdicts = [
        ratio_verdict(Metric(0.85, low, high), 0.8) for low, high in ((0.81, 0.9), (0.7, 1))
    ]
    verdicts += [
        ratio_verdict(Metric(0.7, low, high), 0.8) for low, high in ((0.6, 0.79), (0.5, 0.9))
    ]
    assert verdicts == ["yes", "probably", "no", "probably not"]


@pytest.fixture(scope="module")
def surrogate():
    unlike = TABLE.assign(income=TABLE["income"] * np.where(TABLE["town"] == "b", 1, 0.6))
    return sf.distill_table(unlike, SCHEMA, sf.SurrogateConfig(k_min=5, without_epsilon=True))


@pytest.mark.parametrize("least", [0.5, 0.9, 0.99])
def test_ratio_asked_of_a_server_is_met_at_little_cost(surrogate, least):
    pooled = sf.server.make_pool([surrogate], SCHEMA, sf.ServerConfig(min_ratio=least))
    _, point = sf.server.train_pool(pooled, SCHEMA)
    free = pooled.problem().solve(0.0)
    assert free.ratio < 0.9
    assert point.ratio >= min(least, free.ratio)
    if least > free.ratio:
        assert least <= point.ratio < least + 0.04
    rates = [np.average(pooled.rows.a[pooled.rows.s == s] @ point.theta > 0,
                        weights=pooled.rows.weight[pooled.rows.s == s]) for s in (0, 1)]  # fmt: skip
    assert point.ratio == pytest.approx(min(rates) / max(rates))


def test_ratio_of_another_notion_is_refused():
    with pytest.raises(InputError, match="min_ratio"):
        sf.ServerConfig(min_ratio=0.8, notion="equalized_odds")
    with pytest.raises(InputError, match="rho"):
        sf.ServerConfig(min_ratio=0.8, rho=3.0)
