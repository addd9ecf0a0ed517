"""The hypergradient and the outer loop, against independent computations."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import make_schema, make_table

from synthfair.config import DistillConfig
from synthfair.data.encode import encode
from synthfair.distill import adam, outer
from synthfair.distill import judge as judging
from synthfair.distill.implicit import mixed_of
from synthfair.distill.problem import make_problem
from synthfair.model import LinearModel, logistic


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def mean_gap(model, params, rows):
    """A custom penalty: squared difference of mean scores."""
    score, s = model.scores(params, rows.a), rows.s
    return (jnp.sum(score * s) / jnp.sum(s) - jnp.sum(score * (1 - s)) / jnp.sum(1 - s)) ** 2


def some_problem(n_groups=2, model=None, custom=None, **settings):
    real = encode(make_table(n_groups=n_groups), make_schema(n_groups))
    settings = {"n_synthetic": 12 * n_groups, "rho_s": 0.7, "lambda_x": 0.1} | settings
    config = DistillConfig(**settings)
    return make_problem(real, config, n_groups=n_groups, model=model, penalty=custom)


@jax.jit
def optimum(problem, x):
    """theta(x) by Newton's method, to the last digit."""

    def newton(params, _):
        gradient = jax.grad(problem.inner)(params, x)
        return params - jnp.linalg.solve(jax.hessian(problem.inner)(params, x), gradient), None

    start = problem.model.init(problem.rows(x).a.shape[1])
    return jax.lax.scan(newton, start, None, length=20)[0]


@jax.jit
def judged(problem, x):
    """P(x)."""
    return problem.outer(optimum(problem, x), x)


@jax.jit
def hypergradient(problem, x):
    params = optimum(problem, x)
    return judging.hypergradient(problem, params, x, jnp.eye(len(params)))[1]


def check_against_central_differences(problem, x):
    direction = np.random.default_rng(1).normal(size=x.shape)
    h = 1e-4
    low2, low, high, high2 = (judged(problem, x + k * h * direction) for k in (-2, -1, 1, 2))
    slope = (low2 - 8 * low + 8 * high - high2) / (12 * h)
    found = jnp.sum(hypergradient(problem, x) * direction)
    assert float(found) == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
