"""From a DataFrame to a fair model in Python: what is taken for what, and what is said."""

import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.errors import InputError

SCHEMA = make_schema()
CLIENTS = [make_table(300, seed=seed) for seed in (0, 1)]
SURROGATE = sf.SurrogateConfig(k_min=10)


@pytest.fixture(scope="module")
def sent():
    """What two clients computed."""
    return [sf.distill_table(table, SCHEMA, SURROGATE) for table in CLIENTS]


@pytest.fixture(scope="module")
def model(sent):
    return sf.pool_and_train(sent, SCHEMA)


def drafted(table, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return sf.draft_schema(table, **roles)


def test_five_names_lead_from_a_frame_to_a_fair_model():
    table = pd.concat(CLIENTS, ignore_index=True)
    with pytest.warns(UserWarning, match="read off the rows"):
        schema = sf.draft_schema(table, label="paid", sensitive="town")
    model = sf.pool_and_train([sf.distill_table(table, schema, SURROGATE)], schema)
    found = sf.evaluate(model, table).overall
    assert set(model.predict(table)) == {"no", "yes"}
    assert found["accuracy"].value > 0.7
    assert abs(found["spd"].value) < 0.1


@pytest.mark.parametrize(
    ("values", "positive", "wanted"),
    [
        (["no", "yes"], None, "yes"),
        ([False, True], None, True),
        ([0, 1], None, 1),
        (["bad", "good"], "good", "good"),
        (["bad", "fair", "good"], ["fair", "good"], ("fair", "good")),
    ],
)
def test_a_drafted_schema_has_the_positive_label_that_is_clear_or_given(values, positive, wanted):
    table = pd.DataFrame({"x": np.arange(60) % 7 + 0.5, "g": ["a", "b"] * 30})
    table["y"] = np.resize(np.array(values, object), 60)
    found = drafted(table, label="y", sensitive="g", positive=positive).positive
    assert found == wanted or str(found) == str(wanted)


def test_a_label_whose_positive_value_is_not_clear_is_refused():
    table = pd.DataFrame({"x": [0.5, 1.5] * 20, "g": ["a", "b"] * 20, "y": ["bad", "good"] * 20})
    with pytest.raises(InputError, match="positive: .*'y'.* bad, good"):
        sf.draft_schema(table, label="y", sensitive="g")


def test_releases_are_taken_by_name_in_a_list_or_as_files(sent, model, tmp_path):
    named = {"a": sent[0].release, "b": sent[1]}
    for given in (named, [sent[0].release, sent[1]], sent):
        assert sf.pool_and_train(given, SCHEMA).theta == model.theta
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path, one in zip(paths, sent, strict=True):
        sf.write_release(one.release, path)
    np.testing.assert_allclose(sf.pool_and_train(paths, SCHEMA).theta, model.theta, atol=1e-6)
    with pytest.raises(InputError, match="no releases"):
        sf.pool_and_train([], SCHEMA)


def test_a_penalty_by_name_is_that_of_the_settings(sent):
    config = sf.ServerConfig(penalty="selection_rate", rho=3.0)
    by_name = sf.pool_and_train(sent, SCHEMA, sf.ServerConfig(rho=3.0), penalty="selection_rate")
    assert by_name.theta == sf.pool_and_train(sent, SCHEMA, config).theta
    config = sf.DistillConfig(rho=3.0, steps=2, n_synthetic=8)
    fair = sf.distill_table(CLIENTS[0], SCHEMA, config, penalty="selection_rate").release
    assert fair.header.config == config.replace(penalty="selection_rate")
    assert fair.header.config.rho_o == 3.0
    with pytest.raises(InputError, match="penalty: .*'covariance' or 'selection_rate'; got 'gap'"):
        sf.pool_and_train(sent, SCHEMA, penalty="gap")


def test_fairlearns_name_of_a_notion_is_taken():
    for kind in (sf.DistillConfig, sf.ServerConfig):
        assert kind(notion="demographic_parity") == kind(notion="statistical_parity")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.SurrogateConfig(epsilon=np.float64(-6.5), delta=1e-6), "epsilon: .*; got -6.5"),
        (lambda: sf.DistillConfig(roh=3.0), "DistillConfig: roh: unknown key"),
        (lambda: sf.TrainConfig(method="fpfl", alpha=-1.0), "alpha: .*; got -1.0"),
    ],
)
def test_an_error_of_settings_is_a_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_what_is_shown_is_a_line(sent, model):
    config = sf.DistillConfig(rho_o=3.0, steps=2, n_synthetic=8)
    fair = sf.distill_table(CLIENTS[0], SCHEMA, config)
    shown = [SCHEMA, config, fair, fair.release, *sent, model, sf.evaluate(model, CLIENTS[0])]
    for one in shown:
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300
    assert repr(config) == "DistillConfig(rho_o=3.0, n_synthetic=8, steps=2)"
    assert eval(repr(config), {"DistillConfig": sf.DistillConfig}) == config
