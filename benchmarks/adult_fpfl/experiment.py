"""One run: a row of the tables, trained with one seed."""

from __future__ import annotations

from dataclasses import replace

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
)
from benchmarks.harness import Experiment, fingerprint
from synthfair.data.datasets import SOURCES
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import UNPROTECTED, Protection, run
from synthfair.federated.networks import Network, Perceptron
from synthfair.privacy.sampled import SampledSums


def trained(
    row: AdultRow, settings: AdultSettings, seed: int, *, on_training_rows: bool = False
) -> AdultValues:
    """Trains on the training rows, and measures on the test rows, or on the same."""
    train, test = load()
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
    shown = train if on_training_rows else test
    scores = network.scores(algorithm.params(end.state), jnp.asarray(shown.x))
    return measured(scores, shown)


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
    return trained(row, settings, seed)


ADULT = Experiment(
    name="runs",
    settings=ROWS,
    run=run_row,
    summary=show,
    smoke=(AdultRow(200, "shallow", "FPFL"),),
    seeds=5,
    sources=lambda _: SOURCES["adult"],
    fingerprint=lambda row: fingerprint(SETTINGS[row]),
    float64=False,
)
