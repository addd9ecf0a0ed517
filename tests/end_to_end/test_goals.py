"""What the default settings reach on public tables, held against the optimum and its metrics."""

import jax
import jax.numpy as jnp
import pytest

import synthfair as sf
from synthfair.data.datasets import configs_folder
from synthfair.data.encode import encode
from synthfair.distill.problem import make_problem
from synthfair.release.settings import load_release_config

RUNS = {
    "law_school/race": ("law_school", "race", 2, 0.885, 0.06),
    "law_school/gender": ("law_school", "male", 2, 0.885, 0.06),
    "dutch/gender": ("dutch_numbers", "sex", 4, 0.785, 0.10),
}
"""Of each configuration the table, the attribute, the clients, and the bounds."""


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


@pytest.mark.usefixtures("public_tables")
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_distillation_by_the_committed_configurations_reaches_its_bounds(name):
    dataset, sensitive, n_clients, accuracy, spd = RUNS[name]
    table, schema = sf.load_dataset(dataset, sensitive)
    config = load_release_config(configs_folder() / f"{name}.toml")
    clients = sf.partition(table, clients=n_clients, seed=0)
    found = [above_optimum(client.train, schema, config) for client in clients[:n_clients]]
    assert max(above for _, above in found) <= 1e-3
    assert all(distilled.converged for distilled, _ in found)
    releases = {str(i): distilled.release for i, (distilled, _) in enumerate(found)}
    model = sf.pool_and_train(releases, schema)
    tests = {str(i): client.test for i, client in enumerate(clients)}
    overall = sf.evaluate(model, tests, sf.ServerConfig(resamples=1)).overall
    assert model.converged
    assert overall["accuracy"].value >= accuracy
    assert abs(overall["spd"].value) <= spd
