"""What was traced once is found again, and only where it is the same."""

import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

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
    return run_problem(*some_problem(**settings), config)


def run_problem(problem, x, config=CONFIG):
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
    "parts",
    [{"penalty": Doubled()}, {"model": LinearModel(squared_hinge)}],
    ids=["penalty", "loss"],
)
@pytest.mark.parametrize("where", ["both", "objective"])
def test_parts_from_elsewhere_are_traced_each_time(folder, parts, where):
    problem, x = some_problem()
    objective = dataclasses.replace(problem.objective, **parts)
    others = parts if where == "both" else {}
    run_problem(dataclasses.replace(problem, objective=objective, **others), x)
    assert not list(folder.iterdir())


def test_where_traces_are_kept(tmp_path, monkeypatch):
    settings = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(tmp_path)}
    monkeypatch.setattr(traces.jax, "config", SimpleNamespace(values=settings))
    assert traces._folder() == tmp_path / "traces"
    for other in (None, "gs://bucket/cache"):
        settings["jax_compilation_cache_dir"] = other
        assert traces._folder() is None
    settings |= {"jax_compilation_cache_dir": str(tmp_path), "jax_enable_compilation_cache": False}
    assert traces._folder() is None
    settings["jax_enable_compilation_cache"] = True
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert traces._folder() is None


@pytest.fixture
def restored():
    """A setting of JAX as it was."""
    yield
    jax.config.update("jax_default_matmul_precision", None)


def test_another_version_or_setting_of_jax_traces_anew(folder, monkeypatch, restored):
    run()
    for count, change in enumerate(
        [
            lambda: monkeypatch.setattr(traces, "_sources", lambda: "another"),
            lambda: jax.config.update("jax_default_matmul_precision", "highest"),
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


@pytest.mark.parametrize("trouble", ["folder", "package", "metadata"])
def test_no_trouble_with_traces_stops_a_run(folder, monkeypatch, trouble):
    if trouble == "folder":
        (folder / "file").touch()
        monkeypatch.setattr(traces, "_folder", lambda: folder / "file")
    elif trouble == "package":
        monkeypatch.setitem(sys.modules, "flatbuffers", None)
        monkeypatch.delitem(sys.modules, "jax._src.export.serialization", raising=False)
    else:
        monkeypatch.setattr(traces, "LIBRARIES", ("not-installed",))
        traces._sources.cache_clear()
    found = run()
    assert [path.name for path in folder.iterdir()] == ["file"] * (trouble == "folder")
    traces._sources.cache_clear()
    monkeypatch.setattr(traces, "_folder", lambda: None)
    jax.clear_caches()
    assert same(found, run())


SHARDED = """
import jax
jax.config.update("jax_enable_x64", True)
import sys
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from test_adam import UNALIGNED
from test_outer import some_problem
from synthfair.config import DistillConfig
from synthfair.distill import outer
problem, x = some_problem()
if "widened" in sys.argv:
    problem, x = some_problem(**UNALIGNED)
    outer.LARGE = 0
jax.config.update("jax_enable_compilation_cache", True)
over_columns = NamedSharding(Mesh(np.array(jax.devices()), ("i",)), PartitionSpec(None, "i"))
config = DistillConfig(steps=21)  # of which it goes back some
ends = []
for place in (None, over_columns):
    (end, records), = outer.run(problem, outer.init(problem, jax.device_put(x, place), config), config)
    ends.append(np.asarray(end.x))
    assert len(records.objective) < 22 or "widened" in sys.argv
np.testing.assert_allclose(*ends, rtol=1e-6)
"""


@pytest.mark.parametrize("kind", ["small", "widened"])
def test_rows_on_several_devices(tmp_path, kind):
    more = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    subprocess.run([sys.executable, "-c", SHARDED, kind], env=os.environ | more, check=True)
    assert len(list((tmp_path / "traces").iterdir())) == 1  # of the first, on one device


@pytest.mark.parametrize("kind", ["features", "params"])
def test_a_state_may_begin_with_plain_numbers(kind):
    @dataclass(frozen=True)
    class WithBias(LinearModel):
        def init(self, n_inputs):
            return {"w": np.zeros(n_inputs), "b": 0.0}

        def scores(self, params, a):
            return a @ params["w"] + params["b"]

    problem, x = some_problem(model=WithBias() if kind == "params" else None)
    assert run_problem(problem, np.asarray(x) if kind == "features" else x)


def test_a_second_client_traces_nothing_and_no_log_is_shown(tmp_path):
    """JAX, asked, tells what it traces; XLA would tell of each piece of code that it loads."""
    make_table().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(make_schema().model_dump_json())
    arguments = ["--data", "rows.csv", "--schema", "schema.json", "--output", "out.parquet"]
    arguments += ["--steps", "60", "--n-synthetic", "24", "--force", "--accept-risk"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TF_CPP_"))}

    def client():
        found = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "synthfair.client", *arguments],
            cwd=tmp_path,
            env=kept | {"XDG_CACHE_HOME": str(tmp_path), "JAX_LOG_COMPILES": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Finished tracing" in found.stderr
        assert "optax" not in found.stderr  # it takes a tenth of a second to import
        assert not re.search(r"^[IWEF]\d{4} ", found.stderr, re.MULTILINE)  # as XLA begins a line
        return "jit(flat)" in found.stderr, (tmp_path / "out.parquet").read_bytes()

    (first, made), (second, made_again) = client(), client()
    assert first
    assert not second
    assert made == made_again
