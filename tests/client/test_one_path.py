"""Every way to make a release makes it of all rows, by the same function and defaults."""

from dataclasses import replace

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.client import distill_file, fair_task
from synthfair.compare import federate, run_method
from synthfair.compare.compared_methods import make_surrogates
from synthfair.data.encode import content_order, encode
from synthfair.data.partition import ClientTable
from synthfair.errors import InputError
from synthfair.privacy.noise import seeded
from synthfair.task.protocol import Run

ROWS, SCHEMA = 400, make_schema()
TABLE = make_table(ROWS)

FAIR = sf.DistillConfig(n_synthetic=24, steps=30)
SURROGATE = sf.SurrogateConfig(k_min=5)
PRIVATE = {"epsilon": 20.0, "delta": 1e-5}
CONFIGS = {
    "fair": FAIR,
    "surrogate": SURROGATE,
    "private fair": sf.DistillConfig(**FAIR.model_dump(exclude_unset=True) | PRIVATE),
    "private surrogate": SURROGATE.model_copy(update=PRIVATE),
}


@pytest.fixture
def paths(tmp_path):
    TABLE.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.parquet", tmp_path / "schema.json", tmp_path / "out.parquet"


def assert_same(found, wanted):
    """A surrogate to the last bit; a fair one but for rounding, by a step of the grid."""
    np.testing.assert_array_equal(found.s, wanted.s)
    np.testing.assert_array_equal(found.y, wanted.y)
    np.testing.assert_allclose(found.x, wanted.x, atol=1e-3)
    assert (found.weight is None) == (wanted.weight is None)
    if wanted.weight is not None:
        np.testing.assert_array_equal(found.x, wanted.x)
        np.testing.assert_array_equal(found.weight, wanted.weight)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_file_holds_what_python_makes(paths, kind):
    config = CONFIGS[kind]
    noise = {"noise": seeded(3)} if config.epsilon else {}
    made, _ = distill_file(*paths, config, noise_seed=3 if config.epsilon else None)
    assert_same(made.release, sf.distill_table(TABLE, SCHEMA, config, **noise).release)


def test_a_comparison_makes_what_python_makes():
    clients = [ClientTable(make_table(ROWS, seed=i), TABLE.head(50)) for i in range(2)]
    federation = federate(clients, SCHEMA)
    _, fitted = run_method("single_shot", federation, FAIR, sf.ServerConfig(resamples=1))
    surrogates = make_surrogates(federation, SURROGATE)
    for name, client, own in zip(federation.names, clients, fitted.distillations, strict=True):
        assert_same(own.release, sf.distill_table(client.train, SCHEMA, FAIR).release)
        alone = sf.distill_table(client.train, SCHEMA, SURROGATE).release
        assert_same(surrogates[name], alone)
    given = sf.DistillConfig(seed=4, **PRIVATE)
    assert set(given.records.model_dump(exclude_defaults=True)) == {*PRIVATE}


def stages_of(paths, config):
    stages = []
    distill_file(*paths, config, again=True, force=True, run=Run(on_stage=stages.append))
    return stages


def test_the_stages_are_told_in_words(paths):
    reading = "reading the rows"
    assert stages_of(paths, FAIR) == [reading, "distilling"]
    bought = stages_of(paths, CONFIGS["private fair"])
    assert (bought[0], bought[-1]) == (reading, "distilling")
    assert len(bought) > 3
    assert stages_of(paths, CONFIGS["private fair"]) == [reading, "distilling"]
    assert stages_of(paths, SURROGATE)[0] == reading


def test_a_planted_copy_stops_the_release(paths, monkeypatch):
    distill = fair_task.FairTask.distill

    def planted(*given):
        made = distill(*given)
        x = made.release.x.copy()
        x[3] = encode(TABLE, SCHEMA).x[200]
        return made._replace(release=replace(made.release, x=x))

    monkeypatch.setattr(fair_task.FairTask, "distill", planted)
    with pytest.raises(InputError, match="1 of 24 synthetic rows are copies of real rows"):
        distill_file(*paths, FAIR)
    assert not paths[2].exists()


def test_the_least_number_of_rows_is_that_of_all(paths, monkeypatch):
    monkeypatch.setattr(fair_task, "MIN_EXACT_ROWS", ROWS)
    distill_file(*paths, FAIR)
    monkeypatch.setattr(fair_task, "MIN_EXACT_ROWS", ROWS + 1)
    with pytest.raises(InputError, match="400 rows; a release needs at least 401"):
        distill_file(*paths, FAIR, force=True)


def test_copied_labels_are_of_all_rows(paths):
    config = sf.DistillConfig(labels="copy", n_synthetic=ROWS, steps=2)
    made, _ = distill_file(*paths, config)
    rows = encode(TABLE, SCHEMA)
    order = content_order([*rows.x.T, rows.y])  # a blind release's order tells no group
    np.testing.assert_array_equal(made.release.y, rows.y[order])
