import inspect
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table
from test_queries import silent

import synthfair as sf
from synthfair.client.private import measure, private_problem, promise
from synthfair.client.routine import distill_fit
from synthfair.config import DistillConfig
from synthfair.data.encode import encode
from synthfair.distill.inner import train
from synthfair.distill.objective import PenalizedLoss
from synthfair.distill.problem import make_penalty, make_rows
from synthfair.errors import InputError
from synthfair.model import LinearModel

NOTIONS = ["statistical_parity", "equal_opportunity", "equalized_odds"]


def private(**settings):
    defaults = {"epsilon": 1.0, "delta": 1e-5, "n_synthetic": 24, "steps": 60}
    return DistillConfig(**defaults | settings)


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def plain_objective(rows, config, model, n_groups):
    """F with the ridge of the private fit, from rows."""
    loss = PenalizedLoss(
        rows.a.T, rows.s, rows.y, config.rho_o, model, make_penalty(config, n_groups=n_groups)
    )
    n = rows.a.shape[1]
    return lambda theta: loss(theta) + config.lambda_theta / (2 * n**2) * theta @ theta


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
@pytest.mark.parametrize("loss", [LinearModel(), LinearModel(squared_hinge)])
def test_without_noise_and_clipping_theta_minimises_the_plain_objective(notion, penalty, loss):
    schema = make_schema(3)
    real = encode(make_table(300, n_groups=3), schema)
    config = private(
        notion=notion, penalty=penalty, epsilon=100, private_steps=600, lambda_theta=0.1, clip=1e6
    )
    fit = measure(real, schema, config, model=loss, noise=silent)
    rows = make_rows(real, n_groups=3, intercept=True)
    objective = plain_objective(rows, config, loss, 3)
    assert float(jnp.linalg.norm(jax.grad(objective)(jnp.asarray(fit.theta)))) < 1e-4


def test_the_minimiser_is_that_of_central_training(schema):
    real, config = (
        encode(make_table(300), schema),
        private(epsilon=100, clip=1e6, private_steps=400),
    )
    fit = measure(real, schema, config, noise=silent)
    rows, penalty = make_rows(real, n_groups=2, intercept=True), make_penalty(config, n_groups=2)
    central = train(
        rows, config.lambda_theta, model=LinearModel(), penalty=penalty, rho=config.rho_o
    )
    np.testing.assert_allclose(fit.theta, central.params, atol=1e-3)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_the_moments_give_the_covariances(notion, n_groups):
    schema = make_schema(n_groups)
    real, config = (
        encode(make_table(400, n_groups=n_groups), schema),
        private(notion=notion, epsilon=100),
    )
    problem, _ = private_problem(measure(real, schema, config, noise=silent), schema, config)
    rows = make_rows(real, n_groups=n_groups, intercept=True)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=rows.a.shape[1]))
    plain = PenalizedLoss(
        rows.a.T,
        rows.s,
        rows.y,
        1.0,
        LinearModel(),
        make_penalty(config, n_groups=n_groups),
        notion,
        n_groups,
    )
    np.testing.assert_allclose(problem.objective.covariance(theta), plain.covariance(theta))


@pytest.mark.parametrize("n_rows", [50, 500])
def test_the_private_objective_holds_no_rows(schema, n_rows):
    config = private()
    fit = measure(encode(make_table(n_rows), schema), schema, config)
    problem, _ = private_problem(fit, schema, config)
    n = len(schema.encoded_names) + 2
    shapes = [leaf.shape for leaf in jax.tree.leaves(problem.objective)]
    assert shapes == [(n,), (n, n), (1, n)]  # whatever the number of rows


