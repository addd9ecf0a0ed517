"""The ratio of selection rates, its interval, and a model that meets a limit on it."""

import numpy as np
import pytest
from builders import SCHEMA, TABLE

import synthfair as sf
from synthfair.errors import InputError
from synthfair.fairness.intervals import Shares, ratio_interval, ratio_verdict
from synthfair.fairness.metrics import Metric


@pytest.mark.parametrize(("hits", "size", "value"), [
    ([0, 5], [10, 10], 0.0), ([0, 0], [10, 10], np.nan),
    ([3], [9], np.nan), ([1, 0], [2, 0], np.nan),
])  # fmt: skip
def test_ratio_of_rates_of_zero_is_zero_or_undefined(hits, size, value):
    ratio = ratio_interval(Shares(np.array(hits, float), np.array(size)))
    np.testing.assert_equal(ratio.value, value)
    if value == 0:
        assert ratio.low == 0 < ratio.high


def test_ratio_verdict_is_as_sure_as_its_interval():
    ratios = (0.85, 0.81, 0.9), (0.85, 0.7, 1.0), (0.7, 0.6, 0.79), (0.7, 0.5, 0.9)
    verdicts = [ratio_verdict(Metric(*ratio), 0.8) for ratio in ratios]
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
    s, w, decided = pooled.rows.s, pooled.rows.weight, pooled.rows.a @ point.theta > 0
    rates = [np.average(decided[s == group], weights=w[s == group]) for group in (0, 1)]
    assert point.ratio == pytest.approx(min(rates) / max(rates))


def test_ratio_of_another_notion_is_refused():
    with pytest.raises(InputError, match="min_ratio"):
        sf.ServerConfig(min_ratio=0.8, notion="equalized_odds")
    with pytest.raises(InputError, match="rho"):
        sf.ServerConfig(min_ratio=0.8, rho=3.0)
