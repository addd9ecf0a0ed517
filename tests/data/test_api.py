"""The calls of Python from frames to a fair model: what they take, and what they refuse."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders import SCHEMA, TABLE, make_table

import synthfair as sf


@pytest.fixture(scope="module")
def sent():
    """What two clients computed."""
    config = sf.SurrogateConfig(k_min=10)
    return [sf.distill_table(make_table(300, seed=seed), SCHEMA, config) for seed in (0, 1)]


@pytest.mark.parametrize("given", ["a.parquet", 3, [3], {"a": "a.parquet"}, [], "one"])
def test_releases_that_are_none_are_refused(given, sent):
    for one in [sent[0], sent[0].release] if given == "one" else [given]:
        with pytest.raises(sf.InputError, match="releases"):
            sf.pool_and_train(one, SCHEMA)


def test_penalty_by_name_is_that_of_the_settings(sent):
    config = sf.ServerConfig(rho=3.0, penalty="selection_rate")
    by_name = sf.pool_and_train(sent, SCHEMA, sf.ServerConfig(rho=3.0), penalty="selection_rate")
    assert by_name.theta == sf.pool_and_train(sent, SCHEMA, config).theta
    with pytest.raises(sf.InputError, match="penalty: .*'gap'"):
        sf.pool_and_train(sent, SCHEMA, penalty="gap")
    quick = sf.DistillConfig(steps=2, n_synthetic=24)
    fair = sf.distill_table(TABLE, SCHEMA, quick, penalty="selection_rate").release
    assert fair.header.config == quick.replace(penalty="selection_rate")


@pytest.mark.parametrize("make", [sf.ServerConfig, sf.CovariancePenalty, sf.federated.Parity])
def test_notion_has_fairlearns_name_too(make):
    assert make(notion="demographic_parity") == make(notion="statistical_parity")
    with pytest.raises(sf.InputError, match="'parity'"):
        make(notion="parity")


@pytest.mark.parametrize("weight", [[1.0] * 5, [np.nan] * 400, [-1.0] * 400, [0.0] * 400])
def test_weights_of_rows_are_finite_and_not_all_0(weight):
    with pytest.raises(sf.InputError, match="weight: must be 400"):
        sf.distill_table(TABLE, SCHEMA, weight=np.array(weight))


def test_tables_of_arrow_go_wherever_those_of_pandas_go(sent):
    model, table = sf.pool_and_train(sent, SCHEMA), pa.Table.from_pandas(TABLE)
    assert sf.evaluate(model, table).overall == sf.evaluate(model, TABLE).overall
    assert (model.predict(table) == model.predict(TABLE)).all()
    assert (model.to_sklearn().predict(table) == model.predict(TABLE)).all()
    pd.testing.assert_frame_equal(sf.predict(model, table), sf.predict(model, TABLE))
    one, other = (sf.partition(each, clients=2, seed=0)[1].test for each in (table, TABLE))
    pd.testing.assert_frame_equal(one, other)
