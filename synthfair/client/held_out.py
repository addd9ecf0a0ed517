"""Rows held out of a trial, for the checks before a release."""

from __future__ import annotations

import numpy as np
import pandas as pd

from synthfair.data.encode import Encoded, drawn_by_content
from synthfair.errors import InputError

MOST_CHECKED = 1000
"""Held-out rows that the checks use, at most, drawn by content; no others are used at all."""


class HeldOut:
    """Chooses the rows to hold out, each by a hash of its own content, and stores them.

    Whether a row is held out does not depend on the other rows, nor on their order. Equal rows are
    held out together or not at all.

    Args:
        share: of all rows, 0 to 0.5; what is held out is about that.
        seed: of the hash; another one holds out other rows.

    Raises:
        InputError: a share that is not allowed.
    """

    def __init__(self, share: float, seed: int) -> None:
        """Nothing is held out yet."""
        if not 0 <= share <= 0.5:
            raise InputError(f"hold_out = {share:g}: must be from 0 to 0.5")
        self._threshold, self._seed = int(share * 2**64), seed
        self._rows: Encoded | None = None

    def __call__(self, part: Encoded) -> np.ndarray:
        """[N] whether each row of a part of the table is held out."""
        table = pd.DataFrame(np.column_stack([part.x, part.s, part.y]))
        digests = pd.util.hash_pandas_object(table.assign(seed=self._seed), index=False)
        apart = digests.to_numpy() < np.uint64(self._threshold)
        parts = [*filter(None, [self._rows]), Encoded(*(field[apart] for field in part))]
        together = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
        self._rows = drawn_by_content(together, MOST_CHECKED)
        return apart

    @property
    def rows(self) -> Encoded:
        """The different rows that are held out, for the checks; see :data:`MOST_CHECKED`."""
        return self._rows or Encoded(np.empty((0, 0)), np.empty(0, int), np.empty(0))
