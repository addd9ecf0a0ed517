"""The outer loop: its steps are optax's, and it ends at its best x."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import scipy.optimize
from builders import make_schema, make_table
from small_problem import hypergradient, optimum, outer_value, run, some_problem

from synthfair.data.encode import encode
from synthfair.distill import problem as outer
from synthfair.distill import solvers
from synthfair.distill.problem import make_problem, outer_excess
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Lbfgs, choose_method
from synthfair.release.settings import DistillConfig

SHORT = DistillConfig(steps=30)


@pytest.fixture(scope="module")
def problem():
    return some_problem()


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_steps_are_optaxs_along_the_hypergradient(problem, name):
    """Adam's moments are in single precision: next to steps of 0.02 the errors stay small."""
    peer = optax.adam(0.02) if name == "adam" else optax.sgd(0.02, momentum=0.9)
    own = None if name == "adam" else peer
    end, history = run(problem, DistillConfig(steps=30, learning_rate=0.02), own)
    x, memory, objective = problem.start, peer.init(problem.start), []
    for _ in range(31):
        objective.append(float(outer_value(problem, x)))
        change, memory = peer.update(hypergradient(problem, x), memory)
        x = x + change
    assert end.x.dtype == float
    np.testing.assert_allclose(end.x, x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(history.objective, objective, rtol=1e-5)
    assert history.inner_converged.all()


def test_gradients_beyond_single_precision_still_move_x(problem):
    objective = dataclasses.replace(problem.objective, rho_o=1e24)
    end, _ = run(dataclasses.replace(problem, objective=objective), SHORT)
    assert np.abs(np.asarray(end.x - problem.start)).max() > 0.02


def test_the_best_x_is_that_of_the_lowest_objective(problem):
    end, history = run(problem, DistillConfig(steps=120, learning_rate=0.3))
    assert history.objective[-1] > history.objective.min() * 1.001  # it rises again
    assert float(end.best.record.objective) == history.objective.min()
    assert float(outer_value(problem, end.best.x)) == pytest.approx(history.objective.min())
    np.testing.assert_allclose(end.best.theta, optimum(problem, end.best.x), atol=1e-6)


def test_an_x_whose_inner_problem_did_not_converge_is_not_the_best(problem):
    config = DistillConfig(steps=60, learning_rate=0.5)
    end, history = run(problem, config, inner=Lbfgs(1e-8, 4))
    converged = history.inner_converged
    assert history.objective[~converged].min() < history.objective[converged].min()
    assert end.best.record.inner_converged
    assert float(end.best.record.objective) == history.objective[converged].min()
    never, _ = run(problem, SHORT, inner=Lbfgs(1e-30, 2))
    assert not never.best.record.inner_converged
    assert np.isfinite(never.best.record.objective)


@pytest.mark.parametrize(("steps", "lengths"), [(9, [10]), (49, [50]), (100, [1, 50, 50])])
def test_the_last_chunks_are_whole(problem, steps, lengths):
    method = choose_method(problem, SHORT)
    chunks = outer.run(problem, outer.init(problem, method), method, steps=steps)
    assert [len(records.objective) for _, records in chunks] == lengths


def test_steps_do_not_depend_on_how_many_follow(problem):
    (_, short), (_, long) = (run(problem, DistillConfig(steps=n)) for n in (30, 120))
    np.testing.assert_allclose(short.objective, long.objective[:31], rtol=1e-9)


@pytest.mark.parametrize(("start", "same"), [("range", True), ("normal", False)])
def test_nothing_but_the_objective_sees_real_rows(problem, start, same):
    """Other rows behind the same F change nothing; the normal start, which reads them, is caught."""
    config, ends = DistillConfig(n_synthetic=24, steps=5, start=start, group_input=True), []
    for seed in (0, 1):
        real = encode(make_table(n=100 + seed, seed=seed), make_schema())
        other = make_problem(real, config, n_groups=2)
        other = dataclasses.replace(other, objective=problem.objective, rho_s=0.7)
        ends.append(run(other, config)[0].x)
    assert np.array_equal(*ends) == same


def test_problems_of_one_shape_share_one_compilation(problem, compilations):
    run(problem, SHORT)
    before = compilations()
    other = some_problem(rho_o=100.0, lambda_theta=0.3, seed=5)
    run(other, DistillConfig(steps=20, inner_tolerance=1e-7))
    assert compilations() == before


def test_no_penalty_and_one_client_reach_plain_central_training():
    problem = some_problem(rho_o=0.0, rho_s=0.0, lambda_x=0.0, lambda_theta=1e-6)
    end, _ = run(problem, DistillConfig(steps=3000, learning_rate=0.02))
    real = problem.objective.rows
    a, y = (np.asarray(part)[np.asarray(real.weight) > 0] for part in (real.a, real.y))
    best = scipy.optimize.minimize(
        lambda t: np.logaddexp(0, -y * (a @ t)).mean(), np.zeros(a.shape[1])
    ).fun
    assert float(end.best.record.objective) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("rho_o", "steps"), [(10.0, 200), (1000.0, 60)])
