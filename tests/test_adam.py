"""Adam's steps, and x widened: all columns of the rows in one array, with rows of zeros."""

import dataclasses
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_outer import hypergradient, judged, some_problem, squared_hinge

from synthfair.checkpoint import CheckpointFile
from synthfair.config import DistillConfig
from synthfair.distill import adam, outer
from synthfair.distill import judge as judging
from synthfair.distill import problem as of_problem
from synthfair.distill.checkpoint import Checkpoint, keep, kept
from synthfair.model import LinearModel


def adam_by_optax(gradients, x, rate, steps):
    """In double precision."""
    peer = optax.adam(rate)
    memory = peer.init(x)
    for _ in range(steps):
        change, memory = peer.update(gradients(x), memory)
        x = x + change
    return x


UNALIGNED = {"n_synthetic": 1004, "rho_s": 0.0}


@pytest.fixture
def widened(monkeypatch):
    """Small x is treated as large x is; of each chunk it tells whether it was."""
    monkeypatch.setattr(outer, "LARGE", 0)
    chunks, compiled = [], outer._compiled_chunk

    def told(**kind):
        def chunk(*args, method):
            chunks.append(method.widened)
            return compiled(**kind)(*args, method=method)

        return chunk

    monkeypatch.setattr(outer, "_compiled_chunk", told)
    return chunks


KINDS = [{}, {"n_groups": 3, "intercept": False}, UNALIGNED]


@pytest.mark.parametrize("settings", KINDS)
def test_the_loop_takes_adams_steps(settings):
    check_adams_steps(settings)


@pytest.mark.parametrize("settings", KINDS)
def test_the_loop_takes_adams_steps_in_one_array_of_all_columns(settings, widened):
    check_adams_steps(settings)
    assert widened == [True, True]


