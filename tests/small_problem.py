"""A small bilevel problem, and its answers by other means, for tests of its solvers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from builders import make_schema, make_table

from synthfair.data.encode import encode
from synthfair.distill import problem as outer
from synthfair.distill.problem import evaluate, make_problem
from synthfair.distill.solvers import Cholesky, Method, Newton, adam, choose_method
from synthfair.release.settings import DistillConfig


def squared_hinge(margin):
    """A custom loss."""
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def mean_gap(scores, rows):
    """A custom penalty: squared difference of mean scores."""
    s = rows.s
    return (jnp.sum(scores * s) / jnp.sum(s) - jnp.sum(scores * (1 - s)) / jnp.sum(1 - s)) ** 2


def some_problem(n_groups=2, model=None, custom=None, **settings):
    real = encode(make_table(n_groups=n_groups), make_schema(n_groups))
    usual = {"n_synthetic": 12 * n_groups, "lambda_x": 0.1, "group_input": True}
    usual["rho_s"] = 0.7 * settings.get("group_input", True)
    config = DistillConfig(**usual | settings)
    return make_problem(real, config, n_groups=n_groups, model=model, penalty=custom)


@jax.jit
def optimum(problem, x):
    """theta(x) by Newton's method, to the last digit."""
    loss = problem.inner(x).value

    def newton(theta, _):
        return theta - jnp.linalg.solve(jax.hessian(loss)(theta), jax.grad(loss)(theta)), None

    return jax.lax.scan(newton, problem.first_theta, None, length=20)[0]


@jax.jit
def outer_value(problem, x):
    """P(x)."""
    return problem.outer(optimum(problem, x), x)


@jax.jit
def point_at(problem, x):
    """The package's theta(x), to the last digit, and hypergradient."""
    theta = problem.first_theta
    exact = Method(Newton(1e-11), Cholesky(), adam(0.01))
    return evaluate(problem, x, theta, jnp.eye(len(theta)), exact)


def hypergradient(problem, x):
    """The package's, at the optimum."""
    return point_at(problem, x)[1]


def run(problem, config, optimizer=None, **solvers):
    """The state at the end of a whole run, and its history."""
    chosen = choose_method(problem, config, optimizer=optimizer)
    method = dataclasses.replace(chosen, **solvers)
    state = outer.init(problem, method)
    chunks = list(outer.run(problem, state, method, steps=config.steps))
    fields = zip(*(records for _, records in chunks), strict=True)
    return chunks[-1][0], outer.StepRecord(*map(np.concatenate, fields))
