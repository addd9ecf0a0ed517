"""How far a distillation ends above the optimum of F(theta)."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
from scipy.optimize import minimize

import synthfair as sf
from synthfair.compare import Federation, Fitted
from synthfair.distill.inner import train
from synthfair.distill.objective import Objective
from synthfair.distill.problem import make_problem, make_rows


def excess(federation: Federation, fitted: Fitted, config: sf.DistillConfig) -> float:
    """Outer objective over min F, minus 1; the largest of all clients; nan if nothing is distilled.

    The minimum is the lowest that SciPy's BFGS finds from three starts: zero, the model trained
    on the real rows without penalty, and the one that the synthetic rows train.
    """
    if not fitted.distillations:
        return np.nan
    found = []
    for real, distillation in zip(federation.train, fitted.distillations, strict=True):
        problem, _ = make_problem(real, config, n_groups=federation.n_groups)
        rows = problem.rows(jax.numpy.asarray(distillation.release.x))
        real_rows = make_rows(real, n_groups=federation.n_groups, intercept=config.intercept)
        plain = train(real_rows, config.lambda_theta, model=problem.model).params
        reached = train(rows, config.lambda_theta, model=problem.model).params
        starts = [np.zeros_like(plain), np.asarray(plain), np.asarray(reached)]
        best = min(lowest(problem.objective, start) for start in starts)
        found.append(float(distillation.history.objective[-1]) / best - 1)
    return max(found)


def lowest(objective: Objective, start: np.ndarray) -> float:
    """A local minimum of F from a start."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        f, slope = _value_and_grad()(objective, theta)
        return float(f), np.asarray(slope)

    options = {"gtol": 1e-8, "maxiter": 2000}
    return float(minimize(value, start, jac=True, method="BFGS", options=options).fun)


@cache
def _value_and_grad():  # noqa: ANN202 - a compiled function
    return jax.jit(jax.value_and_grad(lambda objective, theta: objective(theta), argnums=1))
