"""Clients drawn at random, of whom gaps are measured."""

import numpy as np

from synthfair.measure.aggregate import ReportSums
from synthfair.measure.collection import make_collection
from synthfair.measure.estimate import estimate_gaps


def draw_clients(shares, means, clients, rng):
    """Groups and values, -1 or 1, which have the largest variance for given means."""
    group = rng.choice(len(shares), clients, p=shares)
    value = np.where(2 * rng.random(clients) < 1 + np.asarray(means)[group], 1.0, -1.0)
    return group, value


def estimated(tally, mechanism, **options):
    """What reports show of groups "a", "b", ..., with values in units of v."""
    names = tuple("abcdefgh"[: mechanism.groups])
    public = make_collection(names, mechanism, lower=-1.0, upper=1.0)
    return estimate_gaps(ReportSums(tally), public, **options)
