"""A fair release: how well it is computed, and that it holds no real row."""

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from builders import SCHEMA, SCHEMA_OF_3, make_table, with_column
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.client import distill_file
from synthfair.client.fair_task import Baseline, FairTask, check_copies
from synthfair.data.encode import Encoded, encode, encode_records, in_content_order
from synthfair.errors import InputError
from synthfair.privacy.guarantee import FEATURE_GRID
from synthfair.privacy.noise import seeded
from synthfair.release.format import Release, make_header
from synthfair.release.settings import DistillConfig
from synthfair.report.release_tables import fit_warnings
from synthfair.task.protocol import ReadRows, Run

TABLE = make_table()
ROWS = encode(make_table(700), SCHEMA)


def distil(table=TABLE, schema=SCHEMA, **settings):
    """All of one shape, and most of them of one compilation."""
    mine = {name: settings.pop(name, None) for name in ("model", "optimizer")}
    config = DistillConfig(**{"n_synthetic": 24, "steps": 60, **settings})
    return sf.distill_table(table, schema, config, **mine)


def test_distillation_lowers_objective_and_covariance():
    plain, fair = (distil(rho_o=rho_o, steps=400) for rho_o in (0.0, 100.0))
    assert fair.reached.objective < fair.history.objective[0]
    assert abs(fair.reached.covariance) < 0.1 * abs(plain.reached.covariance)


@pytest.mark.parametrize(("settings", "inner", "outer"), [
    ({"steps": 1000}, True, True), ({"rho_o": 1000.0, "steps": 100}, True, False),
    ({"inner_tolerance": 1e-30}, False, None),
])  # fmt: skip
def test_distillation_says_whether_both_problems_converged(settings, inner, outer):
    found = distil(**settings)
    assert found.inner_converged == inner
    assert outer is None or found.outer_converged == outer
    assert found.converged == (inner and outer is True)


def test_distillation_steps_are_those_of_the_optimizer_given():
    objective = distil(optimizer=optax.sgd(0.0)).history.objective
    np.testing.assert_allclose(objective, objective[0], rtol=1e-6)


def test_distillation_in_single_precision_agrees_with_double():
    double = distil(inner_tolerance=1e-5)
    with jax.enable_x64(False):
        single = distil(inner_tolerance=1e-5)
    assert single.release.x.dtype == np.float32
    assert single.inner_converged
    np.testing.assert_allclose(single.history.objective, double.history.objective, rtol=1e-3)


@pytest.mark.parametrize("reads", [False, True])
def test_groups_do_not_change_a_decision_unless_they_are_read(reads):
    other = TABLE.assign(town=TABLE.town.map({"a": "b", "b": "a"}))
    model = sf.pool_and_train([distil(group_input=reads)], SCHEMA)
    assert len(model.theta) == len(SCHEMA.encoded_names) + 1 + reads
    scores = [model.scores(*encode(table, SCHEMA)[:2]) for table in (TABLE, other)]
    assert np.array_equal(*scores) != reads


OPPORTUNITY, ODDS = {"notion": "equal_opportunity"}, {"notion": "equalized_odds"}


@pytest.mark.parametrize(("table", "settings", "named"), [
    (TABLE.assign(paid="yes"), {}, "'paid' holds only 'yes'"),
    (TABLE.assign(town="b"), {}, "'town', among all rows, holds only .'b'"),
    (TABLE.query("town == 'a' or paid == 'no'"), OPPORTUNITY, "paid=yes, .*'a'"),
    (TABLE.query("town == 'a' or paid == 'yes'"), ODDS, "paid=no, .*'a'"),
    (TABLE, {"penalty": "selection_rate"}, "needs 3 of"), (TABLE[:49], {}, "49 rows; .* 50"),
])  # fmt: skip
def test_rows_that_cannot_be_compared_are_refused_by_column_and_value(table, settings, named):
    """Of three groups in the schema; the covariance needs two of them."""
    with pytest.raises(InputError, match=f"table: .*{named}"):
        distil(table, SCHEMA_OF_3, **settings)
    assert distil(TABLE[:50], SCHEMA_OF_3, steps=1).release


def test_rows_that_cannot_be_compared_by_one_of_two_attributes_are_refused():
    schema = with_column(SCHEMA, "home", missing="refuse").with_sensitive(["town", "home"])
    with pytest.raises(InputError, match="'home', among all rows, holds only .'own'"):
        distil(TABLE.assign(home="own"), schema, groups_by=("town", "home"))
    rows, config = encode(TABLE.fillna({"home": "own"}), schema), DistillConfig(groups_by=("town",))
    made = FairTask(schema, config).problem(rows, None, Run("t"))
    assert made.objective.by == schema.groupings_by(["town"])


def test_rows_without_weight_do_not_count_as_a_group():
    weight = (TABLE["town"] == "a").to_numpy() * 1.0
    with pytest.raises(InputError, match="'town', among all rows, holds only .'a'"):
        sf.distill_table(TABLE, SCHEMA, sf.DistillConfig(steps=1), weight=weight)


