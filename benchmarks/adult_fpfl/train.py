"""One run: a row of the tables, trained with one seed and measured."""

from __future__ import annotations

import jax.numpy as jnp

from benchmarks.adult_fpfl.problem import Measured, load, measured, users_of
from benchmarks.adult_fpfl.settings import DELTA, EPSILON, HIDDEN, Row, Setting
from synthfair.data.encode import Encoded
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import UNPROTECTED, Protection, run
from synthfair.federated.networks import Network, Perceptron
from synthfair.privacy.sampled import SampledSums, Sampling


def trained(row: Row, setting: Setting, seed: int, *, judged_on: Encoded) -> Measured:
    """Trains on the training rows; what is measured is on rows of choice."""
    train = load().train
    network = Network(Perceptron(train.x.shape[1], HIDDEN[row.model]))
    users = users_of(train, central=row.central, seed=seed)
    algorithm = setting.algorithm(network, fair=row.fair)
    cohorts = Cohorts(len(users), row.cohort, "fixed" if row.central else "poisson")
    end = run(
        algorithm,
        users,
        cohorts,
        rounds=setting.rounds,
        seed=seed,
        protection=protection(row, setting, len(users)),
    )
    scores = network.scores(algorithm.params(end.state), jnp.asarray(judged_on.x))
    return measured(scores, judged_on)


def protection(row: Row, setting: Setting, population: int) -> Protection:
    """Add or remove one user: its report, at most C, is how much the sum changes."""
    if setting.clip is None:
        return UNPROTECTED
    noise = relative_noise(row, setting, population, "poisson") if row.private else 0.0
    return Protection(setting.clip, setting.clip * noise)


def relative_noise(row: Row, setting: Setting, population: int, sampling: Sampling) -> float:
    """Standard deviation in units of the sensitivity, for a round number of users.

    Seeds deal out a few users more or less; noise for 100 users less than there are, rounded down
    to hundreds, is enough for all of them and is searched for once.
    """
    fewer = population // 100 * 100
    sums = SampledSums(fewer, row.cohort, setting.rounds, sampling)
    return sums.noise(EPSILON, DELTA)
