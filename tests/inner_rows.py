"""Rows of an inner problem."""

import jax.numpy as jnp
import numpy as np

from synthfair.model import Rows


def some_rows(n=200, d=5, seed=0):
    rng = np.random.default_rng(seed)
    a, s = rng.normal(size=(n, d)), rng.integers(2, size=n)
    y = np.where(a @ rng.normal(size=d) + rng.logistic(size=n) > 0, 1.0, -1.0)
    return Rows(jnp.array(a), jnp.array(s), jnp.array(y))
