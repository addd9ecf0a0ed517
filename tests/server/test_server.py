import json
import os
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table, some_pool, some_release
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.release.format import make_header, write_release
from synthfair.server import pooling, read_releases, serve


@pytest.fixture
def releases():
    return some_pool(2, rows=120)


@pytest.fixture
def folder(tmp_path, releases, schema):
    for i, release in enumerate(releases.values()):
        write_release(release, tmp_path / f"client_{i}.parquet")
        make_table(seed=10 + i).to_csv(tmp_path / f"client_{i}_test.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    return tmp_path


def served(folder, force=False, name="server"):
    return serve(
        sorted(folder.glob("*.parquet")),
        folder / "schema.json",
        sorted(folder.glob("*_test.csv")),
        folder / name,
        sf.ServerConfig(resamples=50),
        force=force,
    )


def test_the_pooled_model_is_scikit_learns(releases, schema):
    model = sf.pool_and_train(releases, schema)
    x, s, y = pooling.concatenated(releases.values())
    a = np.column_stack([x, s, np.ones(len(y))])
    penalty = 1e-3 / a.shape[1] ** 2
    reference = LogisticRegression(
        C=1 / (penalty * len(y)), fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    reference.fit(a, y)
    assert model.converged
    np.testing.assert_allclose(model.theta, reference.coef_[0], rtol=1e-3, atol=1e-3)


def test_metrics_json_has_what_its_contract_says(folder):
    model, evaluation, influences, *_ = served(folder)
    found = json.loads((folder / "server" / "metrics.json").read_text())
    names = [
        "accuracy",
        "spd",
        "equal_opportunity_difference",
        "equalized_odds_difference",
        "covariance",
    ]
    assert set(found) == {
        *names, "asked", "constant_classifier", "warnings", "server", "rho", "max_spd_influence", "left_out", "per_client", "client_gaps", "by_group", "rows", "n_test", "n_synthetic", "config", "guarantees", "converged",
        "schema_hash",        "version", "packages", "resamples", "min_group_rows", "small_groups", "seed", "influence", "max_influence", "without_penalty",
    }  # fmt: skip
    for part in (found, found["per_client"]["client_0_test"], found["per_client"]["client_1_test"]):
        for name in names:
            assert part[name]["low"] <= part[name]["value"] <= part[name]["high"]
    assert (found["n_test"], found["n_synthetic"]) == (240, 240)
    assert found["schema_hash"] == model.schema_.hash
    assert found["spd"]["value"] == evaluation.overall["spd"].value
    without = {"weight": None}  # there are no trusted rows
    listed = {name: moved._asdict() | without for name, moved in influences.releases.items()}
    assert found["influence"] == {"outliers_above": None, "releases": listed}
    assert list(influences.releases) == ["client_0", "client_1"]
    assert found["max_influence"] == 1.0


def test_metrics_are_those_of_the_written_model(folder):
    evaluation = served(folder).metrics
    model = sf.read_model(folder / "server" / "model.json")
    tables = [make_table(seed=10 + i) for i in range(2)]
    right = np.concatenate(
        [
            (model.scores(*encode(table, model.schema_)[:2]) > 0) == (table["paid"] == "yes")
            for table in tables
        ]
    )
    assert evaluation.overall["accuracy"].value == right.mean()


def test_the_same_inputs_give_the_same_files(folder):
    served(folder, name="one")
    served(folder, name="two")
    for name in ("model.json", "metrics.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_empty_pool():
    with pytest.raises(InputError, match="pool is empty"):
        read_releases([], make_schema())


def test_the_same_release_twice_under_any_name(folder, schema):
    (folder / "copy.parquet").write_bytes((folder / "client_0.parquet").read_bytes())
    with pytest.raises(InputError, match="copy.parquet: the same release as .*client_0.parquet"):
        read_releases([folder / "client_0.parquet", folder / "copy.parquet"], schema)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Forty releases of different rows."""
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(0)
    for i in range(40):
        x = rng.random((3, len(make_schema().encoded_names)))
        write_release(some_release(x), folder / f"client_{i}.parquet")
    return sorted(folder.iterdir())


def test_a_duplicate_among_many(many, schema):
    with pytest.raises(InputError, match=f"{many[7].name}: the same release as .*{many[7].name}"):
        read_releases([*many, many[7]], schema)
    assert list(read_releases(many, schema)) == list(map(str, many))


def test_a_bad_release_among_many(many, schema, tmp_path):
    bad = tmp_path / "bad.parquet"
    write_release(some_release(np.full((2, len(schema.encoded_names)), np.nan)), bad)
    with pytest.raises(InputError, match="bad.parquet: column 'income', row 1: nan"):
        read_releases([*many, bad], schema)


def test_memory_is_limited_for_all_releases_together(many, schema, monkeypatch):
    """Three rows each."""
    columns = len(schema.encoded_names) + 2
    room = 3 * 3 * columns + 5
    monkeypatch.setattr(pooling, "MAX_CELLS", room)
    assert len(read_releases(many[:3], schema)) == 3
    complaint = f"{many[3].name}: holds 3 rows of {columns} columns;"
    with pytest.raises(InputError, match=f"{complaint}.*leave 5"):
        read_releases(many[:4], schema)


@pytest.fixture
def few_files():
    """At most five more files may be open at a time."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 5, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_releases_are_not_held_open(many, schema, few_files):
    assert len(read_releases(many, schema)) == len(many)


def made_for(release, **changes):
    return replace(release, header=release.header.model_copy(update=changes))


def test_clients_of_different_problems(releases, schema):
    config = releases["c0"].header.config.model_copy(update={"lambda_theta": 0.5})
    releases["odd"] = made_for(releases["c0"], config=config)
    with pytest.raises(InputError, match="odd: made for .*0.5.*clients must agree"):
        sf.pool_and_train(releases, schema)


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def test_a_custom_loss_must_be_given_to_the_server(releases, schema):
    name = "linear, squared_hinge loss"
    releases = {client: made_for(release, model=name) for client, release in releases.items()}
    with pytest.raises(InputError, match=f"{name!r}"):
        sf.pool_and_train(releases, schema)
    trained = sf.pool_and_train(releases, schema, model=sf.LinearModel(squared_hinge))
    assert (trained.loss, trained.converged) == (name, True)


@dataclass(frozen=True)
class Scaled(sf.LinearModel):
    """Other scores than a trained model has."""

    hessian = None

    def scores(self, params, a):
        return 2.0 * super().scores(params, a)


@dataclass(frozen=True)
class Pairs(sf.LinearModel):
    """Other params than a trained model has."""

    def init(self, n_inputs):
        return jnp.zeros(n_inputs), jnp.zeros(())


@pytest.mark.parametrize(
    ("model", "complaint"), [(Scaled(), "only linear models"), (Pairs(), "must be a vector of")]
)
def test_a_model_that_is_not_linear_is_refused(model, complaint, releases, schema):
    releases = {client: made_for(release, model=model.name) for client, release in releases.items()}
    with pytest.raises(InputError, match=complaint):
        sf.pool_and_train(releases, schema, model=model)


def test_a_bad_test_table_leaves_no_output(folder):
    (folder / "client_1_test.csv").write_text("income\n1\n")
    with pytest.raises(InputError, match="client_1_test"):
        served(folder)
    assert not (folder / "server").exists()


def test_inputs_are_never_overwritten(folder):
    served(folder)
    model, metrics = folder / "server" / "model.json", folder / "server" / "metrics.json"
    (folder / "schema.json").rename(model)
    releases, tests = sorted(folder.glob("*.parquet")), sorted(folder.glob("*_test.csv"))
    with pytest.raises(InputError, match="is named twice"):
        serve(releases, model, tests, folder / "server", sf.ServerConfig(), force=True)
    with pytest.raises(InputError, match="is named twice"):
        serve(releases, folder / "s", [metrics], folder / "server", sf.ServerConfig(), force=True)


def test_a_loss_without_a_name_is_refused(schema):
    model = sf.LinearModel(lambda margin: jnp.exp(-margin))
    with pytest.raises(InputError, match="needs a name"):
        make_header(sf.DistillConfig(), schema, model=model, penalty=sf.CovariancePenalty())


def test_existing_output_is_not_overwritten_without_force(folder):
    served(folder)
    before = (folder / "server" / "model.json").read_bytes()
    with pytest.raises(InputError, match="exists"):
        served(folder)
    served(folder, force=True)
    assert (folder / "server" / "model.json").read_bytes() == before
