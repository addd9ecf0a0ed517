"""The population of a federation: users, each with as many or as few rows as they have."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.errors import InputError
from synthfair.federated.user_rows import UserRows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Users:
    """K users with N rows in all, one user's after the other's; see :func:`make_users`.

    Only the cohort of a round is padded to one length, so that one user with many rows does not
    multiply the memory of all.

    Attributes:
        a: [N, ...] model inputs.
        s: [N, A] group index in each of A attributes.
        y: [N] label.
        first: [K] position of a user's first row.
        size: [K] number of a user's rows.
        largest: the largest of these numbers.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    first: jax.Array
    size: jax.Array
    largest: int = field(metadata={"static": True})

    def __len__(self) -> int:
        """Returns the number of users K."""
        return len(self.size)

    @property
    def smallest(self) -> int:
        """Number of rows of the user who has fewest."""
        return int(np.min(self.size))

    @property
    def nbytes(self) -> int:
        """Size of all rows, as plain numbers."""
        return int(self.a.nbytes + self.s.nbytes + self.y.nbytes)

    def steps(self, *, batch: int, epochs: float) -> int:
        """Number of batches that make so many passes over the smallest user's rows, at least 1."""
        return max(1, round(epochs * self.smallest / batch))

    def take(self, cohort: jax.Array, present: jax.Array) -> UserRows:
        """The rows [m, R, ...] of some users.

        Args:
            cohort: [m] their indices.
            present: [m] whether each counts; where not, its rows have weight 0.
        """
        place = jnp.arange(self.largest)
        row = jnp.minimum(self.first[cohort][:, None] + place, len(self.y) - 1)
        weight = (place < self.size[cohort][:, None]) & present[:, None]
        return UserRows(self.a[row], self.s[row], self.y[row], weight.astype(self.a.dtype))

    def rows_of(self, user: jax.Array | int) -> UserRows:
        """The rows [R, ...] of one user."""
        one = self.take(jnp.asarray(user)[None], jnp.ones(1, bool))
        return UserRows(*(part[0] for part in one))


def make_users(a: np.ndarray, s: np.ndarray, y: np.ndarray, user: np.ndarray) -> Users:
    """Makes users of rows, which are sorted by user.

    Args:
        a: [N, ...] model inputs.
        s: [N] or [N, A] group index, of one attribute or several.
        y: [N] label: -1.0 or +1.0, or the index of a class.
        user: [N] whose each row is; any values that can be sorted.

    Raises:
        InputError: no row, or parts of unlike lengths.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.eye(3), np.array([0, 1, 0]), np.array([1.0, -1.0, 1.0])
        >>> users = sf.federated.make_users(a, s, y, user=np.array(["ann", "bob", "ann"]))
        >>> len(users), users.size.tolist(), users.y.tolist()
        (2, [2, 1], [1.0, 1.0, -1.0])
    """
    if len({len(a), len(s), len(y), len(user)}) != 1 or len(y) == 0:
        raise InputError(
            f"users: {len(a)} inputs, {len(s)} groups, {len(y)} labels and {len(user)} users; must"
            " be equally many, at least one"
        )
    order = np.argsort(user, kind="stable")
    size = np.unique(user, return_counts=True)[1]
    s = s[:, None] if s.ndim == 1 else s
    return Users(
        jnp.asarray(a[order]),
        jnp.asarray(s[order], jnp.int32),
        jnp.asarray(y[order]),
        jnp.asarray(np.cumsum(size) - size, jnp.int32),
        jnp.asarray(size, jnp.int32),
        int(size.max()),
    )
