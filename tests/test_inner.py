import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from synthfair.distill.inner import solve, train
from synthfair.distill.linear import hessian_of
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.model import LinearModel, Rows, regularized_loss


def some_rows(n=200, d=5, seed=0):
    rng = np.random.default_rng(seed)
    a, s = rng.normal(size=(n, d)), rng.integers(2, size=n)
    y = np.where(a @ rng.normal(size=d) + rng.logistic(size=n) > 0, 1.0, -1.0)
    return Rows(jnp.array(a), jnp.array(s), jnp.array(y))


def test_solution_is_scikit_learns():
    rows, lambda_theta = some_rows(), 0.5
    n, d = rows.a.shape
    # scikit-learn minimises C sum loss + ||theta||^2 / 2; ours is that over C n.
    reference = LogisticRegression(C=d**2 / (lambda_theta * n), fit_intercept=False, tol=1e-12)
    reference.fit(np.asarray(rows.a), np.asarray(rows.y))
    solution = train(rows, lambda_theta, model=LinearModel())
    assert solution.converged
    np.testing.assert_allclose(solution.params, reference.coef_[0], rtol=1e-5)


def some_loss(params, rows):
    return regularized_loss(LinearModel(), params, rows, 0.1)


@pytest.mark.parametrize("changed", [True, False])
def test_change_of_variables_finds_the_same_in_fewer_iterations(changed):
    rows = some_rows()
    rows = rows._replace(a=rows.a * jnp.array([1.0, 10.0, 100.0, 1.0, 1.0]))
    reference = train(rows, 0.1, model=LinearModel()).params

    @jax.jit
    def solved(rows):
        hessian = hessian_of(some_loss, reference * 1.01, rows)
        factor = jnp.linalg.cholesky(hessian) if changed else None
        start = jnp.zeros(5)
        return solve(some_loss, start, rows, factor=factor, tolerance=1e-7, max_iterations=500)

    solution = solved(rows)
    np.testing.assert_allclose(solution.params, reference, rtol=1e-4)
    assert solution.converged
    assert (solution.iterations < 15) == changed


def test_a_warm_start_costs_one_evaluation_an_iteration():
    rows, calls = some_rows(), []
    start = train(rows, 0.1, model=LinearModel()).params

    def counted(params, rows):
        calls.append(None)
        return some_loss(params, rows)

    moved = rows._replace(a=rows.a + 0.01 * jnp.sign(rows.a[::-1]))
    factor = jnp.linalg.cholesky(hessian_of(some_loss, start, rows))
    with jax.disable_jit():
        solution = solve(counted, start, moved, factor=factor, tolerance=1e-8, max_iterations=50)
    assert solution.converged
    assert 2 <= solution.iterations <= 5
    assert len(calls) == 1 + solution.iterations


def test_where_the_unit_step_is_bad_the_line_search_takes_over():
    def steep(theta, _):
        return jnp.sum(jnp.log(jnp.cosh(20 * (theta - 3)))) + 1e-3 * theta @ theta

    solution = solve(steep, jnp.zeros(2), None, tolerance=1e-8, max_iterations=200)
    assert solution.converged
    np.testing.assert_allclose(solution.params, 3, atol=1e-2)


def test_too_few_iterations_are_told():
    rows = some_rows()
    solution = train(rows, 1e-3, model=LinearModel(), max_iterations=2)
    assert not solution.converged
    gradient = jax.grad(lambda p: regularized_loss(LinearModel(), p, rows, 1e-3))(solution.params)
    assert solution.gradient_norm == pytest.approx(float(jnp.linalg.norm(gradient)))
    assert solution.gradient_norm > 1e-3


def test_penalty_of_large_weight_removes_the_covariance():
    rows, penalty, model = some_rows(), CovariancePenalty(), LinearModel()
    free = train(rows, 1e-3, model=model)
    fair = train(rows, 1e-3, model=model, penalty=penalty, rho=1e6)
    assert penalty(model, fair.params, rows) < 1e-6 * penalty(model, free.params, rows)


def test_single_precision_says_that_it_cannot_reach_double_tolerance():
    with jax.enable_x64(False):
        rows = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), some_rows())
        assert train(rows, 1e-2, model=LinearModel(), tolerance=1e-5).converged
        assert not train(rows, 1e-2, model=LinearModel(), tolerance=1e-12).converged
