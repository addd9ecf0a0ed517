"""Rows of two groups, and small models, for tests of methods in rounds."""

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.federated.networks import LogisticRegression, Perceptron
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import make_users
from synthfair.postprocess import RowWeights

NETWORK = Perceptron(3, (5, 4))


class Centred(LogisticRegression):
    """A model that breaks its contract: a row's score depends on the others of the batch."""

    def scores(self, params, a):
        return super().scores(params, a - a.mean(axis=0) / 2)


def make(n=60, seed=0, gap=1.0):
    """Rows whose label depends on the first input, which depends on the group."""
    rng = np.random.default_rng(seed)
    s = rng.integers(2, size=n)
    a = rng.normal(size=(n, 3))
    a[:, 0] += gap * s
    y = np.where(a[:, 0] + 0.3 * rng.normal(size=n) > gap / 2, 1.0, -1.0)
    return a, s, y


def rows_of(n=60, seed=0):
    a, s, y = make(n, seed)
    return UserRows(*map(jnp.asarray, (a, s[:, None], y, np.ones(n))))


def users_of(*sizes, gap=1.0):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return make_users(*make(len(owner), gap=gap), owner)


def weights_for(schema, by_pair=((1.0, 3.0), (2.0, 1.0), (1.0, 1.0))):
    """Weights of rows by group and label -1 or +1."""
    of_schema = {"schema_hash": schema.hash, "groups": schema.groups}
    return RowWeights(**of_schema, method="published", weights=by_pair[: len(schema.groups)])


def flat(tree):
    """All numbers of params."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
