"""Which private method finds theta best at an equal budget, on training rows only.

    python -m benchmarks.privacy.choose

Mean excess of F over its minimum on the first client's training rows, and mean change of their SPD,
each theta found with the whole budget. Compared are:

- averaged: what synthfair does;
- other numbers of steps, and shares of the budget, of the same;
- plain steps: without the second moment, whose budget goes to the gradients; steps of the length
  that the public bound on a row allows, averaged over the last half;
- objective perturbation (Kifer, Smith and Thakurta 2012): the loss with a random linear term, to be
  minimised exactly. Its noise here is that of one Gaussian mechanism, which is less than its
  theorems ask for, and its extra ridge is what they need to spend a tenth of epsilon on curvature:
  so this is better than it could be.

All use the same noisy moments for the penalty, which is the covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from benchmarks import use_float64
from benchmarks.privacy.__main__ import RESULTS, TASKS, federation
from synthfair.client.private import measure
from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.inner import train
from synthfair.distill.objective import PenalizedLoss
from synthfair.distill.problem import make_penalty, make_rows
from synthfair.files import write_text
from synthfair.model import LinearModel, Rows, logistic
from synthfair.privacy.fit import Cells, covariance_moments
from synthfair.privacy.mechanism import SumName, input_ball
from synthfair.privacy.noise import system_entropy
from synthfair.privacy.queries import PrivateQueries
from synthfair.privacy.statement import Guarantee, make_guarantee

REPEATS = 20
WITHOUT_CURVATURE: dict[SumName, float] = {"moments": 0.2, "curvature": 1e-9, "gradients": 0.8}


class Client(NamedTuple):
    """The rows of one client and how they are judged."""

    real: Encoded
    schema: Schema
    config: DistillConfig


Method = Callable[[Client], np.ndarray]


def averaged(client: Client) -> np.ndarray:
    """Theta as synthfair finds it."""
    return measure(client.real, client.schema, client.config).theta


def steps(count: int) -> Method:
    """The same with another number of steps."""

    def method(client: Client) -> np.ndarray:
        config = client.config.model_copy(update={"private_steps": count})
        return measure(client.real, client.schema, config).theta

    return method


def plain_steps(client: Client) -> np.ndarray:
    """Proximal gradient steps of length 1 / L, L = bound^2 / 4, the penalty's part exact."""
    queries, guarantee = _asked(client, WITHOUT_CURVATURE)
    moments, n_rows = _moments(queries, guarantee)
    n = moments.shape[1]
    smoothness = input_ball(client.schema).norm_with_one ** 2 / 4
    penalty = client.config.rho_o * moments.T @ moments / smoothness
    path, theta = [], np.zeros(n)
    for _ in range(client.config.private_steps):
        moved = theta - queries.gradient(theta) / n_rows / smoothness
        theta = np.linalg.solve(np.eye(n) + penalty, moved)
        path.append(theta)
    return np.mean(path[len(path) // 2 :], axis=0)


def perturbed_objective(client: Client) -> np.ndarray:
    """The minimiser of F + b'theta / N + a ridge, with b as noisy as one gradient."""
    config = client.config.model_copy(update={"private_steps": 2})
    queries, guarantee = _asked(client._replace(config=config), WITHOUT_CURVATURE)
    moments, n_rows = _moments(queries, guarantee)
    rows = make_rows(client.real, n_groups=len(client.schema.groups), intercept=True)
    a, y = np.asarray(rows.a), np.asarray(rows.y)
    exact = -0.5 * a.T @ y  # the sum of gradients at 0, so that what is left of it is noise
    noise = (queries.gradient(np.zeros(a.shape[1])) - exact) / 2**0.5
    ridge = (input_ball(client.schema).norm_with_one ** 2 / 4) / (0.1 * guarantee.epsilon)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margin, gaps = y * (a @ theta), moments @ theta
        value = np.logaddexp(0, -margin).sum() + noise @ theta + ridge / 2 * theta @ theta
        slope = -a.T @ (y / (1 + np.exp(margin))) + noise + ridge * theta
        rho = client.config.rho_o
        return value / n_rows + rho / 2 * gaps @ gaps, slope / n_rows + rho * gaps @ moments

    return minimize(objective, np.zeros(a.shape[1]), jac=True, method="BFGS").x


def _asked(client: Client, shares: dict[SumName, float]) -> tuple[PrivateQueries, Guarantee]:
    guarantee = make_guarantee(client.config, client.schema, shares=shares)
    return PrivateQueries(
        client.real, client.schema, guarantee, intercept=True, loss=logistic, source=system_entropy
    ), guarantee


def _moments(queries: PrivateQueries, guarantee: Guarantee) -> tuple[np.ndarray, float]:
    counts, inputs = queries.moments()
    cells = Cells(np.maximum(counts, 2 * guarantee.mechanism("moments").noise), inputs)
    return covariance_moments(cells, "statistical_parity"), cells.n_rows


METHODS: dict[str, Method] = {
    "averaged": averaged,
    "averaged, 10 steps": steps(10),
    "averaged, 40 steps": steps(40),
    "plain steps, 20": plain_steps,
    "plain steps, 200": lambda client: plain_steps(
        client._replace(config=client.config.model_copy(update={"private_steps": 200}))
    ),
    "objective perturbation": perturbed_objective,
}


class Judge(NamedTuple):
    """F and SPD on training rows, and what the minimiser of F has of both."""

    objective: PenalizedLoss
    rows: Rows
    best: tuple[float, float]

    def __call__(self, theta: np.ndarray) -> tuple[float, float]:
        """F, and SPD."""
        decided = np.asarray(self.rows.a) @ theta > 0
        s = np.asarray(self.rows.s)
        spd = decided[s == 1].mean() - decided[s == 0].mean()
        return float(self.objective(jnp.asarray(theta))), float(spd)


def judge_of(client: Client) -> Judge:
    """For one client."""
    n_groups = len(client.schema.groups)
    rows = make_rows(client.real, n_groups=n_groups, intercept=True)
    penalty = make_penalty(client.config, n_groups=n_groups)
    rho, model = client.config.rho_o, LinearModel()
    objective = PenalizedLoss(rows.a.T, rows.s, rows.y, rho, model, penalty)
    best = train(rows, client.config.lambda_theta, model=model, penalty=penalty, rho=rho).params
    unset = Judge(objective, rows, (0.0, 0.0))
    return unset._replace(best=unset(np.asarray(best)))


def line(task: str, epsilon: float, name: str, client: Client) -> str:
    """One method, repeated."""
    judge = judge_of(client)
    found = np.array([judge(METHODS[name](client)) for _ in range(REPEATS)]) - judge.best
    mean, error = found.mean(axis=0), found.std(axis=0) / REPEATS**0.5
    excess, spd = (f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True))
    return f"| {task} | {epsilon:g} | {name} | {excess} | {spd} |"


def main() -> None:
    """Prints and writes a Markdown table."""
    use_float64()
    lines = [
        "# Private methods at an equal budget",
        "",
        f"`python -m benchmarks.privacy.choose`: training rows of one client, {REPEATS} repeats.",
        "",
        "| task | epsilon | method | F above its minimum | change of SPD |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        clients = federation(TASKS[task], seed=0)
        for epsilon in (0.5, 1.0, 4.0):
            delta = len(clients.train[0].y) ** -1.1
            config = DistillConfig(epsilon=epsilon, delta=delta)
            client = Client(clients.train[0], clients.schema, config)
            lines += [line(task, epsilon, name, client) for name in METHODS]
    text = "\n".join(lines) + "\n"
    write_text(RESULTS / "choice.md", text)
    print(text)


if __name__ == "__main__":
    main()
