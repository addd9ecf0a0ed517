from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table, silent
from scipy.optimize import approx_fprime
from scipy.special import expit

import synthfair as sf
from synthfair.client.fair_task import FairTask
from synthfair.client.run import Run
from synthfair.config.client_settings import DistillConfig
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.model import LinearModel, logistic
from synthfair.privacy.fit import largest_curvature, private_fit
from synthfair.privacy.noise import seeded
from synthfair.privacy.queries import PrivateQueries
from synthfair.privacy.statement import make_guarantee

STRATA = {
    "statistical_parity": [(-1, 1)],
    "equal_opportunity": [(1,)],
    "equalized_odds": [(1,), (-1,)],
}
"""Labels among which groups are compared."""


def private(**settings):
    defaults = {"epsilon": 1.0, "delta": 1e-5, "n_synthetic": 24, "steps": 60, "group_input": True}
    return DistillConfig(**defaults | settings)


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


NUMPY = {
    logistic: lambda margin: np.logaddexp(0, -margin),
    squared_hinge: lambda margin: np.maximum(0, 1 - margin) ** 2,
}


def penalty_of(config, n_groups):
    if config.penalty == "covariance":
        return sf.CovariancePenalty(n_groups, config.notion)
    return sf.SelectionRatePenalty(n_groups, config.notion, config.temperature)


def ask(real, schema, config, loss=logistic, noise=silent):
    guarantee = make_guarantee(config, schema)
    kinds = {"intercept": True, "loss": loss, "source": noise, "group_input": config.group_input}
    return PrivateQueries(real, schema, guarantee, **kinds), guarantee


def fitted(real, schema, config, loss=logistic, noise=silent):
    return private_fit(
        *ask(real, schema, config, loss, noise),
        penalty_of(config, len(schema.groups)),
        rho_o=config.rho_o,
        lambda_theta=config.lambda_theta,
        curvature=largest_curvature(loss),
    )


def inputs(real, config, n_groups):
    groups = real.s[:, None] == np.arange(1, n_groups if config.group_input else 1)
    return np.column_stack([real.x, groups, np.ones(len(real.y))])


def gaps(real, theta, config, n_groups):
    """Covariances, or gaps of smooth selection rates, straight from their definitions."""
    z = inputs(real, config, n_groups) @ theta
    for labels in STRATA[config.notion]:
        among = np.isin(real.y, labels)
        for group in range(1 if n_groups == 2 else 0, n_groups):
            mine = real.s[among] == group
            if config.penalty == "covariance":
                yield np.cov(mine, z[among], bias=True)[0, 1]
            else:
                rate = expit(config.temperature * z[among])
                yield rate[mine].mean() - rate[~mine].mean()


def objective(real, theta, config, n_groups, loss=logistic):
    """F with the ridge of the private fit, in NumPy."""
    margin = real.y * (inputs(real, config, n_groups) @ theta)
    penalty = config.rho_o / 2 * sum(gap**2 for gap in gaps(real, theta, config, n_groups))
    ridge = config.lambda_theta / (2 * len(theta) ** 2) * theta @ theta
    return NUMPY[loss](margin).mean() + penalty + ridge


@pytest.mark.parametrize(
    ("penalty", "notion", "loss", "reads"),
    [
        *((penalty, notion, logistic, True) for penalty in ("covariance", "selection_rate") for notion in STRATA),
        ("covariance", "equalized_odds", squared_hinge, True),
        ("covariance", "equalized_odds", logistic, False),
        ("selection_rate", "statistical_parity", logistic, False),
    ],
)  # fmt: skip
def test_without_noise_and_clipping_theta_minimises_the_plain_objective(
    penalty, notion, loss, reads
):
    schema = make_schema(3)
    real = encode(make_table(300, n_groups=3), schema)
    config = private(
        notion=notion, penalty=penalty, epsilon=100, private_steps=600, lambda_theta=0.1, clip=1e6,
        group_input=reads,
    )  # fmt: skip
    theta = fitted(real, schema, config, loss).theta
    slope = approx_fprime(theta, lambda t: objective(real, t, config, 3, loss), 1e-7)
    assert np.linalg.norm(slope) < 1e-4


