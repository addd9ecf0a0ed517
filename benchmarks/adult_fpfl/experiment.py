"""One run: a row of the tables, trained with one seed; and settings compared with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from benchmarks.adult_fpfl.pages import show
from benchmarks.adult_fpfl.problem import AdultValues, load, measured, users_of
from benchmarks.adult_fpfl.settings import (
    DELTA,
    EPSILON,
    HIDDEN,
    ROWS,
    SETTINGS,
    AdultRow,
    AdultSettings,
    Algorithm,
)
from benchmarks.harness import Experiment, Run, page, spelled, table
from synthfair.data.encode import Encoded
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import run
from synthfair.federated.networks import Network, Perceptron
from synthfair.federated.private_sum import UNPROTECTED, Protection
from synthfair.privacy.sampled import SampledSums


def trained(
    row: AdultRow, settings: AdultSettings, seed: int, *, evaluated_on: Encoded
) -> AdultValues:
    """Trains on the training rows, and measures on rows of choice."""
    train = load().train
    network = Network(Perceptron(train.x.shape[1], HIDDEN[row.model]))
    users = users_of(train, central=row.central, seed=seed)
    algorithm = settings.algorithm(network, fair=row.fair)
    end = run(
        algorithm,
        users,
        Cohorts(len(users), row.cohort, "fixed" if row.central else "poisson"),
        rounds=settings.rounds,
        seed=seed,
        protection=protection(row, settings, len(users)),
    )
    scores = network.scores(algorithm.params(end.state), jnp.asarray(evaluated_on.x))
    return measured(scores, evaluated_on)


def protection(row: AdultRow, settings: AdultSettings, population: int) -> Protection:
    """Add or remove one user: its report, at most C, is how much the sum changes.

    Seeds give a few users more or less; noise for fewer users than there are, rounded down to
    hundreds, is enough for all of them and is searched for once.
    """
    if settings.clip is None:
        return UNPROTECTED
    if not row.private:
        return Protection(settings.clip)
    sums = SampledSums(population // 100 * 100, row.cohort, settings.rounds, "poisson")
    return Protection(settings.clip, settings.clip * sums.noise(EPSILON, DELTA))


def run_row(row: AdultRow, seed: int, *, smoke: bool) -> AdultValues:
    """On test rows."""
    settings = replace(SETTINGS[row], rounds=2) if smoke else SETTINGS[row]
    return trained(row, settings, seed, evaluated_on=load().test)


ADULT = Experiment(
    name="adult_fpfl",
    settings=ROWS,
    run=run_row,
    values=AdultValues,
    summary=show,
    smoke=tuple(AdultRow(200, "shallow", name) for name in ("FL", "FPFL")),
    seeds=5,
    fingerprint=lambda row: spelled(asdict(SETTINGS[row])),
    float64=False,
)


class ChangedSetting(NamedTuple):
    """A row of the shallow network with one thing changed."""

    cohort: int
    algorithm: Algorithm
    changed: str


CHANGES: dict[str, dict[str, Any]] = {
    "in use": {},
    "alpha = 0.02": {"alpha": 0.02},
    "rate_scale = 1": {"rate_scale": 1.0},
    "rate_scale = 2": {"rate_scale": 2.0},
    "rate_scale = 3": {"rate_scale": 3.0},
    "rate_scale = 4": {"rate_scale": 4.0},
    "memory = 0.95": {"memory": 0.95},
    "learning_rate = 0.1": {"learning_rate": 0.1},
    "multiplier_rate = 0.01": {"multiplier_rate": 0.01},
    "multiplier_rate = 0.05": {"multiplier_rate": 0.05},
    "rounds = 250, learning_rate = 0.6": {"rounds": 250, "learning_rate": 0.6},
    "rounds = 250, learning_rate = 0.8, memory = 0.97": {
        "rounds": 250,
        "learning_rate": 0.8,
        "memory": 0.97,
    },
}

COMPARED: dict[tuple[int, Algorithm], tuple[int, ...]] = {
    (200, "FPFL"): (0, 1, 2, 3, 5, 6, 7, 9, 11),
    (200, "FFL+Clip"): (0, 1, 2, 4, 8),
    (1000, "FPFL"): (0, 1, 10),
}
"""Which of the changes, by their places."""

SEED = 100
"""None of the tables'."""


def run_changed(setting: ChangedSetting, _seed: int, *, smoke: bool) -> AdultValues:
    """On the training rows, whose labels the training has seen."""
    row = AdultRow(setting.cohort, "shallow", setting.algorithm)
    settings = replace(SETTINGS[row], **CHANGES[setting.changed])
    settings = replace(settings, rounds=2) if smoke else settings
    return trained(row, settings, SEED, evaluated_on=load().train)


def show_changed(runs: Sequence[Run[ChangedSetting, AdultValues]]) -> dict[str, str]:
    """As Markdown."""
    rows = [
        (*run.setting, f"{run.values.accuracy:.4f}", f"{run.values.fnr_gap:.4f}") for run in runs
    ]
    before = f"`python -m benchmarks.adult_fpfl choose`: seed {SEED}, shallow network."
    header = "cohort | algorithm | changed | accuracy | FNR gap"
    return {"choice.md": page("# Settings, on training rows", before, table(header, rows))}


CHOOSE = Experiment(
    name="choose",
    settings=tuple(
        ChangedSetting(*key, [*CHANGES][i]) for key, places in COMPARED.items() for i in places
    ),
    run=run_changed,
    values=AdultValues,
    summary=show_changed,
    smoke=(ChangedSetting(200, "FFL+Clip", "rate_scale = 1"),),
    file="choice.csv",
    float64=False,
    default=False,
)
