"""Many inputs: time of an outer step with a Cholesky factor and with conjugate gradients.

    python -m benchmarks.scale.inputs --n 50 100 200 300 500 1000

Random features, 4 synthetic rows for each input (2,000 at least), 5,000 real rows, and a ridge of
lambda_theta / n^2 = 0.001: a thousand inputs and the default ridge let the synthetic rows be
separated, which takes L-BFGS many more iterations than it is given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

import synthfair as sf
from benchmarks import use_float64
from synthfair.distill import outer
from synthfair.distill.problem import Problem, make_problem

SIZES = (50, 100, 200, 300, 500, 1000)
METHODS = {
    "L-BFGS, Cholesky": ("lbfgs", "cholesky"),
    "L-BFGS, conjugate gradients": ("lbfgs", "conjugate_gradient"),
    "Newton, conjugate gradients": ("newton", "conjugate_gradient"),
}
STEPS = 20


class Stepped(NamedTuple):
    """One way to solve problems of one size.

    Attributes:
        n_inputs: n.
        method: its name.
        milliseconds: of a step: the mean of the second run of some.
        objective: P(x) after them.
        converged: whether the inner problem and its derivative met their tolerances, always.
        automatic: whether it is what is chosen where nothing is asked for.
    """

    n_inputs: int
    method: str
    milliseconds: float
    objective: float
    converged: bool
    automatic: bool


def step_inputs(n_inputs: int) -> Iterator[Stepped]:
    """All methods on one problem."""
    use_float64()
    for name, (inner_solver, linear_solver) in METHODS.items():
        config = sf.DistillConfig.model_validate(
            {
                "n_synthetic": max(2000, 4 * n_inputs),
                "lambda_theta": 1e-3 * n_inputs**2,
                "steps": STEPS,
                "inner_solver": inner_solver,
                "linear_solver": linear_solver,
            }
        )
        problem, x = _problem(n_inputs, config)
        run_once(problem, x, config)  # compiles
        seconds, objective, converged = run_once(problem, x, config)
        default = outer.method_of(sf.DistillConfig(), n_params=n_inputs)
        automatic = default == outer.method_of(config, n_params=n_inputs)
        per_step = 1e3 * seconds / (STEPS + 1)
        yield Stepped(n_inputs, name, per_step, objective, converged, automatic)


def _problem(n_inputs: int, config: sf.DistillConfig) -> tuple[Problem, jax.Array]:
    rng, n_rows, d = np.random.default_rng(0), 5000, n_inputs - 2
    x, s = rng.random((n_rows, d)), rng.integers(2, size=n_rows)
    z = (x - 0.5) @ rng.normal(size=d) * (10 / d) ** 0.5 + s - 0.5
    y = np.where(z + rng.logistic(size=n_rows) > 0, 1.0, -1.0)
    return make_problem(sf.Encoded(x, s, y), config, n_groups=2)


def run_once(problem: Problem, x: jax.Array, config: sf.DistillConfig) -> tuple[float, float, bool]:
    """Seconds, the last P(x), and whether all converged; of one chunk."""
    state, start = outer.init(problem, x, config), time.perf_counter()
    _, records = outer.advance(problem, state, config)
    seconds = time.perf_counter() - start
    return seconds, float(records.objective[-1]), bool(records.inner_converged.all())


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, nargs="+", default=SIZES, help="Inputs.")
    print(table(found for n in parser.parse_args().n for found in step_inputs(n)))


def table(lines: Iterator[Stepped]) -> str:
    """Markdown; the default method of a size is marked."""
    text = ["| inputs | method | ms a step | P(x) | converged |", "|---|---|---|---|---|"]
    text += [
        f"| {one.n_inputs} | {one.method}{' *' if one.automatic else ''} | {one.milliseconds:.2f}"
        f" | {one.objective:.8f} | {'yes' if one.converged else 'no'} |"
        for one in lines
    ]
    return "\n".join([*text, "", "\\* what is chosen where nothing is asked for."])


if __name__ == "__main__":
    main()
