"""The room of scikit-learn: arrays in, fair rows and fair models out, in scikit-learn's idiom."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import sklearn
from builders import make_table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import _num_samples

import synthfair as sf
from synthfair.sklearn import Distiller, FairLogisticRegression

RNG = np.random.default_rng(0)
N = 300
S = np.where(RNG.integers(2, size=N), "b", "a")
X = np.column_stack([RNG.normal(40 + 10 * (S == "b"), 15), RNG.normal(size=N)])
Y = np.where(X @ [0.05, 1.5] + RNG.normal(size=N) > 2.3, "yes", "no")
BOUNDS = ([-30, -4], [120, 4])
FRAME = pd.DataFrame({"income": X[:, 0], "trend": X[:, 1]})
QUICK = {"n_synthetic": 24, "steps": 60, "random_state": 0}

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*not converged:sklearn.exceptions.ConvergenceWarning"
)


def gap(decided, s=S):
    return abs(np.mean(decided[s == "b"]) - np.mean(decided[s == "a"]))


def squared_gap(scores, rows):
    """The squared difference of the groups' weighted mean scores."""
    weight = jnp.ones_like(scores) if rows.weight is None else rows.weight
    means = [(w := weight * (rows.s == g)) @ scores / w.sum() for g in (0, 1)]
    return (means[1] - means[0]) ** 2


@pytest.fixture(scope="module")
def fair():
    return FairLogisticRegression(rho=100.0, bounds=BOUNDS).fit(X, Y, sensitive_features=S)


@pytest.fixture(scope="module")
def distilled():
    distiller = Distiller(rho=30, bounds=BOUNDS, n_synthetic=24, steps=400, random_state=0)
    return distiller, distiller.fit_resample(FRAME, Y, sensitive_features=S)


def test_without_penalty_it_is_logistic_regression():
    """Of the same objective, in columns scaled by the bounds."""
    ours = FairLogisticRegression(rho=0, bounds=BOUNDS, C=0.3).fit(X, Y)
    low, high = np.array(BOUNDS, float)
    a = (X.clip(low, high) - low) / (high - low)
    peer = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(a, Y)
    np.testing.assert_allclose(ours.coef_[0] * (high - low), peer.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(a), atol=1e-4)


def test_the_penalty_narrows_the_gap_and_the_gap_is_reported(fair):
    plain = FairLogisticRegression(rho=0, bounds=BOUNDS).fit(X, Y)
    assert gap(plain.predict(X) == "yes") > 0.2
    assert fair.gap_ == pytest.approx(gap(fair.predict(X) == "yes"))
    assert fair.gap_ < 0.1
    assert (fair.predict(X) == Y).mean() > 0.7


def test_a_wanted_gap_is_met_by_the_notion_that_is_asked_for():
    model = FairLogisticRegression(notion="equalized_odds", max_gap=0.05, bounds=BOUNDS)
    decided = model.fit(X, Y, sensitive_features=S).predict(X) == "yes"
    assert max(gap(decided[label], S[label]) for label in (Y == "yes", Y == "no")) <= 0.05
    assert model.rho_ > 0


def test_a_gap_out_of_reach_is_a_warning():
    """The inputs tell the group, and the label is the group."""
    x = np.column_stack([S == "b", X])
    y = (S == "b") ^ (np.random.default_rng(1).random(N) < 0.1)
    model = FairLogisticRegression(max_gap=1e-9, penalty="covariance", notion="equal_opportunity")
    with pytest.warns(
        UserWarning,
        match=r"max_gap: the gap on .* is 0\..* 1e-09 was .*; no model that was tried reaches it",
    ):
        model.fit(x, y, sensitive_features=S)
    assert model.gap_ > 1e-9


def test_coefficients_are_of_unscaled_inputs_and_export(fair, tmp_path):
    scores = X @ fair.coef_[0] + fair.intercept_[0]
    np.testing.assert_allclose(fair.decision_function(X), scores)
    encoded = (X - BOUNDS[0]) / np.subtract(*BOUNDS[::-1])  # all within the bounds
    sf.write_model(fair.model_, tmp_path / "model.json")
    model = sf.read_model(tmp_path / "model.json")
    for group in (0, 1):  # which is not read
        found = model.scores(encoded, np.full(N, group))
        np.testing.assert_allclose(found, scores, atol=1e-9)


def test_the_users_precision_makes_no_difference(fair):
    with jax.enable_x64(False):
        again = clone(fair).fit(X, Y, sensitive_features=S)
    np.testing.assert_array_equal(again.coef_, fair.coef_)


def test_weights_are_repetitions():
    weight = np.arange(N) % 3
    few = FairLogisticRegression(rho=0, bounds=BOUNDS)
    weighted = clone(few).fit(X, Y, sample_weight=weight)
    repeated = clone(few).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)


