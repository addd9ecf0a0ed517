"""What was traced once is found again, and only where it is the same."""

import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table
from test_outer import some_problem

from synthfair import traces
from synthfair.config import DistillConfig
from synthfair.distill import outer
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.model import LinearModel

CONFIG = DistillConfig(steps=70)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where traces are kept now."""
    monkeypatch.setattr(traces, "_folder", lambda: tmp_path)
    jax.clear_caches()
    return tmp_path


def run(config=CONFIG, **settings):
    problem, x = some_problem(**settings)
    state = outer.init(problem, x, config)
    *_, (end, records) = outer.run(problem, state, config)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((end, records))]


def same(first, second):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("settings", [{}, {"penalty": "selection_rate", "n_groups": 3}])
@pytest.mark.parametrize("optimizer", ["adam", "gauss_newton"])
def test_a_kept_trace_gives_the_same_numbers_and_nothing_is_traced(
    folder, monkeypatch, optimizer, settings
):
    config = CONFIG.model_copy(update={"optimizer": optimizer})
    with monkeypatch.context() as without:
        without.setattr(traces, "_folder", lambda: None)
        plain = run(config, **settings)
    jax.clear_caches()
    written = run(config, **settings)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    jax.clear_caches()
    monkeypatch.setattr(outer, "step", None)  # whoever traces a step fails
    assert same(run(config, **settings), written)
    assert same(written, plain)


def test_one_trace_serves_both_chunks_of_a_run(folder):
    before = outer.compilations()
    run()
    assert outer.compilations() == before + 1


def test_what_differs_has_traces_of_its_own(folder):
    settings = [
        {}, {"penalty": "selection_rate"}, {"notion": "equal_opportunity"}, {"rho_s": 0.0},
        {"n_synthetic": 48}, {"intercept": False},
    ]  # fmt: skip
    for count, each in enumerate(settings):
        assert len(list(folder.iterdir())) == count
        jax.clear_caches()
        run(**each)
    for each in ({"inner_solver": "newton"}, {"linear_solver": "conjugate_gradient"}):
        run(CONFIG.model_copy(update=each))
    assert len(list(folder.iterdir())) == len(settings) + 2
    run(rho_o=7.0, lambda_theta=0.1, seed=3)  # numbers are arguments
    assert len(list(folder.iterdir())) == len(settings) + 2


@dataclass(frozen=True)
class Doubled(CovariancePenalty):
    def __call__(self, model, params, rows):
        return 2 * super().__call__(model, params, rows)


def squared_hinge(margin):
    return jnp.maximum(1 - margin, 0) ** 2


squared_hinge.__name__ = "logistic"


@pytest.mark.parametrize(
    "parts", [{"custom": Doubled()}, {"model": LinearModel(squared_hinge)}], ids=["penalty", "loss"]
)
def test_parts_from_elsewhere_are_traced_each_time(folder, parts):
    run(**parts)
    assert not list(folder.iterdir())


def test_another_version_or_setting_of_jax_traces_anew(folder, monkeypatch):
    run()
    for count, change in enumerate(
        [
            lambda: monkeypatch.setattr(traces, "_sources", lambda: "another"),
            lambda: monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest"),
        ]
    ):
        change()
        jax.clear_caches()
        run()
        assert len(list(folder.iterdir())) == count + 2


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:40] + b"!" + b[41:], lambda _: b""]
)
def test_a_damaged_trace_is_made_anew(folder, damage):
    expected = run()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    jax.clear_caches()
    assert same(run(), expected)
    assert file.read_bytes() == whole


def test_the_least_used_go(folder, monkeypatch):
    monkeypatch.setattr(traces, "MOST_KEPT", 2)
    sizes = [24, 36, 48]
    for size in sizes[:2]:
        run(n_synthetic=size)
    first, second = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    jax.clear_caches()
    run(n_synthetic=24)  # used again, so now the younger
    run(n_synthetic=48)
    assert first.exists()
    assert not second.exists()
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(traces, "_folder", lambda: tmp_path / "file")
    jax.clear_caches()
    assert len(run())


def test_a_second_client_traces_nothing_and_no_log_is_shown(tmp_path):
    """Only tracing needs optax. XLA, asked, tells of each piece of compiled code that it loads."""
    make_table().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(make_schema().model_dump_json())
    arguments = ["--data", "rows.csv", "--schema", "schema.json", "--output", "out.parquet"]
    arguments += ["--steps", "60", "--n-synthetic", "24", "--force", "--accept-risk"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TF_CPP_"))}

    def client():
        found = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "synthfair.client", *arguments],
            cwd=tmp_path,
            env=kept | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        said = found.stderr.splitlines()
        imports = [line for line in said if line.startswith("import time:")]
        assert not any("xla" in line.lower() for line in said if line not in imports)
        return any("optax" in line for line in imports), (tmp_path / "out.parquet").read_bytes()

    (first, made), (second, made_again) = client(), client()
    assert first
    assert not second
    assert made == made_again
