"""Rows as a method in rounds sees them, as arrays of NumPy or of JAX."""

from __future__ import annotations

from typing import NamedTuple

from synthfair.model import Array


class UserRows(NamedTuple):
    """Rows of one user, or of several, padded to one length.

    Attributes:
        a: [..., R, ...] model inputs.
        s: [..., R, A] group index in each of A attributes.
        y: [..., R] label: -1.0 or +1.0, or the index of one of several classes.
        weight: [..., R] 1 for a row that is there, 0 for padding.
    """

    a: Array
    s: Array
    y: Array
    weight: Array

    def factors(self, by_pair: Array | None) -> Array:
        """[..., R] the entry [G, 2] of each row's group and label -1 or +1; 1 without entries.

        The group is that of the first attribute.
        """
        if by_pair is None:
            return self.weight * 0 + 1.0
        return by_pair[self.s[..., 0], (self.y > 0).astype(int)]
