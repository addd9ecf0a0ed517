"""distill.lbfgs: its directions are optax's, step for step; what it forgets and what tells nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax import scale_by_lbfgs

from synthfair.distill.lbfgs import (
    MEMORY,
    _line_search,
    lbfgs,
    no_memory,
    precondition,
    remember,
)


def some_quadratic(p=7, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p))
    return jnp.asarray(root @ root.T + np.eye(p)), jnp.asarray(rng.normal(size=p))


def test_directions_are_those_of_optax_beyond_the_memory():
    hessian, phi = some_quadratic()
    peer = scale_by_lbfgs(MEMORY)
    state, gradient = peer.init(phi), hessian @ phi
    memory = no_memory(gradient)
    for i in range(MEMORY + 4):
        expected, state = peer.update(gradient, state, phi)
        found = precondition(memory, gradient, known=min(i, MEMORY))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        moved = phi - 0.5 * expected
        memory = remember(memory, moved - phi, hessian @ moved - gradient)
        phi, gradient = moved, hessian @ moved
    assert np.all(memory.weights > 0)


def test_the_newest_step_is_fitted_exactly():
    """The secant equation: the inverse Hessian takes the newest change to the newest step."""
    hessian, _ = some_quadratic()
    memory = no_memory(jnp.ones(7))
    for step in jnp.asarray(np.random.default_rng(1).normal(size=(3, 7))):
        memory = remember(memory, step, hessian @ step)
    newest = precondition(memory, memory.changes[0], known=3)
    np.testing.assert_allclose(newest, memory.steps[0], rtol=1e-10)


def test_a_step_of_nothing_tells_nothing():
    memory = remember(no_memory(jnp.ones(3)), jnp.zeros(3), jnp.zeros(3))
    gradient = jnp.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(precondition(memory, gradient, known=1), gradient)


def by_optax(fun, phi, iterations):
    """Its directions, with our line search."""
    peer, slope = scale_by_lbfgs(MEMORY), jax.grad(fun)
    state, gradient = peer.init(phi), slope(phi)
    for _ in range(iterations):
        uphill, state = peer.update(gradient, state, phi)
        found = _line_search(fun, phi, gradient, -uphill, convex=True)
        phi, gradient = found.phi, found.gradient
    return phi


@pytest.mark.parametrize("iterations", [1, 2, 3, MEMORY, MEMORY + 1, MEMORY + 4])
def test_iterations_are_those_of_optax(iterations):
    """On an ill-conditioned problem, where the number of steps that are known tells."""
    root, start = some_quadratic(p=20)
    hessian = root * jnp.logspace(0, 1, 20) * jnp.logspace(0, 1, 20)[:, None]

    def fun(phi):
        return 0.5 * phi @ hessian @ phi

    solved = lbfgs(fun, start, tolerance=0.0, max_iterations=iterations, convex=True)
    assert solved.iterations == iterations
    np.testing.assert_allclose(solved.phi, by_optax(fun, start, iterations), rtol=1e-7, atol=1e-9)


def test_a_change_too_small_to_square_tells_nothing():
    step, change = np.float32(1e-8) * np.ones(3, "f4"), np.float32(1e-24) * np.ones(3, "f4")
    memory = remember(no_memory(jnp.ones(3, "f4")), jnp.asarray(step), jnp.asarray(change))
    assert memory.scale == 1
    assert np.isfinite(precondition(memory, jnp.ones(3, "f4"), known=1)).all()


@pytest.mark.parametrize("convex", [True, False])
def test_in_a_batch_each_is_solved_as_alone(convex):
    """Some need more steps than others, and more than are remembered."""
    hessians, starts = zip(*(some_quadratic(p=30, seed=seed) for seed in range(4)), strict=True)

    def solved(hessian, start):
        return lbfgs(
            lambda phi: 0.5 * phi @ hessian @ phi,
            start,
            tolerance=1e-6,
            max_iterations=200,
            convex=convex,
        )

    batch = jax.jit(jax.vmap(solved))(jnp.stack(hessians), jnp.stack(starts))
    assert len({*np.asarray(batch.iterations).tolist()}) > 1
    assert batch.iterations.max() > MEMORY
    for i, (hessian, start) in enumerate(zip(hessians, starts, strict=True)):
        alone = jax.jit(solved)(hessian, start)
        assert abs(int(batch.iterations[i]) - int(alone.iterations)) <= 1
        assert jnp.linalg.norm(batch.gradient[i]) <= 1e-6
        np.testing.assert_allclose(batch.phi[i], alone.phi, atol=1e-6)
