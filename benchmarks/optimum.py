"""How far a distillation ends above the optimum of F(theta)."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import cast

import jax
import numpy as np
from scipy.optimize import minimize

import synthfair as sf
from synthfair.compare import Federation, Fitted
from synthfair.distill.objective import Objective, PenalizedLoss
from synthfair.distill.problem import make_problem


def excess(federation: Federation, fitted: Fitted, config: sf.DistillConfig) -> float:
    """Outer objective over min F, minus 1; the largest of all clients; nan if nothing is distilled.

    The minimum is the lowest that SciPy's BFGS finds from two starts: zero, and the model of the
    real rows without penalty. Below 0 the search for it would have failed.
    """
    if not fitted.distillations:
        return np.nan
    found = []
    for real, distillation in zip(federation.train, fitted.distillations, strict=True):
        problem, _ = make_problem(real, config, n_groups=federation.n_groups)
        objective = cast(PenalizedLoss, problem.objective)
        zero = np.zeros(objective.rows.a.shape[1])
        plain, _ = lowest(dataclasses.replace(objective, rho_o=0.0), zero)
        best = min(lowest(objective, start)[1] for start in (zero, plain))
        found.append(float(distillation.history.objective[-1]) / best - 1)
    return max(found)


def lowest(objective: Objective, start: np.ndarray) -> tuple[np.ndarray, float]:
    """A local minimiser of F from a start, and F there."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        f, slope = _value_and_grad()(objective, theta)
        return float(f), np.asarray(slope)

    options = {"gtol": 1e-8, "maxiter": 2000}
    found = minimize(value, start, jac=True, method="BFGS", options=options)
    return found.x, float(found.fun)


@cache
def _value_and_grad():  # noqa: ANN202 - a compiled function
    return jax.jit(jax.value_and_grad(lambda objective, theta: objective(theta), argnums=1))
