"""What the default settings reach, held against the optimum."""

import jax
import jax.numpy as jnp

import synthfair as sf
from synthfair.data.encode import encode
from synthfair.distill.problem import make_problem


def newton_optimum(objective, theta):
    """min F(theta), solved directly and to the last digit."""

    @jax.jit
    def step(objective, theta):
        gradient, hessian = jax.grad(objective)(theta), jax.hessian(objective)(theta)
        damped = hessian + 1e-10 * jnp.eye(len(theta))
        return theta - jnp.linalg.solve(damped, gradient), jnp.linalg.norm(gradient)

    for _ in range(50):
        theta, norm = step(objective, theta)
    assert norm < 1e-8
    return float(objective(theta))


def above_optimum(table, schema, config):
    """A distillation, and P above min F, relatively; P is F plus a ridge on x, so never less."""
    found = sf.distill_table(table, schema, config)
    objective = make_problem(encode(table, schema), config, n_groups=2).objective
    least = newton_optimum(objective, jnp.zeros(len(objective.columns)))
    above = float(found.reached.objective) / least - 1
    assert above > -1e-9
    return found, above


def test_distillation_of_loanapp_reaches_the_optimum_and_a_short_run_does_not():
    table, schema = sf.load_dataset("loanapp")
    client = sf.partition(table, clients=2, seed=0)[0].train
    found, above = above_optimum(client, schema, sf.DistillConfig(n_synthetic=200, steps=300))
    assert above <= 1e-3
    assert found.converged
    short, above = above_optimum(client, schema, sf.DistillConfig(n_synthetic=200, steps=20))
    assert above > 1e-3
    assert not short.converged
