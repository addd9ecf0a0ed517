"""A small bilevel problem, and its answers by other means, for tests of its solvers."""

import jax
import jax.numpy as jnp
import numpy as np
from conftest import make_schema, make_table

from synthfair.config import DistillConfig
from synthfair.data.encode import encode
from synthfair.distill import hypergradient as hg
from synthfair.distill import optimize
from synthfair.distill.linear import Cholesky
from synthfair.distill.problem import make_problem


def squared_hinge(margin):
    """A custom loss."""
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def mean_gap(scores, rows):
    """A custom penalty: squared difference of mean scores."""
    s = rows.s
    return (jnp.sum(scores * s) / jnp.sum(s) - jnp.sum(scores * (1 - s)) / jnp.sum(1 - s)) ** 2


def some_problem(n_groups=2, model=None, custom=None, **settings):
    real = encode(make_table(n_groups=n_groups), make_schema(n_groups))
    settings = {"n_synthetic": 12 * n_groups, "rho_s": 0.7, "lambda_x": 0.1} | settings
    config = DistillConfig(**settings)
    return make_problem(real, config, n_groups=n_groups, model=model, penalty=custom)


@jax.jit
def optimum(problem, x):
    """theta(x) by Newton's method, to the last digit."""
    inputs = problem.inputs(x)

    def newton(params, _):
        gradient = jax.grad(problem.inner)(params, inputs)
        return params - jnp.linalg.solve(jax.hessian(problem.inner)(params, inputs), gradient), None

    start = problem.model.init(len(inputs))
    return jax.lax.scan(newton, start, None, length=20)[0]


@jax.jit
def outer_value(problem, x):
    """P(x)."""
    return problem.outer(optimum(problem, x), x)


@jax.jit
def hypergradient(problem, x):
    """The package's, at the optimum."""
    params = optimum(problem, x)
    return hg.hypergradient(problem, params, x, jnp.eye(len(params)), solver=Cholesky())[1]


def run(problem, config, optimizer=None):
    """The state at the end of a whole run, and its history."""
    method = optimize.method_of(problem, config, optimizer=optimizer)
    chunks = list(optimize.run(problem, optimize.init(problem, method, steps=config.steps), method))
    fields = zip(*(records for _, records in chunks), strict=True)
    return chunks[-1][0], hg.StepRecord(*map(np.concatenate, fields))
