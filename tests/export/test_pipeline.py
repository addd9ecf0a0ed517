"""A trained model in other forms: unscaled coefficients, contributions, and scikit-learn."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from builders import make_table
from exported import additive, linear, network, schema_of
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from synthfair.data.encode import encode
from synthfair.data.schema import Numeric
from synthfair.errors import InputError
from synthfair.postprocess import GroupDecision
from synthfair.trained import predict, read_model, write_model

ROWS = make_table(n=200, n_groups=3).assign(code=[5, 7] * 100, kind=[2, 3, 1.5, 3] * 50)
KINDS = {"all": linear(), "no intercept": linear(intercept=False),
         "group not read": linear(group_input=False)}  # fmt: skip
EXPORTED = KINDS | {"additive": linear(additive())}
each_kind = pytest.mark.parametrize("model", EXPORTED.values(), ids=EXPORTED)


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_coefficients_give_the_score_by_hand(model):
    found = model.coefficients
    table = ROWS.assign(income=ROWS["income"] * 1.5 - 20)  # beyond both bounds
    score = np.full(len(table), found["(intercept)"])
    score += found["income"] * table["income"].clip(0, 100)
    score += found["age"] * table["age"].fillna(0) + found["age is missing"] * table["age"].isna()
    for name, value in (("home", "own"), ("home", "rent"), ("home", "other"), ("code", 5),
                        ("kind", 1.5), ("kind", 2), ("kind", 3), ("town", "b"), ("town", "c")):  # fmt: skip
        score += found.get(f"{name}={value}", 0.0) * (table[name] == value)
    score += found["home is missing"] * table["home"].isna()
    with pytest.warns(UserWarning, match="column 'income'"):
        np.testing.assert_allclose(score, predict(model, table)["score"], atol=1e-9)
    assert ("town=b" in found) == model.group_input


def change(path, **coefficients):
    document = json.loads(path.read_text())
    document["coefficients"] |= coefficients
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("wrong", [{"income": 2.0}, {"more": 1.0}, {"age": 10**39}, {"age": "1"}])
def test_coefficients_in_a_file_that_are_not_the_models_are_refused(tmp_path, wrong):
    write_model(linear(), path := tmp_path / "m.json")
    assert json.loads(path.read_text())["coefficients"] == linear().coefficients
    change(path, **wrong)
    with pytest.raises(InputError, match=r"m.json: coefficients"):
        read_model(path)


def test_coefficients_that_are_small_are_compared_too(tmp_path):
    columns = {"debt": Numeric(lower=0, upper=1e15)} | schema_of().columns
    model = linear(schema_of(columns=columns))
    write_model(model, path := tmp_path / "m.json")
    assert read_model(path) == model
    change(path, debt=-model.coefficients["debt"])
    with pytest.raises(InputError, match="coefficients"):
        read_model(path)


def test_coefficients_of_a_network_are_refused(tmp_path):
    write_model(network(), tmp_path / "m.json")
    assert read_model(tmp_path / "m.json") == network()
    with pytest.raises(InputError, match="coefficients"):
        network().coefficients  # noqa: B018


@each_kind
def test_contributions_sum_to_the_score_by_column(model):
    x, s, _ = encode(ROWS, model.schema_)
    start, found = model.contributions(x, s)
    np.testing.assert_allclose(start + sum(found.values()), model.scores(x, s), atol=1e-12)
    columns = [*model.schema_.encoded_blocks, *(["town"] if model.group_input else [])]
    assert list(found) == columns
    changed = encode(ROWS.assign(home="rent", code=5), model.schema_)
    other = model.contributions(*changed[:2])[1]
    touched = [name for name in found if not np.allclose(found[name], other[name])]
    assert touched == [name for name in found if "home" in name or "code" in name]


def test_contributions_of_the_middle_are_nothing():
    """Of a number in the middle of its bounds; and of a category over all categories alike."""
    model = linear()
    table = ROWS.iloc[:6].assign(
        income=50.0, age=54.0, code=[7, 5] * 3, kind=[1.5, 2, 3] * 2,
        home=["own", "rent", "other"] * 2, town=["a", "b", "c"] * 2,
    )  # fmt: skip
    _, found = model.contributions(*encode(table, model.schema_)[:2])
    for values in found.values():
        assert values.mean() == pytest.approx(0)
    assert np.abs(found["home"]).max() > 0.1


def test_contributions_against_the_mean_of_rows_are_shapley_values():
    """For a linear model: coefficient times (value - mean)."""
    model = linear()
    x, s, _ = encode(ROWS, model.schema_)
    start, found = model.contributions(x, s, model.rows(x, s).mean(axis=0))
    assert start == pytest.approx(model.scores(x, s).mean())
    expected = model.coefficients["income"] * (ROWS["income"] - ROWS["income"].mean())
    np.testing.assert_allclose(found["income"], expected, atol=1e-12)


@each_kind
def test_pipeline_predicts_the_same_from_raw_columns(model):
    pipeline, scored = model.to_sklearn(), predict(model, ROWS)
    assert (pipeline.predict(ROWS) == scored["decision"]).all()
    if not model.group_input:
        pd.testing.assert_frame_equal(predict(model, ROWS.drop(columns="town")), scored)
        assert (pipeline.predict(ROWS.drop(columns="town")) == scored["decision"]).all()
    np.testing.assert_allclose(pipeline.decision_function(ROWS), scored["score"], rtol=1e-12)
    chance = 1 / (1 + np.exp(-scored["score"]))
    np.testing.assert_allclose(pipeline.predict_proba(ROWS)[:, 1], chance, rtol=1e-12)


@pytest.mark.parametrize("positive", ["no", "yes"])
def test_pipeline_has_its_classes_in_order(positive):
    model = linear(schema_of(positive=positive))
    pipeline, scored = model.to_sklearn(), predict(model, ROWS)
    assert (pipeline.predict(ROWS) == scored["decision"]).all()
    assert list(pipeline.classes_) == ["no", "yes"]
    sign = 1 if positive == "yes" else -1
    found = roc_auc_score(ROWS["paid"], pipeline.decision_function(ROWS))
    assert found == roc_auc_score(ROWS["paid"] == "yes", sign * scored["score"])


def test_pipeline_is_cloned_and_pickled_and_names_its_inputs():
    model = linear()
    pipeline = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert (pipeline.predict(ROWS) == model.to_sklearn().predict(ROWS)).all()
    named = pipeline[:-1].set_output(transform="pandas").transform(ROWS)
    assert list(named.columns) == list(model.inputs[:-1])
    assert clone(pipeline).fit(ROWS, ROWS["paid"]).score(ROWS, ROWS["paid"]) > 0.7


def test_pipeline_of_another_model_is_refused():
    rule = GroupDecision(
        notion="equal_opportunity", alpha=0.1, n_bins=2, steps=(((1, 1.0),),) * 3, key=None
    )
    for word, model in (
        ("hidden", network()), ("squared_hinge", linear(loss="linear, squared_hinge loss")),
        ("decides by group", linear().model_copy(update={"decision": rule})),
    ):  # fmt: skip
        with pytest.raises(InputError, match=word):
            model.to_sklearn()


def test_pipeline_refuses_rows_that_do_not_fit():
    pipeline = linear().to_sklearn()
    for rows, words in (
        (ROWS.assign(home="castle"), "X: column 'home', row 1"),
        (ROWS.to_numpy(), "X: ndarray"),
        (ROWS.drop(columns="town"), "X: column 'town'"),
    ):
        with pytest.raises(InputError, match=words):
            pipeline.predict(rows)
