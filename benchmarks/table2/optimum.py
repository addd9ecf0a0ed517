"""How far a distillation ends above the optimum of F(theta)."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize

import synthfair as sf
from benchmarks.distilling import prepare
from synthfair.compare import Federation, Fitted


def largest_excess(federation: Federation, fitted: Fitted, config: sf.DistillConfig) -> float:
    """Outer objective over min F, minus 1, of the client where it is largest."""
    pairs = zip(federation.train, fitted.distillations, strict=True)
    return max(
        float(distillation.reached.objective) / least_objective(real, config)[1] - 1
        for real, distillation in pairs
    )


def least_objective(real: sf.Encoded, config: sf.DistillConfig) -> tuple[np.ndarray, float]:
    """The minimiser of F and min F: the lowest that SciPy's BFGS finds from two starts.

    From zero, and from the model of the real rows without penalty.
    """
    zero = np.zeros(real.x.shape[1] + 1 + config.intercept)
    free = prepare(real, config.model_copy(update={"rho_o": 0.0})).objective
    objective = prepare(real, config).objective
    found = [_lowest(objective, start) for start in (zero, _lowest(free, zero)[0])]
    return min(found, key=lambda one: one[1])


def _lowest(objective: Any, start: np.ndarray) -> tuple[np.ndarray, float]:
    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        f, slope = _value_and_grad()(objective, theta)
        return float(f), np.asarray(slope)

    options = {"gtol": 1e-8, "maxiter": 2000}
    found = minimize(value, start, jac=True, method="BFGS", options=options)
    return found.x, float(found.fun)


@cache
def _value_and_grad():  # noqa: ANN202 - a compiled function
    return jax.jit(jax.value_and_grad(lambda objective, theta: objective(theta), argnums=1))