def test_the_excess_estimates_how_far_the_optimum_is(rho_o, steps):
    problem = some_problem(rho_o=rho_o, rho_s=0.0, lambda_x=1e-4)
    end, _ = run(problem, DistillConfig(steps=steps))
    fun = jax.jit(jax.value_and_grad(problem.objective))
    best = scipy.optimize.minimize(
        lambda t: tuple(map(np.asarray, fun(t))),
        np.asarray(end.best.theta),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9},
    ).fun
    whole = float(problem.objective(problem.first_theta))
    true = (float(end.best.record.objective) - best) / whole
    assert outer_excess(problem, end.best) == pytest.approx(true, rel=0.5, abs=1e-6)


def test_the_excess_counts_the_synthetic_penalty_and_is_no_more_than_p():
    problem = some_problem(rho_s=1e4)
    end, _ = run(problem, SHORT)
    whole = float(problem.objective(problem.first_theta))
    assert 0 < outer_excess(problem, end.best) <= end.best.record.objective / whole


def test_an_optimizer_may_ask_for_the_objective(problem):
    end, history = run(problem, SHORT, optax.polyak_sgd(max_learning_rate=1.0))
    assert end.best.record.objective < history.objective[0]


def test_all_solvers_give_the_same_run(problem):
    """The default is L-BFGS with Cholesky."""
    settings = {"inner_solver": "newton", "linear_solver": "conjugate_gradient"}
    end, history = run(problem, DistillConfig(steps=30, **settings))
    expected, default = run(problem, SHORT)
    np.testing.assert_allclose(history.objective, default.objective, rtol=1e-6)
    np.testing.assert_allclose(end.x, expected.x, atol=1e-4)
    assert history.inner_converged.all()


def test_single_precision_converges_to_its_own_tolerance():
    with jax.enable_x64(False):
        end, history = run(some_problem(), SHORT)
    assert history.inner_converged.mean() > 0.9
    assert end.best.x.dtype == np.float32


def test_the_choice_is_by_size(problem, monkeypatch):
    small = choose_method(problem, SHORT)
    assert (type(small.inner), type(small.linear)) == (Lbfgs, Cholesky)
    asked = choose_method(problem, DistillConfig(linear_solver="conjugate_gradient"))
    assert (type(asked.inner), type(asked.linear)) == (Lbfgs, ConjugateGradient)
    monkeypatch.setattr(solvers, "MIN_ITERATED_PARAMS", 5)
    large = choose_method(problem, SHORT)
    assert (type(large.inner.linear), type(large.linear)) == (ConjugateGradient, ConjugateGradient)


def test_a_chunk_can_be_lowered_for_an_accelerator(problem):
    """So each operation exists there; without one, no more can be tested."""
    method = choose_method(problem, SHORT)
    traced = jax.jit(outer.step).trace(problem, outer.init(problem, method), method)
    assert "func.func" in traced.lower(lowering_platforms=("cuda",)).as_text()
