"""FairLogisticRegression against scikit-learn, on rows whose inputs tell the group."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import _num_samples

import synthfair as sf
from synthfair.sklearn import FairLogisticRegression, classifiers

RNG = np.random.default_rng(0)
N = 300
S = np.where(RNG.integers(2, size=N), "b", "a")
X = np.column_stack([RNG.normal(40 + 10 * (S == "b"), 15), RNG.normal(size=N)])
Y = np.where(X @ [0.05, 1.5] + RNG.normal(size=N) > 2.3, "yes", "no")
LOW, HIGH = np.array([-30.0, -4.0]), np.array([120.0, 4.0])
FRAME = pd.DataFrame({"income": X[:, 0], "trend": X[:, 1]})
PLAIN = FairLogisticRegression(rho=0, bounds=(LOW, HIGH))


def gap(decided, s=S):
    return abs(np.mean(decided[s == "b"]) - np.mean(decided[s == "a"]))


@pytest.fixture(scope="module")
def fair():
    return clone(PLAIN).set_params(rho=100.0).fit(X, Y, sensitive_features=S)


def test_classifier_without_penalty_is_logistic_regression():
    ours = clone(PLAIN).set_params(C=0.3).fit(X, Y)
    scaled = (X.clip(LOW, HIGH) - LOW) / (HIGH - LOW)
    peer = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(scaled, Y)
    np.testing.assert_allclose(ours.coef_[0] * (HIGH - LOW), peer.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(scaled), atol=1e-4)


def test_classifier_with_a_penalty_narrows_the_gap_that_it_reports(fair):
    plain = clone(PLAIN).fit(X, Y)
    assert gap(plain.predict(X) == "yes") > 0.2
    assert fair.gap_ == pytest.approx(gap(fair.predict(X) == "yes"))
    assert fair.gap_ < 0.1
    assert (fair.predict(X) == Y).mean() > 0.7


def test_max_gap_is_met_by_the_notion():
    model = FairLogisticRegression(notion="equalized_odds", max_gap=0.05, bounds=(LOW, HIGH))
    decided = model.fit(X, Y, sensitive_features=S).predict(X) == "yes"
    assert max(gap(decided[label], S[label]) for label in (Y == "yes", Y == "no")) <= 0.05
    assert model.rho_ > 0
    told, swapped = np.column_stack([S == "b", X]), RNG.random(N) < 0.1
    model = FairLogisticRegression(notion="equal_opportunity", penalty="covariance", max_gap=1e-9)
    with pytest.warns(UserWarning, match="max_gap: the gap"):  # out of reach
        model.fit(told, (S == "b") ^ swapped, sensitive_features=S)
    assert model.gap_ > 1e-9


def test_classifier_saved_and_pickled_decides_the_same(fair, tmp_path):
    scores = X @ fair.coef_[0] + fair.intercept_[0]
    sf.write_model(fair.model_, tmp_path / "model.json")
    saved = sf.read_model(tmp_path / "model.json")
    found = saved.scores((X - LOW) / (HIGH - LOW), np.arange(N) % 2)  # groups are not read
    np.testing.assert_allclose(found, scores, atol=1e-9)
    again = pickle.loads(pickle.dumps(fair))
    np.testing.assert_allclose(again.decision_function(X), scores)


@pytest.mark.parametrize("rho", [0.0, 10.0])
def test_weights_are_repetitions(rho):
    """Rows of weight 0 tell nothing: their outlier does not move the learned bounds."""
    weight, x, model = np.arange(N) % 3, X.copy(), FairLogisticRegression(rho=rho)
    x[0] = 1e6
    twice = [np.repeat(values, weight, axis=0) for values in (x, Y, S)]
    weighted = model.fit(x, Y, sensitive_features=S, sample_weight=weight)
    repeated = clone(model).fit(*twice[:2], sensitive_features=twice[2])
    assert weighted.schema_ == repeated.schema_
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)


def test_groups_by_name_of_a_column_are_no_input(fair):
    bounds = {"income": (LOW[0], HIGH[0]), "trend": (LOW[1], HIGH[1])}
    frame, model = FRAME.assign(sex=S), FairLogisticRegression(rho=100.0, bounds=bounds)
    model.fit(frame, Y, sensitive_features="sex")
    np.testing.assert_array_equal(model.coef_, fair.coef_)
    for rows in (frame, FRAME):
        np.testing.assert_array_equal(model.predict(rows), fair.predict(X))
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_allclose(model.decision_function(X), fair.decision_function(X))


def test_categories_unseen_count_by_their_shares_in_fit():
    x = FRAME[["income"]].assign(home=np.array(["rent", "own", "own", "other"])[np.arange(N) % 4])
    model = FairLogisticRegression(rho=0, categories={"home": ["rent", "own", "other"]}).fit(x, Y)
    assert list(model.encoded_names_) == ["income", "home=rent", "home=own", "home=other"]
    hot = np.stack([x["home"] == value for value in ("rent", "own", "other")], axis=1)
    scores = np.hstack([x[["income"]], hot]) @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(x), scores)
    shares = np.tile(hot.mean(axis=0), (N, 1))
    mean = np.hstack([x[["income"]], shares]) @ model.coef_[0] + model.intercept_[0]
    with pytest.warns(UserWarning, match="'home'"):
        np.testing.assert_allclose(model.decision_function(x.assign(home="castle")), mean)


def test_pos_label_says_whose_opportunity_is_equal():
    """Of text labels the last in the alphabet may be the bad one, which is warned of."""
    granted = np.where(Y == "yes", "accepted", "denied")
    model = FairLogisticRegression(notion="equal_opportunity", rho=5.0)
    with pytest.warns(UserWarning, match="pos_label: 'denied'"):
        bad = clone(model).fit(X, granted, sensitive_features=S)
    fair = clone(model).set_params(pos_label="accepted").fit(X, granted, sensitive_features=S)
    scores = X @ fair.coef_[0] + fair.intercept_[0]
    np.testing.assert_allclose(fair.decision_function(X), scores, atol=1e-9)
    same = clone(model).set_params(pos_label="yes").fit(X, Y, sensitive_features=S)
    assert list(fair.classes_) == ["accepted", "denied"]
    assert fair.schema_.positives == ("accepted",)
    # scikit-learn's scores are those of the second class, whichever label is positive.
    np.testing.assert_allclose(fair.decision_function(X), -same.decision_function(X), rtol=1e-6)
    assert ((fair.predict(X) == "accepted") == (same.predict(X) == "yes")).all()
    assert abs(fair.decision_function(X) - bad.decision_function(X)).max() > 1e-3


def test_training_that_has_not_converged_is_warned_of(monkeypatch):
    real = classifiers.train_pool
    monkeypatch.setattr(classifiers, "train_pool", lambda *asked: (
        (found := real(*asked))[0].model_copy(update={"converged": False}), found[1]))  # fmt: skip
    with pytest.warns(ConvergenceWarning):
        clone(PLAIN).fit(X, Y)


class OfTwoGroups(FairLogisticRegression):
    """The checks know no sensitive features."""

    def fit(self, X, y, sample_weight=None):  # noqa: N803
        s = np.arange(_num_samples(X)) % 2
        return super().fit(X, y, sensitive_features=s, sample_weight=sample_weight)


EQUIVALENCE = "check_sample_weight_equivalence_on_{}_data"
BY_POSITION = {EQUIVALENCE.format(kind): "groups go by position" for kind in ("dense", "sparse")}
CHECKED = (FairLogisticRegression(rho=0), {}), (OfTwoGroups(rho=1.0), BY_POSITION)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "expected"), CHECKED)
def test_estimator_checks_of_scikit_learn(estimator, expected):
    check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