@pytest.mark.parametrize("penalty", ["covariance", squared_gap])
def test_weights_are_repetitions_in_what_is_distilled(penalty):
    weight, few = np.where(Y == "yes", 3, np.arange(N) % 3), QUICK | {"steps": 3}
    twice = {"X": np.repeat(X, weight, axis=0), "y": np.repeat(Y, weight)}
    twice |= {"sensitive_features": np.repeat(S, weight)}
    rows = {"X": X, "y": Y, "sensitive_features": S, "sample_weight": weight}
    distiller = Distiller(bounds=BOUNDS, penalty=penalty, **few)
    for found, expected in zip(
        distiller.fit_resample(**rows), distiller.fit_resample(**twice), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_groups_may_be_a_column_by_name():
    frame = FRAME.assign(sex=S)
    model = FairLogisticRegression(rho=100.0, bounds={"income": (-30, 120), "trend": (-4, 4)})
    by_name = clone(model).fit(frame, Y, sensitive_features="sex")
    apart = model.fit(FRAME, Y, sensitive_features=S)
    np.testing.assert_array_equal(by_name.coef_, apart.coef_)
    for rows in (frame, FRAME):
        np.testing.assert_array_equal(by_name.predict(rows), apart.predict(FRAME))
    with pytest.raises(ValueError, match="sensitive_features: X has no column 'race'"):
        model.fit(frame, Y, sensitive_features="race")


def test_training_on_the_synthetic_rows_gives_the_model_that_they_were_made_for(distilled):
    distiller, (made, labels) = distilled
    assert list(made.columns) == ["income", "trend"]
    assert distiller.release_.header.own_columns == ("(label)",)
    trained = make_pipeline(StandardScaler(), LogisticRegression())
    trained.fit(made, labels, logisticregression__sample_weight=distiller.sample_weight_)
    scaled = (X - BOUNDS[0]) / np.subtract(*BOUNDS[::-1])
    inputs, real = (np.column_stack([x, np.ones(len(x))]) for x in (distiller.release_.x, scaled))
    made_for = LogisticRegression(fit_intercept=False)
    made_for.fit(inputs, labels, sample_weight=distiller.sample_weight_)
    assert (trained.predict(FRAME) == made_for.predict(real)).mean() > 0.98
    plain = LogisticRegression().fit(FRAME, Y).predict(FRAME)
    assert gap(trained.predict(FRAME) == "yes") < gap(plain == "yes") - 0.1
    assert (trained.predict(FRAME) == Y).mean() > 0.7


def test_weights_regularise_as_the_rows_were_made_for(distilled):
    """C = 1 and w stand for 1 / (lambda_theta / n^2) in the mean over M rows."""
    distiller, _ = distilled
    n = 2 + 1
    assert distiller.sample_weight_.sum() == pytest.approx(n**2 / distiller.lambda_theta)


def test_a_seed_gives_the_same_rows_and_another_gives_others():
    made = [
        Distiller(bounds=BOUNDS, **QUICK | {"random_state": seed}).fit_resample(
            X, Y, sensitive_features=S
        )[0]
        for seed in (0, 0, 1)
    ]
    assert isinstance(made[0], np.ndarray)
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.allclose(made[0], made[2])


def test_records_of_clients_give_about_the_model_of_all_rows(fair):
    rows = FRAME.assign(y=Y, sensitive_features=S)
    releases = [
        sf.distill_table(part, fair.schema_, sf.SurrogateConfig(k_min=5)).release
        for _, part in rows.rename(columns={"income": "x0", "trend": "x1"}).groupby(
            np.arange(N) % 2
        )
    ]
    records, weight = sf.pool_records(releases, fair.schema_)
    groups = records["sensitive_features"]
    model = clone(fair).fit(
        records[["x0", "x1"]], records["y"], sensitive_features=groups, sample_weight=weight
    )
    decided = model.predict(pd.DataFrame(X, columns=["x0", "x1"]))
    assert (decided == fair.predict(X)).mean() > 0.85
    assert gap(decided == "yes") < 0.15


def test_a_distillation_that_has_not_converged_is_a_warning():
    distiller = Distiller(bounds=BOUNDS, n_synthetic=24, steps=2)
    with pytest.warns(ConvergenceWarning, match="raise steps"):
        distiller.fit_resample(X, Y, sensitive_features=S)
    assert not distiller.converged_


def test_categories_are_one_hot_and_coefficients_have_names():
    table = make_table(200).fillna({"age": 40.0, "home": "own"})
    x, s, y = table[["income", "age", "home"]], table["town"], table["paid"]
    model = FairLogisticRegression(rho=0, categories={"home": ["rent", "own", "other"]}).fit(x, y)
    assert list(model.encoded_names_) == ["income", "age", "home=rent", "home=own", "home=other"]
    assert list(model.feature_names_in_) == ["income", "age", "home"]
    hot = np.stack([x["home"] == value for value in ("rent", "own", "other")], axis=1)
    scores = np.hstack([x[["income", "age"]], hot]) @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(x), scores)
    distiller = Distiller(bounds={"income": (0, 100), "age": (18, 90)}, **QUICK)
    with pytest.warns(
        UserWarning, match="^X: columns .'home'.: bounds or categories are learned from the rows"
    ):
        made, _ = distiller.fit_resample(x, y, sensitive_features=s)
    coded = distiller.encoder_.transform(x)
    names = list(distiller.encoder_.get_feature_names_out())
    assert list(made.columns) == list(coded.columns) == names
    whole = make_pipeline(distiller.encoder_, LogisticRegression().fit(coded, y))
    assert set(whole.predict(x.iloc[::-1, ::-1])) == {"no", "yes"}
    with pytest.warns(UserWarning, match="'home': 200 of 200 values are none of its"):
        assert set(whole.predict(x.assign(home="castle"))) <= {"no", "yes"}
    np.testing.assert_array_equal(coded["home=rent"], x["home"] == "rent")
    np.testing.assert_array_equal(coded["income"], x["income"])
    shares = np.tile(hot.mean(axis=0), (200, 1))
    mean = np.hstack([x[["income", "age"]], shares]) @ model.coef_[0] + model.intercept_[0]
    with pytest.warns(UserWarning, match="'home'"):
        np.testing.assert_allclose(model.decision_function(x.assign(home="castle")), mean)


