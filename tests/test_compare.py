from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.compare import demonstrate, train_centrally
from synthfair.data.partition import partition
from synthfair.fairness.metrics import boundary_covariance
from synthfair.report import outcomes_table, plain_text


@contextmanager
def silent(_):
    yield lambda records, step, steps: None


def test_central_penalty_lowers_the_covariance_on_real_rows():
    clients = partition(make_table(n=600), clients=2, seed=0)
    schema = make_schema()
    config = sf.DistillConfig(rho_o=100.0)
    train = sf.encode(pd.concat([c.train for c in clients]), schema)
    plain, fair = (
        boundary_covariance(
            train_centrally(clients, schema, config, penalized=p).scores(train.x, train.s),
            sensitive_features=train.s,
        )
        for p in (False, True)
    )
    assert abs(fair) < 0.05 * abs(plain)


def test_demo_compares_four_methods_and_writes_its_files(tmp_path):
    outcomes = demonstrate(tmp_path, sf.DistillConfig(steps=200), silent)
    assert [outcome.method for outcome in outcomes] == [
        "single-shot, rho_o = 10", "single-shot, rho_o = 0", "central, rho_o = 10", "central, rho_o = 0",
    ]  # fmt: skip
    spd = [outcome.evaluation.overall["spd"].value for outcome in outcomes]
    assert abs(spd[0]) < abs(spd[1])
    assert all(outcome.converged for outcome in outcomes)
    assert all(0.8 < outcome.evaluation.overall["accuracy"].value < 1 for outcome in outcomes)
    for name in ("fair", "plain"):
        assert (tmp_path / name / "server" / "metrics.json").exists()
    assert "399 test rows" in plain_text(outcomes_table(outcomes))
    with pytest.raises(sf.InputError, match="exists"):
        demonstrate(tmp_path, sf.DistillConfig(steps=1), silent)
    assert np.isfinite(spd).all()
