import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.client import Options, distill_file, from_file
from synthfair.errors import InputError
from synthfair.release.reading import read_release


@pytest.fixture
def files(tmp_path, table, schema):
    table.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


def stop_after(chunks):
    """A progress callback that interrupts, as Ctrl-C does, after so many chunks."""
    seen = []

    def progress(records, step, steps):
        seen.append(records)
        if len(seen) == chunks:
            raise KeyboardInterrupt

    return progress


def test_distillation_lowers_objective_and_covariance(table, schema, quick):
    plain = sf.distill_table(table, schema, quick.model_copy(update={"rho_o": 0.0, "steps": 400}))
    fair = sf.distill_table(table, schema, quick.model_copy(update={"rho_o": 100.0, "steps": 400}))
    assert fair.history.objective[-1] < fair.history.objective[0]
    assert abs(fair.history.covariance[-1]) < 0.1 * abs(plain.history.covariance[-1])
    assert fair.inner_converged


@pytest.mark.parametrize("notion", ["statistical_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_more_than_two_groups(notion, penalty):
    schema = make_schema(3)
    config = sf.DistillConfig(
        n_synthetic=24, steps=20, rho_s=1.0, notion=notion, penalty=penalty, lambda_theta=0.1
    )
    found = sf.distill_table(make_table(n_groups=3), schema, config)
    assert set(found.release.s) == {0, 1, 2}
    assert found.history.objective[-1] < found.history.objective[0]


def test_the_same_seed_gives_the_same_bytes(files, quick):
    data, schema, output = files
    _, first = distill_file(data, schema, output, quick)
    _, again = distill_file(data, schema, output, quick, Options(force=True))
    _, other = distill_file(
        data, schema, output, quick.model_copy(update={"seed": 1}), Options(force=True)
    )
    assert first.sha256 == again.sha256 != other.sha256


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(
    ("settings", "ends_early"),
    [({}, False), ({"stop_tolerance": 0.03}, True), ({"learning_rate": 0.05, "rho_o": 1e3}, True)],
)
def test_an_interrupted_run_goes_on_to_the_same_bytes(files, quick, chunks, settings, ends_early):
    data, schema, output = files
    config = quick.model_copy(update={"steps": 170, **settings})
    once, whole = distill_file(data, schema, output, config)
    output.unlink()
    with pytest.raises(KeyboardInterrupt):
        distill_file(data, schema, output, config, progress=stop_after(chunks))
    assert not output.exists()
    distillation, resumed = distill_file(data, schema, output, config)
    assert distillation.resumed_at == 21 + 50 * (chunks - 1)  # the first chunk is short
    np.testing.assert_array_equal(distillation.history.objective, once.history.objective)
    assert (len(once.history.objective) < 171) == ends_early
    assert resumed.sha256 == whole.sha256
    assert not list(output.parent.glob("*.checkpoint"))


def test_the_checks_are_loaded_once_steps_are_made(monkeypatch):
    loaded, shown, done = [], [], threading.Event()

    def load(name):
        loaded.append(name)
        done.set()
        raise ImportError("no such thing here")  # is left to whoever needs it

    monkeypatch.setattr(from_file, "import_module", load)
    told = from_file._loading_checks(lambda *of: shown.append(of))
    assert not loaded
    for step in (49, 99):
        told(None, step, 100)
    assert done.wait(10)
    assert loaded == ["synthfair.privacy.gate"]
    assert shown == [(None, 49, 100), (None, 99, 100)]
    from_file._loading_checks(None)(None, 49, 100)


def test_a_checkpoint_of_other_settings_or_damaged_is_not_used(files, quick):
    data, schema, output = files
    with pytest.raises(KeyboardInterrupt):
        distill_file(data, schema, output, quick, progress=stop_after(1))
    checkpoint = next(output.parent.glob("*.checkpoint"))
    assert CheckpointFile(checkpoint, "other").load(Saved(None, None)) is None
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])
    distillation, _ = distill_file(data, schema, output, quick)
    assert distillation.resumed_at == 0


def test_only_the_runs_own_checkpoint_is_removed(files, quick):
    data, schema, output = files
    other = output.with_name(output.name + ".checkpoint")
    other.write_bytes(data.read_bytes())
    distill_file(other, schema, output, quick)
    assert other.read_bytes() == data.read_bytes()