def test_codes_in_an_array_can_be_categories():
    x = np.column_stack([X[:, 0], np.arange(N) % 3])
    model = FairLogisticRegression(rho=0, categories={1: [0, 1, 2]}, bounds={0: (-30, 120)})
    assert model.fit(x, Y).coef_.shape == (1, 4)


def test_learned_bounds_are_a_warning_where_something_is_released():
    with pytest.warns(UserWarning, match=r"columns .'x0', 'x1'.: .* learned .* not public"):
        Distiller(**QUICK).fit_resample(X, Y, sensitive_features=S)


def test_search_pipelines_and_routing():
    """Sensitive features are cut with the rows; a grid finds the fit of its own parameters."""
    with sklearn.config_context(enable_metadata_routing=True):
        model = FairLogisticRegression(rho=1.0).set_fit_request(sensitive_features=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model),
            {"fairlogisticregression__rho": [0.0, 100.0]},
            cv=2,
        )
        search.fit(X, Y, sensitive_features=S)
        assert search.best_params_ == {"fairlogisticregression__rho": 0.0}  # the accurate one
        asked = model.get_metadata_routing().fit.requests
        assert asked == {"sensitive_features": True, "sample_weight": None}


@pytest.mark.parametrize("kind", [Distiller, FairLogisticRegression])
def test_parameters_survive_cloning(kind):
    estimator = kind(rho=3.0, bounds=(0, 1), categories={"home": ["own", "rent"]})
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(max_gap=0.1).max_gap == 0.1


def test_a_fitted_model_is_pickled(fair):
    again = pickle.loads(pickle.dumps(fair))
    np.testing.assert_array_equal(again.predict(X), fair.predict(X))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rho": -1.0}, r"^rho: .* greater than or equal to 0; got -1.0"),
        ({"max_gap": 2.0}, "max_gap: .* less than 1; got 2.0"),
        ({"notion": "fair"}, "notion: .*got 'fair'"),
        ({"bounds": (1, 0)}, "column 'x0': upper 0.0: must be .* above lower"),
        ({"bounds": ([0] * 3, [1] * 3)}, "bounds: .* must be a pair"),
        ({"bounds": {"age": (0, 1)}}, "bounds: X has no column 'age'"),
        ({"categories": {7: [0, 1]}}, "categories: X has no column 'x7'"),
    ],
)
def test_settings_that_are_not_allowed(change, expected):
    with pytest.raises(sf.InputError, match=expected):
        FairLogisticRegression(**change).fit(X, Y, sensitive_features=S)


