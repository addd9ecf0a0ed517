"""Clients drawn at random, of whom gaps are measured."""

import numpy as np


def draw_clients(shares, means, clients, rng):
    """Groups and values, -1 or 1, which have the largest variance for given means."""
    group = rng.choice(len(shares), clients, p=shares)
    value = np.where(2 * rng.random(clients) < 1 + np.asarray(means)[group], 1.0, -1.0)
    return group, value
