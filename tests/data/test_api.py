"""The calls of Python from frames to a fair model: what they take, and what they refuse."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders import SCHEMA, TABLE, make_table

import synthfair as sf
from synthfair.errors import InputError


@pytest.fixture(scope="module")
def sent():
    """What two clients computed."""
    config = sf.SurrogateConfig(k_min=10)
    return [sf.distill_table(make_table(300, seed=seed), SCHEMA, config) for seed in (0, 1)]


@pytest.fixture(scope="module")
def model(sent):
    return sf.pool_and_train(sent, SCHEMA)


def test_releases_are_taken_by_name_in_a_list_or_as_files(sent, model, tmp_path):
    for given in ({"a": sent[0].release, "b": sent[1]}, [sent[0].release, sent[1]], sent):
        assert sf.pool_and_train(given, SCHEMA).theta == model.theta
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path, one in zip(paths, sent, strict=True):
        sf.write_release(one.release, path)
    np.testing.assert_allclose(sf.pool_and_train(paths, SCHEMA).theta, model.theta, atol=1e-6)


@pytest.mark.parametrize("given", ["a.parquet", 3, [3], {"a": "a.parquet"}, [], "one"])
def test_releases_that_are_none_are_refused(given, sent):
    for one in [sent[0], sent[0].release] if given == "one" else [given]:
        with pytest.raises(InputError, match="releases"):
            sf.pool_and_train(one, SCHEMA)


def test_penalty_by_name_is_that_of_the_settings(sent):
    config = sf.ServerConfig(penalty="selection_rate", rho=3.0)
    by_name = sf.pool_and_train(sent, SCHEMA, sf.ServerConfig(rho=3.0), penalty="selection_rate")
    assert by_name.theta == sf.pool_and_train(sent, SCHEMA, config).theta
    quick = sf.DistillConfig(rho_o=3.0, steps=2, n_synthetic=24)
    fair = sf.distill_table(TABLE, SCHEMA, quick, penalty="selection_rate").release
    assert fair.header.config == quick.replace(penalty="selection_rate")
    with pytest.raises(InputError, match="penalty: .*'gap'"):
        sf.pool_and_train(sent, SCHEMA, penalty="gap")


@pytest.mark.parametrize(
    "make",
    [
        lambda name: sf.ServerConfig(notion=name),
        lambda name: sf.TrainConfig(method="fair_sgd", notion=name),
        lambda name: sf.CovariancePenalty(notion=name),
        lambda name: sf.sklearn.FairLogisticRegression(notion=name)._fairness(),
    ],
    ids=["settings", "train", "penalty", "estimator"],
)
def test_notion_has_fairlearns_name_too(make):
    assert make("demographic_parity") == make("statistical_parity")
    with pytest.raises(InputError, match="notion.*'parity'|'parity'.*notion"):
        make("parity")


def test_settings_are_shown_as_the_call_that_makes_them():
    config = sf.DistillConfig(max_gap=0.05, penalty="covariance", steps=2)
    assert eval(repr(config), {"DistillConfig": sf.DistillConfig}) == config
    assert config.replace(seed=3) == sf.DistillConfig(**config.given, seed=3)
    with pytest.raises(InputError, match="^roh: unknown key"):
        sf.DistillConfig(roh=3.0)


@pytest.mark.parametrize("weight", [[1.0] * 5, [np.nan] * 400, [-1.0] * 400, [0.0] * 400])
def test_weights_of_rows_are_finite_and_not_all_0(weight):
    with pytest.raises(InputError, match="weight: must be 400"):
        sf.distill_table(TABLE, SCHEMA, weight=np.array(weight))


def test_tables_of_arrow_go_wherever_those_of_pandas_go(model):
    table = pa.Table.from_pandas(TABLE)
    assert sf.evaluate(model, table).overall == sf.evaluate(model, TABLE).overall
    assert (model.predict(table) == model.predict(TABLE)).all()
    assert (model.to_sklearn().predict(table) == model.predict(TABLE)).all()
    pd.testing.assert_frame_equal(sf.predict(model, table), sf.predict(model, TABLE))
    one, other = (sf.partition(each, clients=2, seed=0)[1].test for each in (table, TABLE))
    pd.testing.assert_frame_equal(one, other)


def test_plots_have_a_point_for_each_model_and_group(model):
    pytest.importorskip("matplotlib")
    found = sf.evaluate(model, TABLE)
    legend = sf.plot_tradeoff({"one": found, "other": found}, max_gap=0.1).legends[0]
    assert [text.get_text() for text in legend.get_texts()][:2] == ["one", "other"]
    legend = sf.plot_groups(found).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["town=a", "town=b"]
    for evaluations, notion in (({}, "statistical_parity"), ({"one": found}, "parity")):
        with pytest.raises(InputError):
            sf.plot_tradeoff(evaluations, notion)