def check_adams_steps(settings):
    """Over two chunks. Moments are in single precision: beside steps of 0.02 errors stay small."""
    problem, x = some_problem(**settings)
    config = DistillConfig(steps=70, learning_rate=0.02)
    *_, (end, _) = outer.run(problem, outer.init(problem, x, config), config)
    expected = adam_by_optax(partial(hypergradient, problem), x, 0.02, 70)
    assert end.x.dtype == float
    assert end.memory.moments.real.dtype == adam.KEPT
    assert end.memory.moments.shape == end.x.shape == x.shape
    np.testing.assert_allclose(end.x, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("double", [True, False])
def test_moves_are_optaxs_for_gradients_of_all_sizes(double):
    rng = np.random.default_rng(0)
    with jax.enable_x64(double):
        problem, x = some_problem()
        state = outer.init(problem, x, DistillConfig())
        record = judging.no_record(x.dtype)
        judged = judging.Judged(x, state.params, state.curvature, x, record)
        for _ in range(2):
            memory, peer = adam.restart(state.memory, x), optax.scale_by_adam()
            theirs = peer.init(x.astype(np.float32))
            for _ in range(20):
                gradient = rng.normal(size=x.shape) * 10 ** rng.uniform(-12, 6, size=x.shape)
                judged = judged._replace(gradient=jnp.asarray(gradient, x.dtype))
                _, moved, _, memory = adam.move(problem, judged, memory, 0.02)
                expected, theirs = peer.update(judged.gradient.astype(np.float32), theirs)
                assert moved.dtype == x.dtype
                assert memory.moments.real.dtype == adam.KEPT
                np.testing.assert_allclose(moved, x - 0.02 * expected, rtol=1e-5, atol=1e-7)
            assert memory.taken == 20


def test_roots_and_quotients_are_in_single_precision():
    """They take a third of the time of a large step; in double, a step takes a ninth more."""
    problem, x = some_problem()
    state = outer.init(problem, x, DistillConfig())
    record = judging.no_record(x.dtype)
    judged = judging.Judged(x, state.params, state.curvature, x, record)
    traced = jax.make_jaxpr(jax.jit(adam.move))(problem, judged, state.memory, 0.02)
    slow = [line for line in str(traced).splitlines() if " sqrt " in line or " div " in line]
    of_x = [line for line in slow if "[" + ",".join(map(str, x.shape)) + "]" in line]
    assert len(of_x) >= 3
    assert all("f32[" in line for line in of_x)


@pytest.mark.parametrize("settings", [{}, UNALIGNED])
def test_a_batch_in_one_array_of_all_columns(settings, widened, monkeypatch):
    """Of problems with other rows, and each its own lambdas."""
    config = DistillConfig(steps=70, learning_rate=0.02)
    problems, states = [], []
    for seed in (0, 1):
        problem, x = some_problem(seed=seed, **settings)
        lambdas = {"lambda_theta": jnp.asarray(1.0 + seed), "lambda_x": jnp.asarray(0.1 + seed)}
        problems.append(dataclasses.replace(problem, **lambdas))
        states.append(outer.init(problem, x + 0.1 * seed, config))
    *_, (end, _) = outer.run(outer.stack(problems), outer.stack(states), config)
    assert widened == [True, True]
    monkeypatch.setattr(outer, "LARGE", 10**9)
    alone = [[*outer.run(*each, config)][-1][0].x for each in zip(problems, states, strict=True)]
    assert widened[2:] == [False] * 4
    np.testing.assert_allclose(end.x, np.stack(alone), rtol=0, atol=1e-6)


def test_going_on_in_one_array_of_all_columns_changes_nothing(widened):
    problem, x = some_problem(**UNALIGNED)
    config = DistillConfig(steps=120)
    states = [state for state, _ in outer.run(problem, outer.init(problem, x, config), config)]
    again = [state for state, _ in outer.run(problem, states[0], config)]
    assert widened == [True] * 5
    for one, other in zip(states[1:], again, strict=True):
        assert jax.tree.all(jax.tree.map(np.array_equal, one, other))


def test_a_widened_problem_in_single_precision(widened):
    with jax.enable_x64(False):
        problem, x = some_problem(**UNALIGNED)
        config = DistillConfig(steps=50)
        _, (_, records) = outer.run(problem, outer.init(problem, x, config), config)
    assert widened == [True, True]
    assert records.inner_converged.all()
    assert records.objective[-1] < records.objective[0]


def test_gradients_beyond_single_precision_still_move_x():
    problem, x = some_problem(rho_o=1e24)
    config = DistillConfig(steps=5)
    *_, (end, _) = outer.run(problem, outer.init(problem, x, config), config)
    assert np.abs(np.asarray(end.x - x)).max() > 0.02


def test_a_checkpoint_with_other_moments_is_not_taken_up(tmp_path):
    problem, x = some_problem()
    first = outer.init(problem, x, DistillConfig(steps=60))
    state, records = next(outer.run(problem, first, DistillConfig(steps=60)))
    file = CheckpointFile(tmp_path / "x.checkpoint", "a fingerprint")
    keep(Checkpoint(state, (records,)), file)
    assert kept(file, first) is not None
    moments, others = state.memory.moments, state.memory[2:]
    apart = (state.memory.taken, moments.real, moments.imag, *others)
    for other in (jax.tree.map(in_double, state), state._replace(memory=apart)):
        keep(Checkpoint(other, (records,)), file)
        assert kept(file, first) is None


def in_double(leaf):
    return leaf.astype(complex) if jnp.iscomplexobj(leaf) else leaf


@pytest.mark.parametrize(
    ("settings", "more"),
    [({}, 2), ({"rho_s": 0.7}, 0), ({"model": LinearModel(squared_hinge)}, 2)],
)
def test_a_widened_problem_is_the_same_and_moves_features_alone(settings, more, monkeypatch):
    monkeypatch.setattr(of_problem, "MANY_ROWS", 30)
    problem, x = some_problem(n_groups=3, **{"n_synthetic": 30, "rho_s": 0.0} | settings)
    widened, columns = problem.widened(), problem.widen(x)
    assert np.array_equal(widened.columns(columns), columns)
    assert columns.shape == (len(problem.columns(x)), 30 + more)
    assert judged(widened, columns) == pytest.approx(float(judged(problem, x)), rel=1e-12)
    gradient, expected = hypergradient(widened, columns), hypergradient(problem, x)
    np.testing.assert_allclose(gradient[: len(x), :30], expected, rtol=1e-9, atol=1e-15)
    assert not gradient[len(x) :].any()
    assert not gradient[:, 30:].any()
    assert widened.widened().still == widened.still == len(gradient) - len(x)
    assert np.array_equal(widened.widened().widen(columns), columns)


class Otherwise(LinearModel):
    """What a row of zeros does to it is not known."""


def test_rows_of_zeros_are_added_only_beside_many():
    for settings, rows in [
        (UNALIGNED, 1008),
        (UNALIGNED | {"n_synthetic": 996}, 996),
        (UNALIGNED | {"rho_s": 0.7}, 1004),
        (UNALIGNED | {"model": Otherwise()}, 1004),
    ]:
        problem, x = some_problem(**settings)
        assert problem.widen(x).shape[1] == rows
        two = outer.stack([problem, problem])
        assert two.widen(jnp.stack([x, x])).shape == (2, len(problem.columns(x)), rows)
        assert two.widened().y.shape == (2, rows)


@pytest.mark.parametrize("widened", [False, True])
def test_steps_are_lowered_for_an_accelerator(widened):
    """Which says that each operation exists there; without one, no more can be tested."""
    problem, x = some_problem(**UNALIGNED)
    state = outer.init(problem, x, DistillConfig())
    method = outer.Method(widened=widened)
    steps = jax.jit(partial(outer._steps, method=method))
    found = jax.export.export(steps, platforms=["cuda"])(problem, state, outer.Knobs())
    assert found.platforms == ("cuda",)
