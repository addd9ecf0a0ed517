"""One row of table 3: trained on writers, measured on their test images."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.femnist_fpfl.data import GROUPS, SOURCE, Digits, unfair_digits
from benchmarks.femnist_fpfl.network import build
from benchmarks.femnist_fpfl.pages import show
from benchmarks.femnist_fpfl.settings import (
    CLIP,
    EPSILON,
    NEVER_CLIPS,
    PUBLISHED_COHORT,
    PUBLISHED_IMAGES,
    ROWS,
    SETTINGS,
    TIMES,
    DigitRow,
    DigitSettings,
    DigitValues,
)
from benchmarks.harness import Experiment, fingerprint
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import Protection, run
from synthfair.federated.networks import Network
from synthfair.federated.users import Users, make_users
from synthfair.model import Params
from synthfair.privacy.sampled import SampledSums

AT_ONCE = 500
"""Images that are scored together."""


@cache
def load(seed: int) -> Digits:
    """The images with colours from -1 to 1, which is a public scaling."""
    digits = unfair_digits(seed)
    return digits._replace(images=2 * digits.images - 1)


def run_row(row: DigitRow, seed: int, *, smoke: bool) -> DigitValues:
    """One run."""
    return trained(row, SETTINGS._replace(rounds=2) if smoke else SETTINGS, seed)


def trained(row: DigitRow, settings: DigitSettings, seed: int) -> DigitValues:
    """On the training images, and measured on those for testing."""
    digits, network, settings = load(seed), Network(build), settings.of(row)
    users = writers_of(digits, settings.images, seed)
    algorithm = settings.algorithm(network, fair=row.fair)
    end = run(
        algorithm,
        users,
        Cohorts(len(users), settings.cohort, "poisson"),
        rounds=settings.rounds,
        seed=seed,
        protection=protection(row, settings, len(users)),
    )
    return measured(network, algorithm.params(end.state), digits)


def writers_of(digits: Digits, most: int, seed: int) -> Users:
    """The training images of each writer, so many at random."""
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(~digits.is_test))
    writer = digits.writers[shuffled]
    chosen = np.concatenate([shuffled[writer == one][:most] for one in np.unique(writer)])
    return make_users(
        digits.images[chosen], digits.groups[chosen], digits.labels[chosen], digits.writers[chosen]
    )


def protection(row: DigitRow, settings: DigitSettings, writers: int) -> Protection:
    """Clip in proportion to a writer's images; the noise of a larger population to its cohort.

    A larger population has the paper's cohorts, and with them a larger sum: the noise is scaled
    down with the cohort, so that it weighs as much here as it would there.
    """
    if not row.clipped:
        return Protection(NEVER_CLIPS)
    clip = CLIP[row.fair] * settings.images / PUBLISHED_IMAGES
    if not row.private:
        return Protection(clip)
    cohort = settings.cohort if row.population == "K" else PUBLISHED_COHORT
    noise = relative_noise(row, cohort, settings.rounds, writers)
    return Protection(clip, clip * noise * settings.cohort / cohort)


def relative_noise(row: DigitRow, cohort: int, rounds: int, writers: int) -> float:
    """In units of the clip: delta is one over the population, one writer more or less."""
    population = writers * TIMES[row.population]
    return SampledSums(population, cohort, rounds, "poisson").noise(EPSILON, 1 / population)


def measured(network: Network, params: Params, digits: Digits) -> DigitValues:
    """On the test images."""
    test = np.flatnonzero(digits.is_test)
    scores = jax.jit(network.scores)
    parts = np.array_split(test, -(-len(test) // AT_ONCE))
    chosen = np.concatenate(
        [np.argmax(scores(params, jnp.asarray(digits.images[part])), axis=1) for part in parts]
    )
    right, groups = chosen == digits.labels[test], digits.groups[test]
    each = [np.mean(right[groups == group]) for group in range(len(GROUPS))]
    accuracy = float(np.mean(right))
    return DigitValues(accuracy, float(np.max(np.abs(np.array(each) - accuracy))))


FEMNIST = Experiment(
    name="runs",
    settings=ROWS,
    run=run_row,
    summary=show,
    smoke=(DigitRow("FPFL", "1000K"),),
    seeds=5,
    sources=lambda _: (SOURCE,),
    fingerprint=lambda row: fingerprint(SETTINGS.of(row)),
    float64=False,
)