@dataclass(frozen=True)
class WeightsAndBias:
    """Params of two leaves, raveled by name: the bias first."""

    def init(self, n_inputs):
        return {"weights": jnp.zeros(n_inputs), "bias": jnp.zeros(())}

    def scores(self, params, a):
        return a @ params["weights"] + params["bias"]

    def loss(self, scores, y):
        return jax.nn.softplus(-y * scores)

    def hessian(self, params, rows):
        chance = jax.nn.sigmoid(self.scores(params, rows.a))
        a = jnp.column_stack([jnp.ones(len(rows.y)), rows.a])
        return (a.T * (chance * (1 - chance))) @ a / len(rows.y)


def test_model_of_ones_own_may_have_params_of_any_pytree_and_a_hessian():
    """A bias of its own is the intercept, once lambda_theta / n^2 is made the same."""
    n = len(SCHEMA.encoded_names)
    mine = distil(model=WeightsAndBias(), intercept=False, lambda_x=0.0, lambda_theta=0.1)
    usual = distil(intercept=True, lambda_x=0.0, lambda_theta=0.1 * (n + 1) ** 2 / n**2)
    np.testing.assert_allclose(mine.release.x, usual.release.x, atol=1e-6)
    assert mine.release.header.model == "WeightsAndBias"


# Whether a penalty leaves a model that is of use


def test_baseline_compares_the_model_with_one_without_a_penalty_and_the_majority(paths):
    """On private records, by their weights, most of which have the negative label."""
    table = TABLE.assign(paid=TABLE.paid.map({"no": "yes", "yes": "no"}))
    table.to_csv(paths[0], index=False)
    config = DistillConfig(n_synthetic=24, steps=60, rho_o=30.0, epsilon=20.0, delta=1e-5, k_min=5)
    made, _ = distill_file(*paths, config, noise_seed=3)
    records = sf.distill_table(table, SCHEMA, config.records, noise=seeded(3)).release
    x, s, y, weight = encode_records(records.x, SCHEMA), records.s, records.y, records.weight
    a = np.column_stack([x, np.ones(len(y))])
    ridge = made.config.lambda_theta / a.shape[1] ** 2
    reference = LogisticRegression(C=1 / ridge, fit_intercept=False, max_iter=10_000, tol=1e-8)
    reference.fit(a, y, sample_weight=weight / weight.sum())
    model = sf.pool_and_train([made], SCHEMA)
    decided = [model.scores(x, s) > 0, reference.predict(a) > 0]
    means = [[np.average(each[s == g], weights=weight[s == g]) for g in (0, 1)] for each in decided]
    gaps = np.abs(np.diff(means)).ravel()
    right, negative = (np.average(each, weights=weight) for each in (decided[0] == (y > 0), y < 0))
    assert tuple(made.baseline) == pytest.approx((right, gaps[0], negative, gaps[1]))


@pytest.mark.parametrize(("gap", "warned"), [(0.1, ""), (0.4, ".*0.400.*0.300.*")])
def test_baseline_that_is_better_is_warned_of_with_its_values(gap, warned):
    made = distil(steps=1000)._replace(baseline=Baseline(0.8, gap, majority=0.7, plain_gap=0.3))
    assert re.fullmatch(warned, "".join(fit_warnings(made)))


# Copies of real rows


def checked(x, y=None, *, rows=ROWS, **settings):
    """Check a release of these features on the grid, as the client makes them."""
    config = DistillConfig(**settings)
    header = make_header(config, SCHEMA, model=sf.LinearModel(), penalty=sf.CovariancePenalty())
    y = np.random.default_rng(1).choice([-1.0, 1.0], len(x)) if y is None else y
    release = Release(header, np.rint(x / FEATURE_GRID) * FEATURE_GRID, np.zeros(len(x), int), y)
    read = ReadRows(in_content_order(rows), "")
    check_copies(distil()._replace(release=release), read, Run("out.parquet"))


def uniform(n=200, seed=0, d=ROWS.x.shape[1]):
    return np.random.default_rng(seed).uniform(size=(n, d))


def test_copies_are_counted_wherever_they_are():
    x = uniform()
    checked(x)
    x[[0, 199]] = ROWS.x[[699, 3]]
    with pytest.raises(InputError, match="out.parquet: .*2 of 200"):
        checked(x)
    x[0, 0] += 1e-3
    with pytest.raises(InputError, match="1 of 200"):
        checked(x)


def test_copies_of_one_feature_are_chance():
    """2^12 values on the grid, and 700 real ones: noise meets them, and that is no copy."""
    one = Encoded(uniform(700, d=1), ROWS.s, ROWS.y)
    checked(uniform(200, 1, d=1), rows=one)
    with pytest.raises(InputError, match="150 of 150"):
        checked(one.x[:150], rows=one)


def test_copies_of_the_labels_in_order_are_refused_unless_they_are_asked_for():
    real = in_content_order(ROWS)
    with pytest.raises(InputError, match="labels"):
        checked(uniform(700), real.y)
    checked(uniform(700), real.y, labels="copy")
