"""Which private method finds theta best at an equal budget, on training rows only.

Mean excess of F over its minimum on the first client's training rows, and mean change of their SPD,
each theta found with the whole budget. Compared are:

- averaged: what synthfair does;
- other numbers of steps of the same;
- plain steps: without the second moment, whose budget goes to the gradients; steps of the length
  that the public bound on a row allows, averaged over the last half;
- objective perturbation (Kifer, Smith and Thakurta 2012): the loss with a random linear term, to be
  minimised exactly. Its noise here is that of one Gaussian mechanism, which is less than its
  theorems ask for, and its extra ridge is what they need to spend a tenth of epsilon on curvature:
  so this is better than it could be.

All use the same noisy moments for the penalty, which is the covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import synthfair as sf
from benchmarks.distilling import outer_objective
from benchmarks.harness import Experiment, Run, by, means, page, table
from benchmarks.privacy.budgets import TASKS, delta, federation
from benchmarks.table2.optimum import least_objective
from synthfair.client.private import measure
from synthfair.model import logistic
from synthfair.privacy.bounds import input_ball, with_one
from synthfair.privacy.moments import Cells, covariance_moments
from synthfair.privacy.noise import system_entropy
from synthfair.privacy.plan import Parts, Plan, budget, make_plan
from synthfair.privacy.queries import PrivateQueries

WITHOUT_CURVATURE = Parts(moments=0.2, curvature=1e-9, gradients=0.8)


class PrivateClient(NamedTuple):
    """The rows of one client, and its settings."""

    real: sf.Encoded
    schema: sf.Schema
    config: sf.DistillConfig

    def with_steps(self, count: int) -> PrivateClient:
        """With another number of noisy steps."""
        return self._replace(config=self.config.model_copy(update={"private_steps": count}))


def averaged(client: PrivateClient) -> np.ndarray:
    """Theta as synthfair finds it."""
    return measure(client.real, client.schema, client.config).theta


def plain_steps(client: PrivateClient) -> np.ndarray:
    """Proximal gradient steps of length 1 / L, L = bound^2 / 4, the penalty's part exact."""
    queries, plan = _asked(client, WITHOUT_CURVATURE)
    moments, n_rows = _moments(queries, plan)
    n = moments.shape[1]
    smoothness = with_one(input_ball(client.schema).radius) ** 2 / 4
    penalty = client.config.rho_o * moments.T @ moments / smoothness
    path, theta = [], np.zeros(n)
    for _ in range(client.config.private_steps):
        moved = theta - queries.gradient(theta) / n_rows / smoothness
        theta = np.linalg.solve(np.eye(n) + penalty, moved)
        path.append(theta)
    return np.mean(path[len(path) // 2 :], axis=0)


def perturbed_objective(client: PrivateClient) -> np.ndarray:
    """The minimiser of F + b'theta / N + a ridge, with b as noisy as one gradient."""
    client = client.with_steps(2)
    queries, plan = _asked(client, WITHOUT_CURVATURE)
    moments, n_rows = _moments(queries, plan)
    a, y = _inputs(client.real), client.real.y
    exact = -0.5 * a.T @ y  # the sum of gradients at 0, so that only noise is left of it
    noise = (queries.gradient(np.zeros(a.shape[1])) - exact) / 2**0.5
    ridge = (with_one(input_ball(client.schema).radius) ** 2 / 4) / (0.1 * budget(client.config)[0])

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margin, gaps = y * (a @ theta), moments @ theta
        value = np.logaddexp(0, -margin).sum() + noise @ theta + ridge / 2 * theta @ theta
        slope = -a.T @ (y / (1 + np.exp(margin))) + noise + ridge * theta
        rho = client.config.rho_o
        return value / n_rows + rho / 2 * gaps @ gaps, slope / n_rows + rho * gaps @ moments

    return minimize(objective, np.zeros(a.shape[1]), jac=True, method="BFGS").x


def _asked(client: PrivateClient, parts: Parts) -> tuple[PrivateQueries, Plan]:
    plan = make_plan(client.config, client.schema, parts=parts)
    return PrivateQueries(
        client.real, client.schema, plan, intercept=True, loss=logistic, source=system_entropy
    ), plan


def _moments(queries: PrivateQueries, plan: Plan) -> tuple[np.ndarray, float]:
    counts, inputs = queries.moments()
    cells = Cells(np.maximum(counts, 2 * plan.moments.mechanism.noise), inputs)
    return covariance_moments(cells, "statistical_parity"), cells.n_rows


def _inputs(real: sf.Encoded) -> np.ndarray:
    """[N, n] as the model sees them: features, group, and 1."""
    return np.column_stack([real.x, real.s, np.ones(len(real.y))])


METHODS: dict[str, Callable[[PrivateClient], np.ndarray]] = {
    "averaged": averaged,
    "averaged, 10 steps": lambda client: averaged(client.with_steps(10)),
    "averaged, 40 steps": lambda client: averaged(client.with_steps(40)),
    "plain steps, 20": plain_steps,
    "plain steps, 200": lambda client: plain_steps(client.with_steps(200)),
    "objective perturbation": perturbed_objective,
}


class SearchSetting(NamedTuple):
    """A private method."""

    task: str
    epsilon: float
    method: str


class SearchValues(NamedTuple):
    """On training rows: F above its minimum, and the change of SPD."""

    excess: float
    spd: float


@cache
def _client_and_best(task: str) -> tuple[PrivateClient, Any, np.ndarray]:
    """The first client, its F, and where that is least; without epsilon."""
    clients, config = federation(task, 0), sf.DistillConfig()
    client = PrivateClient(clients.train[0], clients.schema, config)
    best, _ = least_objective(client.real, config)
    return client, outer_objective(client.real, config), best


def run_search(setting: SearchSetting, _seed: int, *, smoke: bool) -> SearchValues:
    """Theta once; noise comes from the system."""
    del smoke
    client, objective, best = _client_and_best(setting.task)
    budgeted = {"epsilon": setting.epsilon, "delta": delta(federation(setting.task, 0))}
    theta = METHODS[setting.method](client._replace(config=sf.DistillConfig(**budgeted)))
    a, s = _inputs(client.real), client.real.s

    def both(theta: np.ndarray) -> np.ndarray:
        decided = a @ theta > 0
        spd = decided[s == 1].mean() - decided[s == 0].mean()
        return np.array([float(objective(jnp.asarray(theta))), spd])

    return SearchValues(*map(float, both(theta) - both(best)))


def show(runs: Sequence[Run[SearchSetting, SearchValues]]) -> dict[str, str]:
    """As Markdown."""
    rows = [
        (*setting, *(means(own, name).text(error=True) for name in SearchValues._fields))
        for setting, own in by(runs, lambda setting: setting).items()
    ]
    before = (
        "`python -m benchmarks.privacy choose`: training rows of one client, mean ± standard error."
    )
    header = "task | epsilon | method | F above its minimum | change of SPD"
    return {"choice.md": page("# Private methods at an equal budget", before, table(header, rows))}


CHOOSE = Experiment(
    name="choose",
    settings=tuple(SearchSetting(*one) for one in product(TASKS, (0.5, 1.0, 4.0), METHODS)),
    run=run_search,
    values=SearchValues,
    summary=show,
    smoke=tuple(SearchSetting("law_school_race", 1.0, method) for method in METHODS),
    seeds=20,
    file="choice.csv",
    default=False,
)
