import fairlearn.metrics as fl
import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from synthfair.fairness.intervals import metrics_with_intervals
from synthfair.fairness.metrics import (
    Scored,
    accuracy,
    boundary_covariance,
    equal_opportunity_difference,
    equalized_odds_difference,
    group_rates,
    metrics,
    statistical_parity_difference,
)


def sample(seed, n_groups=2, n=200):
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    y = np.where(rng.random(n) < 0.3 + 0.1 * s, 1, -1)
    return y, rng.normal(size=n) + 0.5 * y - 0.2 * s, s


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_sizes_are_fairlearns(seed, n_groups):
    y, score, s = sample(seed, n_groups)
    d, g = np.where(score > 0, 1, -1), {"sensitive_features": s}
    k = {"n_groups": n_groups}
    assert accuracy(y, d) == accuracy_score(y, d)
    for ours, theirs in (
        (statistical_parity_difference(d, **g, **k), fl.demographic_parity_difference(y, d, **g)),
        (equal_opportunity_difference(y, d, **g, **k), fl.equal_opportunity_difference(y, d, **g)),
        (equalized_odds_difference(y, d, **g, **k), fl.equalized_odds_difference(y, d, **g)),
    ):
        assert abs(ours) == pytest.approx(theirs)


def test_group_rates_are_fairlearns():
    y, score, s = sample(0, 3)
    names = ("selection_rate", "true_positive_rate", "false_positive_rate")
    frame = fl.MetricFrame(
        metrics={name: getattr(fl, name) for name in names},
        y_true=y,
        y_pred=np.where(score > 0, 1, -1),
        sensitive_features=s,
    )
    for group, found in enumerate(group_rates(Scored(y, score, s, 3))):
        mine = s == group
        assert found.n == mine.sum()
        assert found.error_rate == pytest.approx(np.mean((score > 0)[mine] != (y > 0)[mine]))
        for name in names:
            assert getattr(found, name) == pytest.approx(frame.by_group.loc[group, name])


def test_spd_is_group_1_minus_group_0():
    d, s = np.array([1, 1, 1, -1]), np.array([1, 1, 0, 0])
    assert statistical_parity_difference(d, sensitive_features=s) == 0.5
    assert statistical_parity_difference(d, sensitive_features=1 - s) == -0.5


def test_covariance_is_numpys_and_the_largest_of_many():
    _, score, s = sample(0)
    expected = np.cov(s, score, bias=True)[0, 1]
    assert boundary_covariance(score, sensitive_features=s) == pytest.approx(expected)
    _, score, s = sample(0, 3)
    each = [np.cov(s == g, score, bias=True)[0, 1] for g in range(3)]
    found = boundary_covariance(score, sensitive_features=s, n_groups=3)
    assert found == pytest.approx(max(map(abs, each)))


def test_a_group_without_rows_leaves_gaps_undefined():
    y, score, s = sample(0)
    found = metrics_with_intervals(Scored(y, score, np.zeros_like(s)), resamples=5, seed=0)
    assert np.isnan(found["spd"]).all()
    assert found["accuracy"].value == metrics(Scored(y, score, s))["accuracy"]


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_any_absent_group_of_three_leaves_gaps_undefined(absent):
    y, score, s = sample(0, 3)
    others = s != absent
    found = metrics(Scored(y[others], score[others], s[others], 3))
    assert np.isnan(found["spd"])
    assert np.isnan(found["equalized_odds_difference"])
    assert np.isfinite(found["covariance"])


def test_a_tiny_group_never_flips_the_sign_of_a_bound():
    y, score, s = sample(0, 3)
    few = (s != 2) | (np.arange(len(s)) == np.flatnonzero(s == 2)[0])
    found = metrics_with_intervals(Scored(y[few], score[few], s[few], 3), resamples=200, seed=0)
    for name in ("spd", "equal_opportunity_difference", "covariance"):
        assert found[name].low >= 0