@pytest.mark.parametrize("notion", STRATA)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_the_moments_give_the_covariances(notion, n_groups):
    schema = make_schema(n_groups)
    real = encode(make_table(400, n_groups=n_groups), schema)
    config = private(notion=notion, epsilon=100, private_steps=2)
    theta = np.random.default_rng(0).normal(size=len(schema.encoded_names) + n_groups)
    found = fitted(real, schema, config).moments @ theta
    np.testing.assert_allclose(found, [*gaps(real, theta, config, n_groups)])


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_the_whole_budget_is_spent(schema, penalty):
    """And no more of it: every answer can be had once more before the fit, none after it."""
    config = private(penalty=penalty, private_steps=3)
    queries, guarantee = ask(encode(make_table(), schema), schema, config)
    penalty = penalty_of(config, 2)
    private_fit(queries, guarantee, penalty, rho_o=1.0, lambda_theta=1.0, curvature=0.25)
    theta = np.zeros(9)
    again = [queries.moments, queries.second_moment, lambda: queries.gradient(theta)]
    again += [lambda: queries.rates(theta, 4.0)] * (config.penalty == "selection_rate")
    for ask_again in again:
        with pytest.raises(RuntimeError, match="the budget is spent"):
            ask_again()


@pytest.mark.parametrize("n_rows", [50, 500])
def test_the_private_objective_holds_no_rows(schema, n_rows):
    task = FairTask(schema, private())
    problem = task.problem(task.measure_fit(encode(make_table(n_rows), schema)))
    n = len(schema.encoded_names) + 2
    shapes = [leaf.shape for leaf in jax.tree.leaves(problem.objective)]
    assert shapes == [(n,), (n, n), (1, n)]  # whatever the number of rows


def test_no_row_is_read_after_the_budget_is_spent(schema):
    """Destroyed rows change nothing."""
    config, real = private(), encode(make_table(), schema)
    task = FairTask(schema, config)
    fit = task.measure_fit(real)

    def released():
        return task.distill(task.problem(fit), Run()).release.x

    before = released()
    for field in real:
        field.fill(0)
    np.testing.assert_array_equal(released(), before)


@pytest.mark.parametrize(
    ("keep", "penalty", "relation"),
    [
        (lambda t: t.head(1), "covariance", "replace"),
        (lambda t: t[t.town == "a"], "selection_rate", "add_or_remove"),
        (lambda t: t[t.paid == "yes"], "covariance", "replace"),
        (lambda t: t[(t.town == "a") | (t.paid == "no")], "selection_rate", "add_or_remove"),
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

    def mean_objective(epsilon, noise, repeats=5):
        settings = config.model_copy(update={"epsilon": epsilon})
        thetas = [fitted(real, schema, settings, noise=noise).theta for _ in range(repeats)]
        return np.mean([objective(real, theta, config, 2) for theta in thetas])

    found = [mean_objective(epsilon, seeded(1)) for epsilon in (0.3, 3.0, 30.0)]
    best = mean_objective(100.0, silent, repeats=1)
    assert found[0] - best > 3 * (found[1] - best) > 3 * (found[2] - best)


def test_noise_from_a_fixed_seed_has_no_guarantee(table, schema):
    made = [sf.distill_table(table, schema, private(), noise=seeded(0)).release for _ in range(2)]
    np.testing.assert_array_equal(made[0].x, made[1].x)
    assert made[0].header.privacy.guarantee is None
    assert "anybody can subtract" in " ".join(made[0].header.privacy.discloses)


def test_what_has_no_known_sensitivity_is_refused(table, schema):
    @dataclass(frozen=True)
    class Doubled(LinearModel):
        hessian = None

        def scores(self, params, a):
            return 2 * a @ params

    def my_penalty(scores, rows):
        return jnp.sum(scores**2)

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
        _ = FairTask(schema, private(), model).guarantee


def test_one_row_cannot_turn_an_answer_into_not_a_number(schema):
    real = encode(make_table(), schema)
    real.x[0, 0] = np.inf
    assert np.isfinite(FairTask(schema, private()).measure_fit(real).theta).all()


def test_equal_clients_each_get_their_own_noise(schema):
    made = [sf.distill_table(make_table(), schema, private()) for _ in range(2)]
    assert made[0].release.header.privacy.guarantee.epsilon == 1.0
    assert np.abs(made[0].release.x - made[1].release.x).max() > 1e-3
