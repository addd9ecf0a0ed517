import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from score_rows import metrics
from sklearn.metrics import accuracy_score

import synthfair as sf
from synthfair.errors import InputError
from synthfair.fairness.intervals import metrics_with_intervals
from synthfair.fairness.metrics import (
    Scored,
    group_rates,
    statistical_parity_difference,
)


def sample(seed, n_groups=2, n=200):
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    y = np.where(rng.random(n) < 0.3 + 0.1 * s, 1, -1)
    return y, rng.normal(size=n) + 0.5 * y - 0.2 * s, s


GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds")


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_reported_has_fairlearns_size(seed, n_groups):
    y, score, s = sample(seed, n_groups)
    d, found = np.where(score > 0, 1, -1), metrics(Scored(y, score, s, n_groups))
    assert found["accuracy"] == accuracy_score(y, d)
    names = ("spd", "equal_opportunity_difference", "equalized_odds_difference")
    for name, gap in zip(names, GAPS, strict=True):
        theirs = getattr(fl, f"{gap}_difference")(y, d, sensitive_features=s)
        assert abs(found[name]) == pytest.approx(theirs)


def test_the_reported_equal_opportunity_is_signed():
    y, d, s = np.ones(4), np.array([1, -1, -1, -1]), np.array([0, 0, 1, 1])
    assert metrics(Scored(y, d, s))["equal_opportunity_difference"] == -0.5


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


@pytest.mark.parametrize("negative", [-1, 0, False])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_spd_is_fairlearns_with_the_sign_of_group_1_minus_group_0(n_groups, negative):
    y, score, s = sample(0, n_groups)
    d = np.where(score > 0, type(negative)(1), negative)
    spd = statistical_parity_difference(y, d, sensitive_features=s)
    theirs = fl.demographic_parity_difference(y, d, sensitive_features=s)
    assert abs(spd) == pytest.approx(theirs)
    turned = statistical_parity_difference(y, d, sensitive_features=n_groups - 1 - s)
    assert turned == (-spd if n_groups == 2 else spd)


def test_spd_of_one_group_is_no_number():
    assert np.isnan(statistical_parity_difference([1, 0], [1, 0], sensitive_features=[0, 0]))


@pytest.mark.parametrize(
    ("decisions", "groups", "pos_label", "said"),
    [
        (["yes", "no"], ["a", "b"], "Yes", "pos_label among them"),
        ([1, 0], ["a", "b"], "1", "pos_label among them"),
        ([1, 0], ["a", None], 1, "one value a row"),
        ([1, 0], [0.0, np.nan], 1, "one value a row"),
        ([1.0, np.nan], ["a", "b"], 1, "one value a row"),
        ([1, 0, 1], ["a", "b"], 1, "one value a row"),
    ],
)
def test_what_would_hide_a_gap_is_refused(decisions, groups, pos_label, said):
    with pytest.raises(InputError, match=said):
        statistical_parity_difference(
            None, decisions, sensitive_features=groups, pos_label=pos_label
        )


def test_a_column_of_groups_and_objects_are_taken():
    frame, decided = pd.DataFrame({"s": ["a", "b"]}), np.array([0, 1], object)
    assert statistical_parity_difference(None, decided, sensitive_features=frame) == 1.0
    words = ["None", "nan"]  # as people may call a group
    assert statistical_parity_difference(None, decided, sensitive_features=words) == 1.0


@pytest.mark.parametrize(
    ("decisions", "positive", "spd"),
    [
        ([0, 0, 0, 1], 1, 0.5), ([1, 1, 1, 2], 2, 0.5), ([False, False, True, True], 1, 1),
        ([0, 0, 0, 0], 1, 0.0), ([1, 1, 1, 1], 1, 0.0), ([-1, -1, -1, 1], -1, -0.5),
        (["denied", "granted", "granted", "granted"], "granted", 0.5),
        (["denied", "granted", "granted", "granted"], "denied", -0.5),
    ],
)  # fmt: skip
def test_spd_takes_any_two_decisions_and_any_groups(decisions, positive, spd):
    found = statistical_parity_difference(
        None, decisions, sensitive_features=["f", "f", "m", "m"], pos_label=positive
    )
    assert found == spd


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1, 2], ["a", "b", "c"]])
def test_decisions_of_other_values_are_refused(labels):
    with pytest.raises(sf.InputError, match="y_pred: holds .* must be two values, pos_label"):
        statistical_parity_difference(None, labels, sensitive_features=[0] * len(labels))


def test_covariance_is_numpys_and_the_largest_of_many():
    y, score, s = sample(0)
    expected = np.cov(s, score, bias=True)[0, 1]
    assert metrics(Scored(y, score, s))["covariance"] == pytest.approx(expected)
    y, score, s = sample(0, 3)
    each = [np.cov(s == g, score, bias=True)[0, 1] for g in range(3)]
    found = metrics(Scored(y, score, s, 3))["covariance"]
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
