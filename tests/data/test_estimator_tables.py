"""Tables that an estimator is given are read as files are, and as its saved model reads them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from builders import make_table
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

import synthfair as sf
from synthfair.sklearn import Distiller, FairLogisticRegression

TABLE = make_table(240).assign(home=lambda t: t["home"].fillna("own"))
X, Y, TOWN = TABLE[["income", "home"]], TABLE["paid"], TABLE["town"]
KINDS = st.sampled_from(["ill", "well", "WELL "]), st.sampled_from(["x", "y", "z", "castle", None])


def plain(x, **settings):
    return FairLogisticRegression(rho=0, **settings).fit(x, Y)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An estimator, and its model as a file has it."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("saved") / "model.json"
    table = pd.DataFrame({"a": rng.uniform(0, 1, 240), "b": rng.normal(size=240)})
    table = table.assign(ill=rng.choice(["ill", "well"], 240), home=rng.choice([*"xyz"], 240))
    table.loc[::9, "home"] = None
    model = FairLogisticRegression(rho=1.0, pos_label="no").fit(table, Y, sensitive_features=TOWN)
    sf.write_model(model.model_, path)
    return model, sf.read_model(path)


@pytest.mark.filterwarnings("ignore:(X|table)")
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-50, 50), *KINDS), min_size=1, max_size=5))
def test_estimator_decides_as_the_model_that_it_saves(saved, rows):
    """On every row: beyond the bounds, unseen, missing."""
    model, read = saved
    table = pd.DataFrame(rows, columns=["a", "b", "ill", "home"])
    scored = sf.predict(read, table.assign(sensitive_features="f"))
    decided = model.decision_function(table)
    np.testing.assert_allclose(decided, -scored["score"], atol=1e-9)  # of "yes", and of "no"
    certain = abs(decided) > 1e-9
    assert (model.predict(table) == scored["decision"])[certain].all()
    chances = read.to_sklearn().predict_proba(table.assign(sensitive_features="f"))
    for each in (model.predict_proba(table), chances):
        np.testing.assert_allclose(each[:, 0], scored["probability"], atol=1e-9)


def test_estimator_scores_unseen_categories_and_missing_values_as_missing():
    missing = np.random.default_rng(0).random((240, 2)) < 0.1
    model = plain(X.mask(missing))
    new = pd.DataFrame({"income": [0.2, np.nan], "home": ["never seen", None]})
    by_name = dict(zip(model.encoded_names_, model.coef_[0], strict=True))
    expected = np.array([0.2 * by_name["income"], by_name["income is missing"]])
    with pytest.warns(UserWarning, match="'home': 1 of 2 values"):
        found = model.decision_function(new)
    np.testing.assert_allclose(found, expected + by_name["home is missing"] + model.intercept_)
    with pytest.raises(sf.InputError, match="'home'"):
        plain(X.mask(missing), categories={"home": ["own", "rent"]})


def test_estimator_does_not_count_blanks():
    def fitted(name, x, town):
        model = FairLogisticRegression(bounds={name: (0, 100)})
        return model.fit(x, Y, sensitive_features=town)

    blank = np.where(TABLE.index % 2, " ", "")
    padded = X.rename(columns={"income": " income"}).assign(home=X["home"] + blank)
    model = fitted(" income", padded, TOWN + blank)
    assert model.groups_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.coef_, fitted("income", X, TOWN).coef_)
    kind = pd.CategoricalDtype(["own", "rent ", "other", "tent"])
    model = plain(X.assign(home=X["home"].replace({"rent": "rent "}).astype(kind)))
    assert model.schema_.columns["home"].categories == ("own", "rent", "other", "tent")


def test_estimator_reads_texts_of_numbers_and_sparse_rows_as_numbers():
    numbers = TABLE[["income"]].round(3)
    texts = plain(numbers.astype(str))
    np.testing.assert_array_equal(texts.coef_, plain(numbers).coef_)
    codes = plain(numbers.assign(code=["01003", "20095"] * 120))
    assert list(codes.encoded_names_) == ["income", "code=20095"]
    sparse = OneHotEncoder().fit_transform(X[["home"]])
    np.testing.assert_array_equal(plain(sparse).coef_, plain(sparse.toarray()).coef_)
    with pytest.raises(sf.InputError, match="1000000000 columns; at most 10000"):
        plain(scipy.sparse.csr_matrix((240, 10**9)))


def test_distiller_publishes_no_shares_of_the_rows():
    public = {"categories": {"home": ["own", "rent", "other"]}, "bounds": {"income": (0, 100)}}
    distiller = Distiller(n_synthetic=24, steps=2, **public)
    with pytest.warns(UserWarning, match="has not converged"):
        distiller.fit_resample(X, Y, sensitive_features=TOWN)
    for schema in (distiller.schema_, distiller.release_.header.table_schema):
        assert schema.columns["home"].shares is None
