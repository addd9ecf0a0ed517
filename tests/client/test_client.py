"""One client: what is released, and how well it was computed."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from builders import make_schema, make_table
from small_problem import start_at_rows

import synthfair as sf
from synthfair.client import distill_file
from synthfair.client.fair_task import check_rows
from synthfair.data.encode import encode
from synthfair.distill.problem import make_problem
from synthfair.errors import InputError
from synthfair.files import claimed
from synthfair.privacy.ledger import Ledger
from synthfair.release.format import read_release
from synthfair.release.settings import DistillConfig

TABLE, SCHEMA = make_table(), make_schema()

LONG_STEPS = optax.sgd(100.0)
"""Soon past the optimum; one object, as it is compiled once."""


def distil(table=TABLE, schema=SCHEMA, **settings):
    """All of one shape, and most of them of one compilation."""
    mine = {name: settings.pop(name, None) for name in ("model", "optimizer")}
    config = DistillConfig(**{"n_synthetic": 24, "steps": 60, **settings})
    return sf.distill_table(table, schema, config, **mine)


@pytest.fixture
def files(tmp_path):
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


# Files


def test_the_same_seed_gives_the_same_bytes(files, quick):
    data, schema, output = files
    _, first = distill_file(data, schema, output, quick)
    _, again = distill_file(data, schema, output, quick, force=True)
    other = quick.model_copy(update={"seed": 1})
    assert first.sha256 == again.sha256
    _, changed = distill_file(data, schema, output, other, force=True, again=True)
    assert changed.sha256 != first.sha256


def test_a_release_reads_back_and_is_booked(files, quick):
    data, schema, output = files
    found, receipt = distill_file(data, schema, output, quick)
    back = read_release(output, SCHEMA)
    assert back.fingerprint == found.release.fingerprint
    assert back.header == found.release.header
    assert receipt.size == output.stat().st_size
    assert [entry.what.output for entry in Ledger.for_table(data).records()] == [output.name]


def test_a_release_of_real_rows_is_not_written(files, monkeypatch):
    start_at_rows(monkeypatch)
    data, schema, output = files
    config = DistillConfig(n_synthetic=24, steps=1, learning_rate=1e-9)
    with pytest.raises(InputError, match="are copies of real rows"):
        distill_file(data, schema, output, config)
    assert not output.exists()


def test_output_is_not_overwritten_without_force(files, quick):
    data, schema, output = files
    output.write_text("precious")
    with pytest.raises(InputError, match="exists"):
        distill_file(data, schema, output, quick)
    assert output.read_text() == "precious"


def test_two_runs_with_one_output_are_not_both_made(files, quick):
    """The second is refused before it reads or books anything."""
    data, schema, output = files
    with claimed(output, force=False), pytest.raises(InputError, match="another run is writing"):
        distill_file(data, schema, output, quick)
    assert {path.name for path in output.parent.iterdir()} == {"rows.csv", "schema.json"}


def test_divergence_makes_no_release(files):
    data, schema, output = files
    config = DistillConfig(n_synthetic=24, steps=60, rho_o=1e308, group_input=True)
    with pytest.raises(InputError, match="diverged, by step"):
        distill_file(data, schema, output, config)
    assert not output.exists()


# What is found, and whether it converged


def test_distillation_lowers_objective_and_covariance():
    plain, fair = (distil(rho_o=rho_o, steps=400) for rho_o in (0.0, 100.0))
    assert fair.reached.objective < fair.history.objective[0]
    assert abs(fair.reached.covariance) < 0.1 * abs(plain.reached.covariance)


@pytest.mark.parametrize(
    ("settings", "inner", "outer"),
    [
        ({"steps": 1000}, True, True),
        ({"rho_o": 1000.0, "steps": 100}, True, False),
        ({"inner_tolerance": 1e-30}, False, None),
    ],
)
def test_converged_speaks_of_both_problems(settings, inner, outer):
    found = distil(**settings)
    assert found.inner_converged == inner
    assert outer is None or found.outer_converged == outer
    assert found.converged == (inner and outer is True)


def test_the_outer_excess_is_that_above_a_long_run():
    """Relative to F of the untrained model, log 2 for the logistic loss."""
    short, long = distil(rho_o=100.0, steps=90), distil(rho_o=100.0, steps=4000)
    above = (short.reached.objective - long.reached.objective) / np.log(2)
    assert long.outer_converged
    assert short.outer_excess == pytest.approx(above, rel=0.3)


def test_the_release_is_that_of_the_least_objective():
    found = distil(optimizer=LONG_STEPS)
    objective = found.history.objective
    least = int(np.argmin(objective))
    assert objective[-1] > 1.05 * objective[least]
    assert found.reached.objective == objective[least]
    upto = distil(optimizer=LONG_STEPS, steps=least)
    np.testing.assert_allclose(found.release.x, upto.release.x, rtol=1e-6)
    np.testing.assert_allclose(found.theta, upto.theta, rtol=1e-6)


def test_any_optimizer_of_optax_reaches_what_adam_reaches():
    usual, other = distil(steps=1000), distil(steps=1000, optimizer=optax.adabelief(0.01))
    assert other.converged
    assert other.reached.objective == pytest.approx(usual.reached.objective, rel=1e-4)


def test_rows_that_are_encoded_give_what_their_table_gives():
    given, encoded = distil(), distil(encode(TABLE, SCHEMA))
    np.testing.assert_array_equal(given.release.x, encoded.release.x)
    assert given.release.header == encoded.release.header


def test_clients_of_nearly_one_size_share_one_compilation(compilations):
    """97 and 100 rows are padded to 2,048, and 2,100 to 2,560."""
    one, other, large = (encode(make_table(n, seed=n), SCHEMA) for n in (97, 100, 2100))
    distil(one)
    before = compilations()
    distil(other)
    assert compilations() == before
    jax.jit(lambda x: x + 1)(2.0)
    assert compilations() == before + 1  # they are counted
    shapes = [
        jax.tree.map(jnp.shape, make_problem(rows, DistillConfig(n_synthetic=24), n_groups=2))
        for rows in (one, other, large)
    ]
    assert shapes[0] == shapes[1] != shapes[2]


def test_single_precision_agrees_with_double():
    double = distil(inner_tolerance=1e-5)
    with jax.enable_x64(False):
        single = distil(inner_tolerance=1e-5)
    assert single.release.x.dtype == np.float32
    assert single.inner_converged
    np.testing.assert_allclose(single.history.objective, double.history.objective, rtol=1e-3)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_the_files_bytes_do_not_depend_on_how_groups_are_coded(tmp_path, penalty):
    """Unless the model reads them; what is penalised is the size of a gap, the same either way."""
    rows, found = encode(TABLE, SCHEMA), []
    for reads in (False, True):
        for s in (rows.s, 1 - rows.s):
            given = {"penalty": penalty, "group_input": reads, "steps": 20}
            release = distil(rows._replace(s=s), **given).release
            assert release.header.own_columns == ("(group)", "(label)")[1 - reads :]
            found.append(sf.write_release(release, tmp_path / "r.parquet"))
    assert found[0] == found[1]
    assert len({*found}) == 3


def test_a_model_decides_alike_whatever_the_group_unless_it_is_to_read_it():
    other = TABLE.assign(town=TABLE.town.map({"a": "b", "b": "a"}))
    for reads in (False, True):
        parts = [distil(TABLE.iloc[i::2], group_input=reads).release for i in (0, 1)]
        model = sf.pool_and_train(parts, SCHEMA)
        assert model.group_input == reads
        assert ("town=b" in model.inputs) == reads
        theta = np.asarray(model.theta)
        assert len(theta) == len(SCHEMA.encoded_names) + 1 + reads
        scores = [model.scores(*encode(table, SCHEMA)[:2]) for table in (TABLE, other)]
        assert np.array_equal(*scores) != reads
    blind = distil(TABLE.iloc[::2]).release
    with pytest.raises(InputError, match="group_input, lambda_theta.*clients must agree"):
        sf.pool_and_train([blind, parts[0]], SCHEMA)


def test_more_than_two_groups():
    settings = {"notion": "equalized_odds", "penalty": "selection_rate"}
    settings |= {"rho_s": 1.0, "group_input": True}
    found = distil(make_table(n_groups=3), make_schema(3), **settings)
    assert set(found.release.s) == {0, 1, 2}
    assert found.reached.objective < found.history.objective[0]


def test_the_selection_rate_needs_every_group():
    schema, table = make_schema(3), make_table(n_groups=3).query("town != 'c'")
    check_rows(encode(table, schema), schema, DistillConfig(), source="")  # the covariance does not
    with pytest.raises(InputError, match="needs 3 of"):
        distil(table, schema, penalty="selection_rate")


@pytest.mark.parametrize(
    ("table", "settings", "complaint"),
    [
        (TABLE.assign(paid="yes"), {}, "'paid' holds only 'yes'.*release = surrogate"),
        (TABLE.assign(paid="no"), {}, "'paid' holds only 'no'"),
        (TABLE.assign(town="b"), {}, r"'town', among all rows, holds only \['b'\]"),
        (TABLE.query("town == 'a' or paid == 'no'"), {"notion": "equal_opportunity"}, "among rows with paid=yes, holds only .'a'.;.*release = surrogate"),
        (TABLE.query("town == 'a' or paid == 'yes'"), {"notion": "equalized_odds"}, "among rows with paid=no, holds only"),
        (TABLE.head(49), {}, "49 rows; a release needs at least 50"),
    ],
)  # fmt: skip
def test_tables_in_which_groups_cannot_be_compared(table, settings, complaint):
    with pytest.raises(InputError, match=f"table: .*{complaint}"):
        distil(table, **settings)


# Models of a user's own


@dataclass(frozen=True)
class WeightsAndBias:
    """Params of two leaves."""

    def init(self, n_inputs):
        return {"weights": jnp.zeros(n_inputs), "bias": jnp.zeros(())}

    def scores(self, params, a):
        return a @ params["weights"] + params["bias"]

    def loss(self, scores, y):
        return jax.nn.softplus(-y * scores)


@dataclass(frozen=True)
class WithHessian(WeightsAndBias):
    """Raveled by name: the bias first."""

    def hessian(self, params, rows):
        chance = jax.nn.sigmoid(self.scores(params, rows.a))
        a = jnp.column_stack([jnp.ones(len(rows.y)), rows.a])
        return (a.T * (chance * (1 - chance))) @ a / len(rows.y)


@pytest.mark.parametrize("model", [WeightsAndBias(), WithHessian()], ids=["without", "with"])
def test_a_models_params_may_be_any_pytree_and_its_hessian_its_own(model):
    """A bias of its own is the intercept, once lambda_theta / n^2 is made the same."""
    n = len(SCHEMA.encoded_names)
    mine = distil(model=model, intercept=False, lambda_x=0.0, lambda_theta=0.1)
    usual = distil(intercept=True, lambda_x=0.0, lambda_theta=0.1 * (n + 1) ** 2 / n**2)
    np.testing.assert_allclose(mine.release.x, usual.release.x, atol=1e-6)
    assert mine.release.header.model == type(model).__name__