@pytest.mark.parametrize("notion", ["statistical_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_hypergradient_is_the_central_difference(penalty, notion, n_groups):
    problem, x = some_problem(n_groups, penalty=penalty, notion=notion)
    check_against_central_differences(problem, x)


@pytest.mark.parametrize("loss", [logistic, squared_hinge])
def test_the_mixed_derivative_is_that_of_automatic_differentiation(loss):
    problem, x = some_problem(model=LinearModel(loss))
    columns = problem.columns(x)
    params, v = np.random.default_rng(2).normal(size=(2, len(columns)))
    expected = mixed_of(problem.training_loss)(params, columns, v)
    found = problem.training_mixed(params, columns, v)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def test_hypergradient_with_custom_loss_and_penalty():
    problem, x = some_problem(model=LinearModel(squared_hinge), custom=mean_gap)
    check_against_central_differences(problem, x)


def test_a_wrong_sign_in_the_implicit_part_is_caught(monkeypatch):
    right = judging.implicit_vjp
    hypergradient.clear_cache()
    monkeypatch.setattr(judging, "implicit_vjp", lambda *args, **how: -right(*args, **how))
    with pytest.raises(AssertionError):
        check_against_central_differences(*some_problem())
    hypergradient.clear_cache()


def test_hypergradient_is_that_of_a_rewrite_in_numpy_and_scipy():
    problem, x = some_problem(rho_o=3.0)
    expected = numpy_hypergradient(problem, np.asarray(x))
    np.testing.assert_allclose(hypergradient(problem, x), expected, rtol=1e-6, atol=1e-10)


def numpy_hypergradient(problem, x):
    """dP/dx of Wu et al. (2024) eq. (9) to (14), every derivative by hand."""
    real, rho_o = problem.objective.rows, problem.objective.rho_o
    a, s, y = (np.asarray(part) for part in (real.a, real.s, real.y))
    sh, yh = np.asarray(problem.s), np.asarray(problem.y)
    x = x.T
    ah = np.column_stack([x, sh, np.ones(len(x))])
    n_s, n = ah.shape
    d = x.shape[1]
    ridge = problem.lambda_theta / n**2
    sigma = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731

    def inner(theta):
        return np.logaddexp(0, -yh * (ah @ theta)).mean() + ridge / 2 * theta @ theta

    def inner_gradient(theta):
        return -(ah.T @ (yh * sigma(-yh * (ah @ theta)))) / n_s + ridge * theta

    theta = scipy.optimize.minimize(
        inner, np.zeros(n), jac=inner_gradient, method="BFGS", options={"gtol": 1e-9}
    ).x
    for _ in range(3):
        p = sigma(ah @ theta)
        hessian = (ah.T * (p * (1 - p))) @ ah / n_s + ridge * np.eye(n)
        theta = theta - np.linalg.solve(hessian, inner_gradient(theta))
    p = sigma(ah @ theta)
    hessian = (ah.T * (p * (1 - p))) @ ah / n_s + ridge * np.eye(n)
    c_real = a.T @ (s - s.mean()) / len(s)
    c_synthetic = ah.T @ (sh - sh.mean()) / n_s
    by_theta = (
        -(a.T @ (y * sigma(-y * (a @ theta)))) / len(y)
        + rho_o * (c_real @ theta) * c_real
        + problem.rho_s * (c_synthetic @ theta) * c_synthetic
    )
    direct = (
        problem.rho_s * (c_synthetic @ theta) * np.outer((sh - sh.mean()) / n_s, theta[:d])
        + problem.lambda_x / (n_s * n) ** 2 * x
    )
    v = np.linalg.solve(hessian, by_theta)
    residual = -yh * sigma(-yh * (ah @ theta))
    mixed = (np.outer(p * (1 - p) * (ah @ v), theta[:d]) + np.outer(residual, v[:d])) / n_s
    return (direct - mixed).T


def test_run_judges_the_last_x_and_leaves_it():
    problem, x = some_problem()
    config = DistillConfig(steps=70)
    chunks = list(outer.run(problem, outer.init(problem, x, config), config))
    objective = np.concatenate([records.objective for _, records in chunks])
    assert len(objective) == 71
    last = chunks[-1][0]
    assert objective[-1] == pytest.approx(float(judged(problem, last.x)))


@pytest.fixture
def to_the_end(monkeypatch):
    """Runs take all their steps, wherever they lead."""
    monkeypatch.setattr(outer, "BOUNCE", np.inf)


def test_a_run_ends_at_the_lowest_of_its_last_chunk(monkeypatch):
    problem, x = some_problem()
    config = DistillConfig(steps=300, learning_rate=0.3)

    def run():
        chunks = list(outer.run(problem, outer.init(problem, x, config), config))
        return chunks[-1][0].x, np.concatenate([records.objective for _, records in chunks])

    reached, objective = run()
    monkeypatch.setattr(outer, "BOUNCE", np.inf)
    bounced, every = run()
    lowest = 251 + int(np.argmin(every[251:]))
    assert len(every) == 301
    assert every[-1] > every[lowest] * 1.001
    np.testing.assert_array_equal(objective, every[: lowest + 1])
    assert float(judged(problem, reached)) == pytest.approx(every[lowest])
    assert float(judged(problem, bounced)) == pytest.approx(every[-1])


def test_neither_what_has_not_converged_nor_what_diverges_is_gone_back_to():
    problem, x = some_problem()
    config = DistillConfig(steps=21)
    before = outer.init(problem, x, config)
    end = outer.advance(problem, before, config)

    def gone_back(**changed):
        changed = (end[0], end[1]._replace(**changed))
        return len(outer._go_back_to_lowest(problem, before, changed, config)[1].objective)

    objective, converged = end[1].objective, end[1].inner_converged
    lowest, second = np.argsort(objective)[:2]
    assert gone_back() == lowest + 1 < 22
    assert gone_back(inner_converged=converged & (np.arange(22) != lowest)) == second + 1
    assert gone_back(inner_converged=np.zeros(22, bool)) == 22
    best_at_end = np.where(np.arange(22) == 21, 0.0, objective)
    assert gone_back(objective=best_at_end, inner_converged=np.arange(22) < 21) == 22
    for wrong in (np.nan, np.inf):
        assert gone_back(objective=np.where(np.arange(22) == 3, wrong, objective)) == 22


def test_gauss_newton_and_what_may_stop_early_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(outer, "_go_back_to_lowest", None)
    problem, x = some_problem()
    for settings in ({"optimizer": "gauss_newton"}, {"stop_tolerance": 1e-9}):
        config = DistillConfig(steps=20, **settings)
        ((_, records),) = outer.run(problem, outer.init(problem, x, config), config)
        assert len(records.objective) == 21


@pytest.mark.parametrize(("steps", "lengths"), [(9, [10]), (49, [50]), (100, [1, 50, 50])])
@pytest.mark.usefixtures("to_the_end")
def test_the_last_chunks_are_whole(steps, lengths):
    problem, x = some_problem()
    config = DistillConfig(steps=steps)
    chunks = outer.run(problem, outer.init(problem, x, config), config)
    assert [len(records.objective) for _, records in chunks] == lengths


@pytest.mark.usefixtures("to_the_end")
def test_steps_do_not_depend_on_how_many_follow():
    problem, x = some_problem()
    short, long = (
        np.concatenate([r.objective for _, r in outer.run(problem, outer.init(problem, x, c), c)])
        for c in (DistillConfig(steps=30), DistillConfig(steps=120))
    )
    np.testing.assert_array_equal(short, long[:31])


@pytest.mark.parametrize(("start", "same"), [("range", True), ("normal", False)])
def test_nothing_but_the_objective_sees_real_rows(start, same):
    """Other rows behind the same F change nothing; the normal start, which reads them, is caught."""
    config = DistillConfig(n_synthetic=24, steps=5, start=start)
    results = []
    for seed in (0, 1):
        real = encode(make_table(n=100 + seed, seed=seed), make_schema())
        problem, x = make_problem(real, config, n_groups=2)
        objective = some_problem()[0].objective
        problem = dataclasses.replace(problem, objective=objective)
        results.append(
            [s.x for s, _ in outer.run(problem, outer.init(problem, x, config), config)][-1]
        )
    assert np.array_equal(*results) == same


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_hypergradients_of_the_loop_itself_are_exact(penalty):
    """Adam's first moment after one step is a tenth of the gradient that the loop computed."""
    problem, x = some_problem(penalty=penalty)
    state = outer.init(problem, x, DistillConfig(steps=3))
    for _ in range(3):
        state, record = jax.jit(outer.step)(
            problem, state._replace(memory=adam.restart(state.memory, state.x)), outer.Knobs()
        )
        expected = hypergradient(problem, x)
        error = jnp.linalg.norm(state.memory.moments.real / 0.1 - expected) / jnp.linalg.norm(
            expected
        )
        assert error <= 1e-6
        assert record.inner_converged
        x = state.x


def test_early_stop():
    problem, x = some_problem()
    config = DistillConfig(steps=5000, stop_tolerance=1e-3)
    n = sum(len(r.objective) for _, r in outer.run(problem, outer.init(problem, x, config), config))
    assert n < 2000


def test_problems_of_one_shape_share_one_compilation():
    first, x = some_problem(rho_o=1.0)
    second, _ = some_problem(rho_o=100.0, lambda_theta=0.3, seed=5)
    list(outer.run(first, outer.init(first, x, DistillConfig(steps=10)), DistillConfig()))
    before = outer.compilations()
    list(
        outer.run(
            second,
            outer.init(second, x + 0.1, DistillConfig(steps=20)),
            DistillConfig(learning_rate=0.1),
        )
    )
    assert outer.compilations() == before


def test_no_penalty_and_one_client_reach_plain_central_training():
    problem, x = some_problem(rho_o=0.0, rho_s=0.0, lambda_x=0.0, lambda_theta=1e-6)
    config = DistillConfig(steps=3000, learning_rate=0.02)
    records = [r for _, r in outer.run(problem, outer.init(problem, x, config), config)][-1]
    rows = problem.objective.rows
    a, y = np.asarray(rows.a), np.asarray(rows.y)
    best = scipy.optimize.minimize(
        lambda t: np.logaddexp(0, -y * (a @ t)).mean(), np.zeros(a.shape[1])
    ).fun
    assert records.objective[-1] == pytest.approx(best, rel=1e-3)


def test_a_custom_penalty_sees_the_model_itself():
    """Hashable, of its own type, also where it compiles itself."""
    seen = []

    @partial(jax.jit, static_argnames="model")
    def penalty(model, params, rows):
        seen.append(model)
        return jnp.mean(model.scores(params, rows.a)) ** 2

    problem, x = some_problem(custom=penalty)
    jax.grad(problem.objective)(jnp.zeros(problem.rows(x).a.shape[1]))
    assert {type(model) for model in seen} == {LinearModel}


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_shared_scores_give_what_separate_ones_give(penalty):
    class Same(LinearModel):
        pass

    (shared, x), (apart, _) = (some_problem(penalty=penalty, model=m) for m in (None, Same()))
    theta = jnp.linspace(-1, 1, shared.rows(x).a.shape[1])
    for one, other in zip(
        *(jax.value_and_grad(p.objective)(theta) for p in (shared, apart)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
