"""Weighted rows of two or three groups, and the global problem's objective in NumPy."""

import jax.numpy as jnp
import numpy as np
from conftest import make_table

from synthfair.model import Rows

LAMBDA = 0.1


def weighted_rows(n_groups=2, n=90):
    """Labels depend on a feature and on the group; some rows weigh nothing, one group is small."""
    rng = np.random.default_rng(n_groups)
    s = rng.choice(n_groups, n, p=[0.5, 0.5] if n_groups == 2 else [0.45, 0.35, 0.2])
    x = rng.random((n, 2)) + 0.2 * s[:, None]
    y = np.where(x[:, 0] + 0.3 * s + 0.4 * rng.normal(size=n) > 0.8, 1.0, -1.0)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    a = np.column_stack([x, *(s == g for g in range(1, n_groups)), np.ones(n)])
    return Rows(*map(jnp.asarray, (a, s, y, weight)))


def covariance(z, rows):
    """Half the squares of the weighted covariances of membership and score."""
    s, groups = np.asarray(rows.s), range(int(max(rows.s)) + 1)
    gaps = [np.cov(s == g, z, aweights=rows.weight, bias=True)[0, 1] for g in groups]
    return 0.5 * np.sum(np.square(gaps[1:] if len(gaps) == 2 else gaps))


def selection_rates(z, rows, masks=((-1.0, 1.0),)):
    """Half the squares of the gaps in smooth rates at temperature 4, by the labels of each mask."""
    s, y, w = (np.asarray(part) for part in (rows.s, rows.y, rows.weight))
    selected, groups, total = 1 / (1 + np.exp(-4 * z)), range(int(s.max()) + 1), 0.0
    for labels in masks:
        among = np.isin(y, labels)
        gaps = [
            np.average(selected[among & (s == g)], weights=w[among & (s == g)])
            - np.average(selected[among & (s != g)], weights=w[among & (s != g)])
            for g in groups
        ]
        total += 0.5 * np.sum(np.square(gaps[1:] if len(gaps) == 2 else gaps))
    return total


def equalized_odds(z, rows):
    """Selection rates within each label."""
    return selection_rates(z, rows, masks=((1.0,), (-1.0,)))


def objective(theta, rows, unfairness, rho, lambda_theta=LAMBDA):
    """Weighted logistic loss + rho unfairness + lambda / (2 n^2) ||theta||^2."""
    z = np.asarray(rows.a) @ theta
    loss = np.average(np.logaddexp(0, -np.asarray(rows.y) * z), weights=rows.weight)
    return loss + rho * unfairness(z, rows) + lambda_theta / (2 * len(theta) ** 2) * theta @ theta


def unlike_tables(n=600, clients=3):
    """Each client has mostly one group and label: no two are alike."""
    table = make_table(n)
    town, paid = table["town"] == "b", table["paid"] == "yes"
    owner = (2 * town + paid) % clients
    mixed = np.random.default_rng(0).random(n) < 0.2
    owner = np.where(mixed, np.random.default_rng(1).integers(clients, size=n), owner)
    return {f"c{k}": table[owner == k] for k in range(clients)}
