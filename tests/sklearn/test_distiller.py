"""Distiller: few rows on which scikit-learn's logistic regression is fair."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import synthfair as sf
from synthfair.data.encode import encode_inputs
from synthfair.sklearn import Distiller

TABLE = make_table(300).fillna({"age": 40.0, "home": "own"})
X = TABLE[["income", "age", "home"]].copy()
X["income"] = 0.7 * X["income"] + 30 * (TABLE["town"] == "b")  # tells the group
Y = np.where(X["income"] + 2 * X["age"] > 155, "yes", "no")
GROUPS = {"sensitive_features": TABLE["town"]}
PUBLIC = {
    "bounds": {"income": (0, 100), "age": (18, 90)},
    "categories": {"home": list(SCHEMA.columns["home"].categories)},
}
QUICK = Distiller(n_synthetic=24, steps=3, random_state=0, **PUBLIC)

pytestmark = pytest.mark.filterwarnings("ignore:distillation has not converged")


def gap(decided):
    return abs(np.subtract(*(np.mean(decided[TABLE["town"] == town] == "yes") for town in "ab")))


def squared_gap(scores, rows):
    """The squared difference of the groups' weighted mean scores."""
    weight = jnp.ones_like(scores) if rows.weight is None else rows.weight
    means = [(w := weight * (rows.s == g)) @ scores / w.sum() for g in (0, 1)]
    return (means[1] - means[0]) ** 2


@pytest.fixture(scope="module")
def distilled():
    distiller = clone(QUICK).set_params(rho=30, steps=400, lambda_theta=2e-3)
    return distiller, *distiller.fit_resample(X, Y, **GROUPS)


def test_distilled_rows_give_the_model_that_they_were_made_for(distilled):
    """With C = 1 and w, which stand for 1 / (lambda_theta / n^2) in the mean over M rows."""
    distiller, made, labels = distilled
    weight, inputs = distiller.sample_weight_, np.insert(distiller.release_.x, 0, 1.0, axis=1)
    assert weight.sum() == pytest.approx(inputs.shape[1] ** 2 / distiller.lambda_theta)
    trained = make_pipeline(distiller.encoder_, StandardScaler(), LogisticRegression(max_iter=1000))
    trained[1:].fit(made, labels, logisticregression__sample_weight=weight)
    made_for = LogisticRegression(fit_intercept=False, max_iter=1000)
    made_for.fit(inputs, labels, sample_weight=weight)
    encoded = encode_inputs(X, distiller.schema_, source="X", groups=False)[0]
    decided = trained.predict(X)
    assert (decided == made_for.predict(np.insert(encoded, 0, 1.0, axis=1))).mean() > 0.98
    assert gap(decided) < gap(Y) - 0.1
    assert (decided == Y).mean() > 0.7
    header = distiller.release_.header
    asked = header.config.rho_o, header.config.steps, header.config.lambda_theta, len(made)
    assert (header.own_columns, asked) == (("(label)",), (30, 400, 2e-3, 24))


def test_encoder_makes_the_columns_of_the_rows(distilled):
    distiller, made, _ = distilled
    coded = distiller.encoder_.transform(X.iloc[:, ::-1])
    assert list(coded) == list(made) == [*distiller.encoder_.get_feature_names_out()]
    np.testing.assert_array_equal(coded["home=rent"], X["home"] == "rent")
    np.testing.assert_allclose(coded["income"], X["income"])
    with pytest.raises(sf.InputError, match="'home'"):
        distiller.encoder_.transform(X.drop(columns="home"))


@pytest.mark.parametrize("penalty", ["covariance", squared_gap])
def test_weights_are_repetitions_in_what_is_distilled(penalty):
    weight, distiller = np.where(Y == "yes", 3, np.arange(len(Y)) % 3), clone(QUICK)
    many = np.repeat(TABLE.index, weight)
    distiller.set_params(penalty=penalty)
    weighted, _ = distiller.fit_resample(X, Y, sample_weight=weight, **GROUPS)
    groups = TABLE["town"][many]
    repeated, _ = distiller.fit_resample(X.loc[many], Y[many], sensitive_features=groups)
    pd.testing.assert_frame_equal(weighted, repeated)


def test_random_state_gives_the_same_rows_and_another_gives_others():
    distillers = [clone(QUICK).set_params(random_state=seed) for seed in (0, 0, 1)]
    with pytest.warns(ConvergenceWarning), jax.enable_x64(False):  # as a user may have it
        made = [distiller.fit_resample(X, Y, **GROUPS)[0] for distiller in distillers]
    assert not distillers[0].converged_
    pd.testing.assert_frame_equal(made[0], made[1])
    assert not np.allclose(made[0], made[2])


@pytest.mark.parametrize(("given", "learned"), [
    ({"bounds": PUBLIC["bounds"]}, r"\['home'\]"),
    ({"categories": PUBLIC["categories"]}, r"\['income', 'age'\]"),
    ({}, r"\['income', 'age', 'home'\]"),
])  # fmt: skip
def test_columns_learned_from_the_rows_are_warned_of_as_not_public(given, learned):
    distiller = Distiller(n_synthetic=24, steps=3, random_state=0, **given)
    with pytest.warns(UserWarning, match=f"^X: columns {learned}"):
        distiller.fit_resample(X, Y, **GROUPS)
