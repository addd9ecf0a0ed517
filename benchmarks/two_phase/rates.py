"""Which learning rates of noisy plain steps, by accuracy on training rows.

    python -m benchmarks.two_phase.rates        # a minute or two; writes rates.md

Demographic parity, seed 0, the noise multiplier 2, kappa 0.3 without a step. The published rate of
phase 2 is 0.25. The private teacher is judged against the true labels, the student of published
teachers too.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from benchmarks.two_phase.__main__ import trained
from benchmarks.two_phase.choose import NOISE
from benchmarks.two_phase.problem import RESULTS, TABLES, Judged, Problem, make_problem
from synthfair.federated.two_phase import make_two_phase
from synthfair.files import write_text

RATES = (0.25, 1.0, 2.0, 4.0)


def teachers(problem: Problem) -> list[Judged]:
    """Private ones, at all rates."""
    found = []
    for rate in RATES:
        method = make_two_phase(
            problem.model,
            problem.parity,
            problem.users,
            end_to_end=True,
            noise=NOISE,
            teacher_rate=rate,
            kappa=0.3,
            kappa_rate=0.0,
        )
        found.append(problem.judge_train(np.asarray(method.teach(problem.users, seed=0).y)))
    return found


def students(problem: Problem) -> list[Judged]:
    """Of one set of published teachers, at all rates."""
    method = make_two_phase(
        problem.model, problem.parity, problem.users, noise=NOISE, kappa=0.3, kappa_rate=0.0
    )
    taught, found = method.teach(problem.users, seed=0), []
    for rate in RATES:
        student = replace(method.student, learning_rate=rate)
        params = trained(student, taught, seed=0)
        scores = problem.model.scores(params, jnp.asarray(problem.users.a))
        found.append(problem.judge_train(np.asarray(scores)))
    return found


def main() -> None:
    """Prints and writes a Markdown table."""
    lines = ["# Learning rates of noisy steps", "", "`python -m benchmarks.two_phase.rates`:"]
    lines[-1] += " accuracy / gap on training rows, statistical parity, noise multiplier 2."
    lines += ["", "| table | trained | " + " | ".join(f"{rate:g}" for rate in RATES) + " |"]
    lines.append("|---" * (2 + len(RATES)) + "|")
    for table in TABLES:
        problem = make_problem(table, "statistical_parity", seed=0)
        for name, made in (("private teacher", teachers), ("student", students)):
            cells = [f"{one.accuracy:.3f} / {one.gap:.3f}" for one in made(problem)]
            lines.append("| " + " | ".join([table, name, *cells]) + " |")
    write_text(RESULTS / "rates.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
