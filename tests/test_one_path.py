"""Every way to make a release makes it of all rows, by the same function and defaults."""

import pkgutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.client import Options, RefusedReleaseError, distill_file, fair_task
from synthfair.client.fair_task import HeldOut
from synthfair.compare import federate, run_method
from synthfair.compare.compared_methods import make_surrogates, surrogate_settings
from synthfair.data.encode import encode, in_content_order
from synthfair.data.partition import ClientTable
from synthfair.errors import InputError
from synthfair.privacy.noise import seeded

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
    options = Options(noise_seed=3 if config.epsilon else None, accept_risk=True)
    made, receipt = distill_file(*paths, config, options)
    assert_same(made.release, sf.distill_table(TABLE, SCHEMA, config, **noise).release)
    assert (receipt.preview is None) == isinstance(config, sf.SurrogateConfig)
    if receipt.preview:
        assert (receipt.preview.n_held_out > 20) == (config.epsilon is None)
    assert receipt.no_trial == ""


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
    assert set(surrogate_settings(given).model_dump(exclude_defaults=True)) == {"seed", *PRIVATE}


# The trial


def stages_of(paths, config, **options):
    stages = []
    distill_file(*paths, config, Options(again=True, **options), on_stage=stages.append)
    return stages


def test_the_stages_are_told_in_words(paths):
    assert stages_of(paths, FAIR) == ["trial release", "distilling"]
    assert stages_of(paths, FAIR, hold_out=0.0, force=True) == ["distilling"]
    private = CONFIGS["private fair"]
    assert stages_of(paths, private, force=True, accept_risk=True) == ["distilling"]
    for kind in ("surrogate", "private surrogate"):
        told = stages_of(paths, CONFIGS[kind], force=True)
        assert told[0] == "reading the rows"
        assert not any("trial" in stage for stage in told)


class Planted:
    """A function that makes releases; one of them gets a real row."""

    def __init__(self, make, number):
        self.make, self.number, self.calls = make, number, 0

    def __call__(self, *args, **options):
        made, self.calls = self.make(*args, **options), self.calls + 1
        if self.calls != self.number:
            return made
        x = made.release.x.copy()
        x[3] = encode(TABLE, SCHEMA).x[200]
        return made._replace(release=replace(made.release, x=x))


MAKE_FAIR = "synthfair.client.fair_task.distill_problem"


@pytest.mark.parametrize("number", [1, 2], ids=["trial", "release"])
def test_copies_stop_the_trial_and_the_release(paths, monkeypatch, number):
    """A release that is accepted says what it holds itself, not what a trial held."""
    planted = Planted(pkgutil.resolve_name(MAKE_FAIR), number)
    monkeypatch.setattr(MAKE_FAIR, planted)
    with pytest.raises(RefusedReleaseError, match="Holds copies of real rows"):
        distill_file(*paths, FAIR)
    assert planted.calls == number
    assert not paths[2].exists()
    planted.calls = 0
    made, _ = distill_file(*paths, FAIR, Options(accept_risk=True))
    copies = "Holds copies of real rows." in made.release.header.privacy.accepted_risks
    assert copies == (number == 2)


def test_where_a_trial_cannot_be_made_the_release_is_checked_alone(paths):
    """Few rows are held out."""
    make_table(100).to_parquet(paths[0])
    stages = []
    _, receipt = distill_file(*paths, FAIR, on_stage=stages.append)
    assert "trial release" not in stages
    assert "no trial: fewer than 20 different rows are held out" in receipt.no_trial
    assert receipt.preview.distances is None


def test_a_group_that_is_held_out_has_no_trial(paths):
    """Its one row; the release needs none of it with a covariance of three groups."""
    schema = make_schema(3)
    paths[1].write_text(schema.to_json())
    rare = TABLE.iloc[[0]].assign(town="c")
    seed = next(
        seed for seed in range(200) if HeldOut(0.1, seed)(encode(rare, schema))[0]
    )  # fmt: skip
    pd.concat([TABLE, rare], ignore_index=True).to_parquet(paths[0])
    config = sf.DistillConfig(n_synthetic=24, steps=10, penalty="selection_rate", seed=seed)
    stages = []
    _, receipt = distill_file(*paths, config, on_stage=stages.append)
    assert stages == ["distilling"]
    assert "no trial: without the held-out rows, " in receipt.no_trial
    assert "holds only ['a', 'b']" in receipt.no_trial


def test_the_least_number_of_rows_is_that_of_all(paths, monkeypatch):
    monkeypatch.setattr(fair_task, "MIN_ROWS", ROWS)
    _, receipt = distill_file(*paths, FAIR, Options(hold_out=0.3))
    assert receipt.preview.n_held_out > 20
    monkeypatch.setattr(fair_task, "MIN_ROWS", ROWS + 1)
    with pytest.raises(InputError, match="400 rows; a release needs at least 401"):
        distill_file(*paths, FAIR, Options(force=True))


def test_copied_labels_are_of_all_rows(paths):
    config = sf.DistillConfig(labels="copy", n_synthetic=ROWS, steps=2)
    said = r"in order\. Try labels = balanced\. Only if that cannot be: accept_risk = true"
    with pytest.raises(RefusedReleaseError, match=said) as refused:
        distill_file(*paths, config)
    assert refused.value.preview.n_held_out > 20  # of the trial
    made, _ = distill_file(*paths, config, Options(accept_risk=True))
    np.testing.assert_array_equal(made.release.s, in_content_order(encode(TABLE, SCHEMA)).s)