@pytest.mark.parametrize(
    ("y", "s", "expected"),
    [
        (Y, None, "sensitive_features: None"),
        (Y, S[:5], r"sensitive_features: of shape \(5,\); must be .* each of the 300 rows"),
        (Y, np.column_stack([S, S])[None], r"sensitive_features: of shape \(1, 300, 2\)"),
        (Y, np.column_stack([S, S])[:5], r"sensitive_features: 0: of shape \(5,\); must be"),
        (Y, np.where(S == "a", 1, S.astype(object)), "sensitive_features: must be all numbers or"),
        (np.where(np.arange(N) == 3, None, Y), S, "y, row 4: missing"),
        (Y, np.where(S == "a", None, S), "sensitive_features, row .*: missing"),
        (Y, np.full(N, "a"), "holds one group, 'a'; two are needed"),
        (np.full(N, "no"), S, "y: holds one class"),
        (S, S, "fewer than two have rows, of those that equal_opportunity compares"),
    ],
)
@pytest.mark.filterwarnings("ignore:pos_label")
def test_rows_that_do_not_fit(y, s, expected):
    with pytest.raises(ValueError, match=expected):
        FairLogisticRegression(notion="equal_opportunity").fit(X, y, sensitive_features=s)


def test_which_label_is_positive_is_said_or_warned_of():
    """Of text labels the last in the alphabet may be the bad one: that of equal opportunity is."""
    last = np.unique(Y)[-1]
    good = np.where(last == Y, "accepted", "denied")
    settings = {"notion": "equal_opportunity", "rho": 5.0}
    with pytest.warns(UserWarning, match="pos_label: 'denied' counts as the positive class"):
        bad = FairLogisticRegression(**settings).fit(X, good, sensitive_features=S)
    fair = FairLogisticRegression(pos_label="accepted", **settings)
    fair.fit(X, good, sensitive_features=S)
    numbers = FairLogisticRegression(pos_label=last, **settings).fit(X, Y, sensitive_features=S)
    assert list(fair.classes_) == list(bad.classes_) == ["accepted", "denied"]
    # scikit-learn's scores are those of the second class, whichever label is positive.
    np.testing.assert_allclose(fair.decision_function(X), -numbers.decision_function(X), rtol=1e-6)
    assert (fair.predict(X) == np.where(numbers.predict(X) == last, *fair.classes_)).all()
    assert fair.schema_.positives == ("accepted",)
    assert abs(fair.decision_function(X) - bad.decision_function(X)).max() > 1e-3
    with pytest.raises(sf.InputError, match="pos_label: 'granted'; must be one of"):
        fair.set_params(pos_label="granted").fit(X, good, sensitive_features=S)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"y": 1.0}, "column 'y': y or sensitive features are called so; rename"),
        ({"sensitive_features": 1.0}, "column 'sensitive_features': y or sensitive"),
        ({"home": "own"}, "column 'home': holds only 'own'; list .*; drop it, or give categories="),
    ],
)
def test_columns_that_do_not_fit(changes, complaint):
    given = {"trend": (-4, 4)}
    with pytest.raises(sf.InputError, match=complaint):
        FairLogisticRegression(bounds=given).fit(FRAME.assign(**changes), Y, sensitive_features=S)


def test_an_array_is_scored_by_a_model_of_a_frame():
    model = FairLogisticRegression(rho=0, bounds=BOUNDS).fit(FRAME, Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = model.decision_function(X)
    np.testing.assert_allclose(found, model.decision_function(FRAME))


def test_pandas_output_where_it_is_asked_for(distilled):
    distiller = clone(distilled[0]).set_params(**QUICK)
    distiller.fit_resample(X, Y, sensitive_features=S)
    assert isinstance(distiller.encoder_.transform(X), np.ndarray)
    with sklearn.config_context(transform_output="pandas"):
        assert list(distiller.encoder_.transform(X).columns) == ["x0", "x1"]


def test_rows_without_weight_say_nothing():
    weight = np.ones(N)
    weight[0] = 0
    outlier = X.copy()
    outlier[0] = 1e6
    model = FairLogisticRegression(rho=0)
    rows, _ = model._read_arrays(outlier, Y, S, weight)
    assert len(rows.y) == N - 1
    assert model.schema_.columns["x0"].upper < 1e3


class OfTwoGroups(FairLogisticRegression):
    """The checks know no sensitive features."""

    def fit(self, X, y, sample_weight=None):  # noqa: N803
        s = np.arange(_num_samples(X)) % 2
        return super().fit(X, y, sensitive_features=s, sample_weight=sample_weight)


def test_what_is_no_penalty_is_refused():
    for given, message in [({"penalty": 3}, "penalty"), ({"groups_by": ["a"]}, "groups_by: needs")]:
        model = FairLogisticRegression(**{"penalty": squared_gap} | given)
        with pytest.raises(ValueError, match=message):
            model.fit(X, Y, sensitive_features=S)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (FairLogisticRegression(rho=0), {}),
        (
            OfTwoGroups(rho=1.0),
            {
                f"check_sample_weight_equivalence_on_{kind}_data": "groups go by position here"
                for kind in ("dense", "sparse")
            },
        ),
    ],
    ids=["free", "fair"],
)
def test_scikit_learns_own_checks(estimator, expected):
    check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
