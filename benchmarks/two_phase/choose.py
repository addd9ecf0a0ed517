"""Settings that the paper has lost, chosen on training rows only: kappa, and learning rates.

kappa: teachers of seed 0 against the true labels. Chosen is the least gap among the settings that
keep at least four fifths of what no fairness (kappa = 0) gains in accuracy over the more frequent
label, so that a constant decision, which has no gap, cannot win; where none keeps it, the most
accurate. The private teacher has the noise multiplier 2 here.

rates: noisy plain steps under statistical parity, seed 0, noise multiplier 2, kappa 0.3 without a
step. The published rate of phase 2 is 0.25. The private teacher is held against the true labels,
the student of published teachers, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from benchmarks.harness import RESULTS, Experiment, Run, by, page, table
from benchmarks.two_phase.problem import (
    CLIENTS,
    TABLES,
    ParityProblem,
    make_parity_problem,
    train_everyone,
)
from synthfair.federated.parity import ParityNotion
from synthfair.federated.two_phase import TwoPhase, two_phase

NOISE = 2.0
KAPPAS = ((0.0, 0.0), (0.3, 0.0), (0.3, 0.1), (1.0, 0.0), (1.0, 0.1), (3.0, 0.0), (3.0, 0.1))
"""Starts and steps of kappa; the first is no fairness."""


class KappaSetting(NamedTuple):
    """A teacher."""

    table: str
    notion: ParityNotion
    end_to_end: bool
    kappa: float
    kappa_rate: float


class KappaValues(NamedTuple):
    """Of its decisions; and the share of the more frequent label."""

    accuracy: float
    gap: float
    majority: float


KappaRun = Run[KappaSetting, KappaValues]


@lru_cache(maxsize=1)
def _problem(name: str, notion: ParityNotion) -> ParityProblem:
    return make_parity_problem(name, notion, seed=0)


def run_kappa(setting: KappaSetting, _seed: int, *, smoke: bool) -> KappaValues:
    """Decisions of the teachers of one setting."""
    problem = _problem(setting.table, setting.notion)
    method = two_phase(
        problem.model, problem.parity, problem.users, end_to_end=setting.end_to_end,
        **({"teacher_epochs": 1} if smoke else {}),
    )  # fmt: skip
    own = replace(method.teacher, kappa=setting.kappa, kappa_rate=setting.kappa_rate)
    users = replace(method, teacher=own).with_noise(NOISE).teach(problem.users, seed=0)
    positive = float(np.mean(np.asarray(problem.users.y) > 0))
    found = problem.on_training_rows(np.asarray(users.y))
    return KappaValues(*found, max(positive, 1 - positive))


def best(runs: Sequence[KappaRun]) -> KappaRun:
    """Which of one task's settings is chosen; the first is no fairness."""
    free, *fair = runs
    majority = free.values.majority
    enough = majority + 0.8 * (free.values.accuracy - majority)
    accurate = [run for run in fair if run.values.accuracy >= enough]
    if accurate:
        return min(accurate, key=lambda run: run.values.gap)
    return max(fair, key=lambda run: run.values.accuracy)


@lru_cache
def chosen(name: str, notion: ParityNotion, *, end_to_end: bool) -> tuple[float, float]:
    """Start and step of kappa, from the committed runs."""
    runs = CHOOSE.current(CHOOSE.read(RESULTS / "two_phase"))
    setting = best(by(runs, lambda one: one[:3])[name, notion, end_to_end]).setting
    return setting.kappa, setting.kappa_rate


def show_kappas(runs: Sequence[KappaRun]) -> dict[str, str]:
    """What was chosen is bold."""
    rows = []
    for (name, notion, end_to_end), own in by(runs, lambda setting: setting[:3]).items():
        cells = [f"{run.values.accuracy:.3f} / {run.values.gap:.3f}" for run in own]
        if len(own) == len(KAPPAS):
            i = own.index(best(own))
            cells[i] = f"**{cells[i]}**"
        rows.append((name, notion, "private" if end_to_end else "published", *cells))
    before = (
        "`python -m benchmarks.two_phase choose`: teachers of seed 0 on training rows, accuracy /"
        " gap; bold is chosen."
    )
    header = " | ".join(["table | notion | teacher", *(f"{k:g}, {rate:g}" for k, rate in KAPPAS)])
    return {"choice.md": page("# Start and step of kappa", before, table(header, rows))}


class RateSetting(NamedTuple):
    """What is trained with noisy plain steps, and its learning rate."""

    table: str
    trained: str
    rate: float


class RateValues(NamedTuple):
    """On training rows."""

    accuracy: float
    gap: float


@lru_cache(maxsize=1)
def _published_teachers(name: str) -> tuple[TwoPhase, object]:
    problem = _problem(name, "statistical_parity")
    method = two_phase(
        problem.model, problem.parity, problem.users, noise=NOISE, kappa=0.3, kappa_rate=0.0
    )
    return method, method.teach(problem.users, seed=0)


def run_rate(setting: RateSetting, _seed: int, *, smoke: bool) -> RateValues:
    """A private teacher, or the student of published teachers."""
    problem = _problem(setting.table, "statistical_parity")
    if setting.trained == "private teacher":
        method = two_phase(
            problem.model, problem.parity, problem.users, end_to_end=True, noise=NOISE,
            teacher_rate=setting.rate, kappa=0.3, kappa_rate=0.0,
            **({"teacher_epochs": 1} if smoke else {}),
        )  # fmt: skip
        decisions = method.teach(problem.users, seed=0).y
    else:
        method, users = _published_teachers(setting.table)
        student = replace(method.student, learning_rate=setting.rate)
        params = train_everyone(student, users, seed=0)
        decisions = problem.model.scores(params, jnp.asarray(problem.users.a))
    return RateValues(*problem.on_training_rows(np.asarray(decisions)))


def show_rates(runs: Sequence[Run[RateSetting, RateValues]]) -> dict[str, str]:
    """A column for each rate."""
    rates = [*by(runs, lambda setting: setting.rate)]
    rows = [
        (*key, *(f"{run.values.accuracy:.3f} / {run.values.gap:.3f}" for run in own))
        for key, own in by(runs, lambda setting: setting[:2]).items()
    ]
    before = (
        "`python -m benchmarks.two_phase rates`: accuracy / gap on training rows, statistical"
        " parity, noise multiplier 2."
    )
    header = " | ".join(["table | trained", *(f"{rate:g}" for rate in rates)])
    return {"rates.md": page("# Learning rates of noisy steps", before, table(header, rows))}


CHOOSE = Experiment(
    name="choose",
    settings=tuple(
        KappaSetting(name, notion, end_to_end, *kappa)
        for name, notion, end_to_end, kappa in product(
            TABLES, sorted(CLIENTS), (False, True), KAPPAS
        )
    ),
    run=run_kappa,
    values=KappaValues,
    summary=show_kappas,
    smoke=(KappaSetting("bank", "statistical_parity", False, 0.3, 0.0),),
    file="choice.csv",
    float64=False,
    default=False,
)

RATES = Experiment(
    name="rates",
    settings=tuple(
        RateSetting(*one)
        for one in product(TABLES, ("private teacher", "student"), (0.25, 1.0, 2.0, 4.0))
    ),
    run=run_rate,
    values=RateValues,
    summary=show_rates,
    smoke=(RateSetting("bank", "private teacher", 2.0),),
    file="rates.csv",
    float64=False,
    default=False,
)
