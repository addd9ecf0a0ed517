"""The calls of Python from frames to a fair model: what they take, and what they refuse."""

import numpy as np
import pytest
from builders import SCHEMA, TABLE, make_table

import synthfair as sf


@pytest.fixture(scope="module")
def sent():
    """What two clients computed."""
    config = sf.SurrogateConfig(k_min=10)
    return [sf.distill_table(make_table(300, seed=seed), SCHEMA, config) for seed in (0, 1)]


def test_penalty_by_name_is_that_of_the_settings(sent):
    config = sf.ServerConfig(rho=3.0, penalty="selection_rate")
    by_name = sf.pool_and_train(sent, SCHEMA, sf.ServerConfig(rho=3.0), penalty="selection_rate")
    assert by_name.theta == sf.pool_and_train(sent, SCHEMA, config).theta
    with pytest.raises(sf.InputError, match="penalty: .*'gap'"):
        sf.pool_and_train(sent, SCHEMA, penalty="gap")
    quick = sf.DistillConfig(steps=2, n_synthetic=24)
    fair = sf.distill_table(TABLE, SCHEMA, quick, penalty="selection_rate").release
    assert fair.header.config == quick.replace(penalty="selection_rate")


@pytest.mark.parametrize("weight", [[1.0] * 5, [np.nan] * 400, [-1.0] * 400, [0.0] * 400])
def test_weights_of_rows_are_finite_and_not_all_0(weight):
    with pytest.raises(sf.InputError, match="weight: must be 400"):
        sf.distill_table(TABLE, SCHEMA, weight=np.array(weight))
