"""The start and step of kappa, which the paper has lost, chosen on training rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Experiment, Run, fingerprint
from benchmarks.showing import by, means, n_seeds, page, table
from benchmarks.two_phase.problem import (
    CLIENTS,
    HIDDEN,
    TABLES,
    ParityProblem,
    accuracy_and_gap,
    make_parity_problem,
)
from synthfair.data.datasets import SOURCES
from synthfair.federated.parity import ParityNotion
from synthfair.federated.two_phase import TwoPhaseSettings, make_two_phase

FIRST_SEED = 100
"""None of the table's."""

NOISE = 2.0
"""Of the private teachers."""

WORTH = 0.8
"""Share of what training gains over the more frequent label that a fair teacher keeps at least."""

KAPPAS = ((0.0, 0.0), (0.3, 0.0), (0.3, 0.1), (1.0, 0.0), (1.0, 0.1), (3.0, 0.0), (3.0, 0.1))
"""Starts and steps; the first is no fairness."""


class Task(NamedTuple):
    """For what a kappa is chosen."""

    table: str
    notion: ParityNotion
    end_to_end: bool


class Candidate(NamedTuple):
    """Teachers of a task."""

    table: str
    notion: ParityNotion
    end_to_end: bool
    kappa: float
    kappa_rate: float

    @property
    def task(self) -> Task:
        """Whose kappa this would be."""
        return Task(*self[:3])


class TeacherValues(NamedTuple):
    """Of the teachers' decisions; and the share of the more frequent label."""

    accuracy: float
    gap: float
    constant: float


@lru_cache(maxsize=1)
def _problem(name: str, notion: ParityNotion, seed: int) -> ParityProblem:
    return make_parity_problem(name, notion, seed, HIDDEN)


def run_candidate(setting: Candidate, seed: int, *, smoke: bool) -> TeacherValues:
    """All clients' teachers, each on its own training rows."""
    seed += FIRST_SEED
    problem = _problem(setting.table, setting.notion, seed)
    settings = TwoPhaseSettings(
        end_to_end=setting.end_to_end, teacher_epochs=1.0 if smoke else 10.0, clip=1.5,
        kappa=setting.kappa, kappa_rate=setting.kappa_rate,
    )  # fmt: skip
    method = make_two_phase(problem.model, problem.parity, problem.users, settings, noise=NOISE)
    decided = method.teach(problem.users, seed).y
    y, s = np.asarray(problem.users.y), np.asarray(problem.users.s).reshape(-1)
    positive = float(np.mean(y > 0))
    found = accuracy_and_gap(problem.notion, np.asarray(decided), y, s)
    return TeacherValues(*found, max(positive, 1 - positive))


CandidateRuns = Sequence[Run[Candidate, TeacherValues]]


def chosen(runs: CandidateRuns) -> dict[Task, tuple[float, float]]:
    """Of each task the least mean gap among those that are worth it, or else the most accurate."""
    found = {}
    for task, own in by(runs, lambda setting: setting.task).items():
        of_kappa = by(own, lambda setting: (setting.kappa, setting.kappa_rate))
        accuracy, gap, constant = (
            {kappa: means(some, name).mean for kappa, some in of_kappa.items()}
            for name in TeacherValues._fields
        )
        free, fair = KAPPAS[0], KAPPAS[1:]
        enough = constant[free] + WORTH * (accuracy[free] - constant[free])
        worth = [kappa for kappa in fair if accuracy[kappa] >= enough]
        found[task] = (
            min(worth, key=gap.__getitem__) if worth else max(fair, key=accuracy.__getitem__)
        )
    return found


def show(runs: CandidateRuns) -> dict[str, str]:
    """A row a task; what was chosen is bold."""
    best, rows = chosen(runs), []
    for task, own in by(runs, lambda setting: setting.task).items():
        cells = []
        for kappa, some in by(own, lambda setting: (setting.kappa, setting.kappa_rate)).items():
            text = f"{means(some, 'accuracy').mean:.3f} / {means(some, 'gap').mean:.3f}"
            cells.append(f"**{text}**" if best[task] == kappa else text)
        teacher = "private" if task.end_to_end else "published"
        constant = f"{means(own, 'constant').mean:.3f}"
        rows.append((task.table, task.notion, teacher, constant, *cells))
    before = (
        f"`python -m benchmarks.two_phase choices`: teachers on their training rows, mean accuracy"
        f" / gap over {n_seeds(runs)} seeds, none of them the table's, over start and step of"
        f" kappa; private teachers with the noise {NOISE:g}. Bold is chosen: the least gap among"
        " the settings that keep at least four fifths of what no fairness (0, 0) gains over"
        " the constant classifier in accuracy; where none does, the most accurate."
    )
    steps = (f"{start:g}, {step:g}" for start, step in KAPPAS)
    header = " | ".join(["table | notion | teacher | constant", *steps])
    return {"choices.md": page("# Start and step of kappa", before, table(header, rows))}


CHOICES = Experiment(
    name="choices",
    settings=tuple(
        Candidate(name, notion, end_to_end, *kappa)
        for name, notion, end_to_end, kappa in product(
            sorted(TABLES), sorted(CLIENTS), (False, True), KAPPAS
        )
    ),
    run=run_candidate,
    summary=show,
    smoke=(),
    seeds=3,
    sources=lambda setting: SOURCES[setting.table],
    fingerprint=lambda _: fingerprint(HIDDEN, FIRST_SEED, NOISE),
    float64=False,
    default=False,
)