def test_no_row_is_read_after_the_budget_is_spent(schema):
    """What distils has no argument that could hold rows, and destroyed rows change nothing."""
    kinds = {
        parameter.annotation for parameter in inspect.signature(distill_fit).parameters.values()
    }
    assert kinds == {"PrivateFit", "Run", "bool"}
    config, real = private(), encode(make_table(), schema)
    fit = measure(real, schema, config)
    run = sf.client.routine.Run(schema, config)
    before = distill_fit(fit, run).release
    for field in real:
        field.fill(0)
    np.testing.assert_array_equal(distill_fit(fit, run).release.x, before.x)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize(
    "keep",
    [
        lambda t: t.head(1),
        lambda t: t[t.town == "a"],
        lambda t: t[t.paid == "yes"],
        lambda t: t[(t.town == "a") | (t.paid == "no")],
    ],
)
def test_tables_without_a_group_or_a_label_are_neither_refused_nor_diverge(keep, relation, penalty):
    schema, config = make_schema(), private(relation=relation, penalty=penalty)
    made = sf.distill_table(keep(make_table()), schema, config)
    assert np.isfinite(made.release.x).all()
    assert made.release.header.privacy.guarantee.relation == relation
    assert made.inner_converged


def test_noise_differs_between_runs_and_reaches_the_release(table, schema):
    releases = [sf.distill_table(table, schema, private()).release for _ in range(2)]
    assert np.abs(releases[0].x - releases[1].x).max() > 1e-3
    proportional = sf.distill_table(table, schema, private(labels="proportional"))
    assert len(proportional.release.y) == 24


def test_more_budget_comes_nearer_to_the_plain_minimum(schema):
    real, config = encode(make_table(2000), schema), private(private_steps=40)
    rows = make_rows(real, n_groups=2, intercept=True)
    objective = jax.jit(plain_objective(rows, config, LinearModel(), 2))

    def mean_objective(epsilon):
        settings = config.model_copy(update={"epsilon": epsilon})
        return np.mean([objective(measure(real, schema, settings).theta) for _ in range(10)])

    found = [mean_objective(epsilon) for epsilon in (0.3, 3.0, 30.0)]
    best = objective(measure(real, schema, private(epsilon=100), noise=silent).theta)
    assert found[0] - best > 3 * (found[1] - best) > 3 * (found[2] - best)


def test_a_fixed_seed_promises_nothing(table, schema):
    from synthfair.privacy.noise import seeded

    made = [sf.distill_table(table, schema, private(), noise=seeded(0)).release for _ in range(2)]
    np.testing.assert_array_equal(made[0].x, made[1].x)
    assert made[0].header.privacy.guarantee is None
    assert "anybody can subtract" in " ".join(made[0].header.privacy.discloses)


def test_what_has_no_known_sensitivity_is_refused(table, schema):
    @dataclass(frozen=True)
    class Doubled(LinearModel):
        def scores(self, params, a):
            return 2 * a @ params

    def my_penalty(model, params, rows):
        return jnp.sum(params**2)

    with pytest.raises(InputError, match="epsilon: needs a LinearModel .*not Doubled"):
        sf.distill_table(table, schema, private(), model=Doubled())
    with pytest.raises(InputError, match="epsilon: the penalty must be that of the settings.*my_"):
        sf.distill_table(table, schema, private(), penalty=my_penalty)
    sf.distill_table(table, schema, private(), penalty=sf.CovariancePenalty())


def hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin)


def exponential(margin):
    return jnp.exp(-margin)


@pytest.mark.parametrize(("loss", "reached"), [(hinge, "0"), (exponential, "4.85165e.08")])
def test_losses_that_noisy_steps_cannot_minimise_are_refused_before_rows_are_read(loss, reached):
    schema, model = make_schema(), LinearModel(loss)
    with pytest.raises(
        InputError, match=f"{loss.__name__} loss reaches {reached} at margins up to"
    ):
        promise(private(), schema, model=model)


def test_one_row_cannot_turn_an_answer_into_not_a_number(schema):
    real = encode(make_table(), schema)
    real.x[0, 0] = np.inf
    assert np.isfinite(measure(real, schema, private()).theta).all()


def test_clients_in_one_process_each_get_their_own_noise(schema):
    tables = [make_table(), make_table()]
    made = sf.distill_clients(tables, schema, private())
    assert made[0].release.header.privacy.guarantee.epsilon == 1.0
    assert np.abs(made[0].release.x - made[1].release.x).max() > 1e-3
