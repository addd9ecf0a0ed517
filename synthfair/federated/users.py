"""The population of a federation: users, each with as many or as few rows as they have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.errors import InputError


class UserRows(NamedTuple):
    """Rows of one user, or of several, filled up to one length.

    Attributes:
        a: [..., R, ...] model inputs.
        s: [..., R, A] group index in each of A attributes.
        y: [..., R] label: -1.0 or +1.0, or the index of one of several classes.
        weight: [..., R] 1 for a row that is there, 0 for one that only fills up.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    weight: jax.Array

    def merged(self) -> UserRows:
        """The rows of all users [m, R, ...] as those of one [m R, ...]."""
        return UserRows(*(part.reshape(-1, *part.shape[2:]) for part in self))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("a", "s", "y", "first", "size"),
    meta_fields=("largest",),
)
@dataclass(frozen=True)
class Users:
    """K users with N rows in all, one user's after the other's.

    Only the cohort of a round is filled up to one length, so that one user with many rows does
    not multiply the memory of all.

    Attributes:
        a: [N, ...] model inputs.
        s: [N, A] group index in each of A attributes.
        y: [N] label.
        first: [K] position of a user's first row.
        size: [K] number of a user's rows.
        largest: of these numbers.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    first: jax.Array
    size: jax.Array
    largest: int

    def __len__(self) -> int:
        """K."""
        return len(self.size)

    def take(self, cohort: jax.Array, present: jax.Array) -> UserRows:
        """The rows [m, R, ...] of some users.

        Args:
            cohort: [m] which.
            present: [m] whether each counts; where not, its rows have weight 0.
        """
        place = jnp.arange(self.largest)
        row = jnp.minimum(self.first[cohort][:, None] + place, len(self.y) - 1)
        there = (place < self.size[cohort][:, None]) & present[:, None]
        return UserRows(self.a[row], self.s[row], self.y[row], there.astype(self.a.dtype))


def make_users(a: np.ndarray, s: np.ndarray, y: np.ndarray, user: np.ndarray) -> Users:
    """Sorts rows by user.

    Args:
        a: [N, ...] model inputs.
        s: [N] or [N, A] group index, of one attribute or several.
        y: [N] label: -1.0 or +1.0, or the index of a class.
        user: [N] whose each row is; any values that can be sorted.

    Raises:
        InputError: no row, or parts of unlike lengths.
    """
    if len({len(a), len(s), len(y), len(user)}) != 1 or len(y) == 0:
        raise InputError(
            f"users: {len(a)} inputs, {len(s)} groups, {len(y)} labels and {len(user)} users; must"
            " be equally many, at least one"
        )
    order = np.argsort(user, kind="stable")
    size = np.unique(user, return_counts=True)[1]
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    s = s[:, None] if s.ndim == 1 else s
    return Users(
        jnp.asarray(a[order]),
        jnp.asarray(s[order], jnp.int32),
        jnp.asarray(y[order]),
        jnp.asarray(first, jnp.int32),
        jnp.asarray(size, jnp.int32),
        int(size.max()),
    )


def deal_rows(n_rows: int, *, mean: float, seed: int) -> np.ndarray:
    """[N] users of rows dealt out at random, a number of them to each that is Poisson distributed.

    Users who would get none are left out, so that those there are have mean / (1 - exp(-mean))
    rows on average. Rodríguez-Gálvez et al. (2021), section 4.1, with mean = 2.

    Args:
        n_rows: N, at least 1.
        mean: positive.
        seed: the same gives the same users.

    Raises:
        InputError: a mean that is not positive and finite.
    """
    if not 0 < mean < np.inf:
        raise InputError(f"rows_per_user = {mean}: must be positive and finite")
    rng = np.random.default_rng(seed)
    sizes = np.empty(0, int)
    while sizes.sum() < n_rows:
        sizes = np.append(sizes, rng.poisson(mean, size=1 + int(n_rows / mean)))
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes)[:n_rows])