def test_output_is_not_overwritten_without_force(files, quick):
    data, schema, output = files
    output.write_text("precious")
    with pytest.raises(InputError, match="exists"):
        distill_file(data, schema, output, quick)
    assert output.read_text() == "precious"


def test_unconverged_inner_problems_are_told(table, schema, quick):
    hasty = sf.distill_table(table, schema, quick.model_copy(update={"inner_max_iterations": 1}))
    assert not hasty.inner_converged
    assert hasty.unconverged == 50


@pytest.mark.parametrize(
    ("table", "settings", "complaint"),
    [
        (make_table().assign(paid="yes"), {}, "'paid' holds only 'yes'"),
        (make_table().assign(paid="no"), {}, "'paid' holds only 'no'"),
        (make_table().assign(town="b"), {}, r"'town', among all rows, holds only \['b'\]"),
        (make_table().query("town == 'a' or paid == 'no'"), {"notion": "equal_opportunity"}, "among positive rows"),
        (make_table().query("town == 'a' or paid == 'yes'"), {"notion": "equalized_odds"}, "among negative rows"),
        (make_table().head(1), {}, "1 rows are fewer than the 2 groups"),
    ],
)  # fmt: skip
def test_tables_in_which_groups_cannot_be_compared(table, settings, complaint):
    with pytest.raises(InputError, match=f"rows.csv: .*{complaint}"):
        sf.distill_table(table, make_schema(), sf.DistillConfig(**settings), source="rows.csv")


def test_the_selection_rate_needs_every_group():
    table = make_table(n_groups=3).query("town != 'c'")
    config = sf.DistillConfig(n_synthetic=12, steps=1)
    sf.distill_table(table, make_schema(3), config)  # the covariance does without
    with pytest.raises(InputError, match="needs 3 of"):
        sf.distill_table(
            table, make_schema(3), config.model_copy(update={"penalty": "selection_rate"})
        )


def test_single_precision_agrees_with_double(table, schema, quick):
    config = quick.model_copy(update={"inner_tolerance": 1e-5})
    double = sf.distill_table(table, schema, config)
    with jax.enable_x64(False):
        single = sf.distill_table(table, schema, config)
    assert single.release.x.dtype == np.float32
    assert single.inner_converged
    np.testing.assert_allclose(single.history.objective, double.history.objective, rtol=1e-3)


def test_release_file_reads_back(files, quick, schema):
    data, schema_path, output = files
    distillation, receipt = distill_file(data, schema_path, output, quick)
    back = read_release(output, schema)
    assert back.fingerprint == distillation.release.fingerprint
    assert back.header == distillation.release.header
    assert receipt.size == output.stat().st_size


@pytest.mark.parametrize("settings", [{"learning_rate": 1e7}, {"learning_rate": 1e300}])
def test_divergence_makes_no_release(files, quick, settings):
    data, schema, output = files
    with pytest.raises(InputError, match="diverged, by step"):
        distill_file(data, schema, output, quick.model_copy(update=settings))
    assert not output.exists()


@dataclass(frozen=True)
class WeightsAndBias:
    """A user's model, with params of two leaves."""

    def init(self, n_inputs):
        return {"weights": jnp.zeros(n_inputs), "bias": jnp.zeros(())}

    def scores(self, params, a):
        return a @ params["weights"] + params["bias"]

    def loss(self, params, a, y):
        return jax.nn.softplus(-y * self.scores(params, a))


def test_a_models_params_may_be_any_pytree(table, schema, quick):
    """A bias of its own is the intercept, once lambda_theta / n^2 is made the same."""
    n = len(schema.encoded_names) + 1
    own = {"intercept": False, "lambda_x": 0.0, "lambda_theta": 0.1}
    usual = {"intercept": True, "lambda_x": 0.0, "lambda_theta": 0.1 * (n + 1) ** 2 / n**2}
    one = sf.distill_table(table, schema, quick.model_copy(update=own), model=WeightsAndBias())
    other = sf.distill_table(table, schema, quick.model_copy(update=usual))
    np.testing.assert_allclose(one.release.x, other.release.x, atol=1e-6)
    assert one.release.header.model == "WeightsAndBias"
