"""The bilevel problem: its start, its steps, the best x, and how far that is from the optimum."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import scipy.optimize
from builders import SCHEMA, make_table, part
from small_problem import hypergradient, optimum, outer_value, run, some_problem

from synthfair.data.encode import encode
from synthfair.distill import problem as outer
from synthfair.distill import solvers
from synthfair.distill.problem import choose_start, make_problem, outer_excess
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Lbfgs, choose_method
from synthfair.errors import InputError
from synthfair.release.settings import DistillConfig

SHORT = DistillConfig(steps=30)
REAL = encode(make_table(), SCHEMA)


@pytest.fixture(scope="module")
def problem():
    return some_problem()


# The start


def start(real=REAL, **settings):
    return choose_start(DistillConfig(**{"group_input": True} | settings), real, n_groups=2)


def test_start_has_equally_many_of_each_pair_or_the_real_groups_and_labels():
    pairs, counts = np.unique(start(n_synthetic=40)[1:], axis=1, return_counts=True)
    assert (pairs.shape, set(counts)) == ((2, 4), {10})
    np.testing.assert_array_equal(start(labels="copy")[1:], REAL[1:])


@pytest.mark.parametrize("labels", ["balanced", "copy"])
@pytest.mark.parametrize("where", ["middle", "normal"])
def test_start_of_a_blind_model_does_not_depend_on_groups(labels, where):
    settings = {"labels": labels, "start": where, "group_input": False}
    one, two = start(**settings), start(REAL._replace(s=1 - REAL.s), **settings)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not one.s.any()
    rows, positive = (120, np.sum(REAL.y > 0)) if labels == "copy" else (800, 400)
    assert (len(one.y), np.sum(one.y > 0)) == (rows, positive)


@pytest.mark.parametrize(("where", "low", "high"), [("range", 0, 1), ("middle", 0.25, 0.75)])
def test_start_that_is_public_reads_nothing_of_the_real_rows(where, low, high):
    other = encode(make_table(n=77, seed=9), SCHEMA)
    one, two = start(n_synthetic=400, start=where), start(other, n_synthetic=400, start=where)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.isclose(one.x, start(n_synthetic=400, start=where, seed=1).x).any(axis=1).all()
    assert low <= one.x.min() < low + 0.01
    assert high - 0.01 < one.x.max() <= high


def test_start_from_a_normal_has_the_real_mean_and_spread():
    x = start(n_synthetic=40_000, start="normal").x
    standard_error = REAL.x.std(axis=0) / 200
    assert (np.abs(x.mean(axis=0) - REAL.x.mean(axis=0)) < 6 * standard_error).all()
    np.testing.assert_allclose(x.std(axis=0), REAL.x.std(axis=0), rtol=0.03)


UNEVEN = (42, {}), (41, {"group_input": False}), (8, {"labels": "copy"})


@pytest.mark.parametrize(("n", "settings"), UNEVEN)
def test_start_of_a_size_that_does_not_split_is_refused(n, settings):
    with pytest.raises(InputError, match=f"n_synthetic = {n}"):
        start(n_synthetic=n, **settings)


@pytest.mark.parametrize("group_input", [True, False])
def test_rows_of_a_problem_stand_in_an_order_of_their_content(group_input):
    """Each with its weight; of a blind model, whatever their groups are."""
    weight, config = np.arange(1.0, 121), DistillConfig(n_synthetic=24, group_input=group_input)

    def made(real, order=slice(None)):
        return make_problem(part(real, order), config, n_groups=2, weight=weight[order]).objective

    first, again = made(REAL), made(REAL, np.random.default_rng(0).permutation(120))
    turned = made(REAL._replace(s=1 - REAL.s)).weight
    assert np.array_equal(turned, first.weight) != group_input
    np.testing.assert_array_equal(again.columns, first.columns)
    order = np.asarray(first.weight[:120], dtype=int) - 1
    np.testing.assert_array_equal(np.sort(order), np.arange(120))
    assert np.abs(np.diff(order)).mean() > 20
    for found, real in ((first.columns[:7].T, REAL.x), (first.s, REAL.s), (first.y, REAL.y)):
        np.testing.assert_array_equal(found[:120], real[order])


# The steps


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
    np.testing.assert_allclose(end.x, x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(history.objective, objective, rtol=1e-5)
    assert history.inner_converged.all()


@pytest.mark.parametrize(("start", "same"), [("range", True), ("normal", False)])
def test_steps_see_real_rows_through_the_objective_alone(problem, start, same):
    """Other rows behind the same F change nothing; the normal start, which reads them, is caught."""
    config, ends = DistillConfig(n_synthetic=24, steps=5, start=start, group_input=True), []
    for seed in (0, 1):
        real = encode(make_table(n=100 + seed, seed=seed), SCHEMA)
        other = make_problem(real, config, n_groups=2)
        other = dataclasses.replace(other, objective=problem.objective, rho_s=0.7)
        ends.append(run(other, config)[0].x)
    assert np.array_equal(*ends) == same


@pytest.mark.parametrize(("steps", "lengths"), [(9, [10]), (49, [50]), (100, [1, 50, 50])])
def test_chunks_at_the_end_are_whole(problem, steps, lengths):
    method = choose_method(problem, SHORT)
    chunks = outer.run(problem, outer.init(problem, method), method, steps=steps)
    assert [len(records.objective) for _, records in chunks] == lengths


# The solvers


def test_solvers_of_all_kinds_give_the_same_run(problem):
    """The default is L-BFGS with Cholesky."""
    settings = {"inner_solver": "newton", "linear_solver": "conjugate_gradient"}
    end, history = run(problem, DistillConfig(steps=30, **settings))
    expected, default = run(problem, SHORT)
    np.testing.assert_allclose(history.objective, default.objective, rtol=1e-6)
    np.testing.assert_allclose(end.x, expected.x, atol=1e-4)
    assert history.inner_converged.all()


def test_solvers_are_chosen_by_size_unless_they_are_asked_for(problem, monkeypatch):
    small = choose_method(problem, SHORT)
    assert (type(small.inner), type(small.linear)) == (Lbfgs, Cholesky)
    asked = choose_method(problem, DistillConfig(linear_solver="conjugate_gradient"))
    assert (type(asked.inner), type(asked.linear)) == (Lbfgs, ConjugateGradient)
    monkeypatch.setattr(solvers, "MIN_ITERATED_PARAMS", 5)
    large = choose_method(problem, SHORT)
    assert (type(large.inner.linear), type(large.linear)) == (ConjugateGradient, ConjugateGradient)


# The best x


def test_best_x_is_that_of_the_lowest_objective(problem):
    end, history = run(problem, DistillConfig(steps=120, learning_rate=0.3))
    assert history.objective[-1] > history.objective.min() * 1.001  # it rises again
    assert float(end.best.record.objective) == history.objective.min()
    assert float(outer_value(problem, end.best.x)) == pytest.approx(history.objective.min())
    np.testing.assert_allclose(end.best.theta, optimum(problem, end.best.x), atol=1e-6)


def test_best_x_is_none_whose_inner_problem_did_not_converge(problem):
    config = DistillConfig(steps=60, learning_rate=0.5)
    end, history = run(problem, config, inner=Lbfgs(1e-8, 4))
    converged = history.inner_converged
    assert history.objective[~converged].min() < history.objective[converged].min()
    assert end.best.record.inner_converged
    assert float(end.best.record.objective) == history.objective[converged].min()
    never, _ = run(problem, SHORT, inner=Lbfgs(1e-30, 2))
    assert not never.best.record.inner_converged
    assert np.isfinite(never.best.record.objective)
    unsolved, _ = run(problem, SHORT, linear=ConjugateGradient(1e-30))
    assert not unsolved.best.record.inner_converged


@pytest.mark.parametrize(("rho_o", "lambda_x", "steps"), [(10.0, 1.0, 200), (1000.0, 1e-4, 60)])
def test_excess_estimates_how_far_the_optimum_is(rho_o, lambda_x, steps):
    problem = some_problem(rho_o=rho_o, rho_s=0.0, lambda_x=lambda_x)
    end, _ = run(problem, DistillConfig(steps=steps))
    fun, theta = jax.jit(jax.value_and_grad(problem.objective)), np.asarray(end.best.theta)
    best = scipy.optimize.minimize(
        lambda t: tuple(map(np.asarray, fun(t))), theta, jac=True, options={"gtol": 1e-9}
    ).fun
    whole = float(problem.objective(problem.first_theta))
    true = (float(end.best.record.objective) - best) / whole
    assert outer_excess(problem, end.best) == pytest.approx(true, rel=0.5, abs=1e-6)
