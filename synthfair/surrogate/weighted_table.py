"""A weighted table that stands in for the rows of a client."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.data.batches import other_inputs
from synthfair.model import Rows


class WeightedTable(NamedTuple):
    """Encoded rows, each of which stands for a number of real ones.

    Attributes:
        x: [R, d] features; they may leave [0, 1].
        s: [R] groups.
        y: [R] labels, -1 or +1.
        weight: [R] numbers of real rows, at least 0.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = np.array([[0.2], [0.7]]), np.array([0, 1]), np.array([-1.0, 1.0])
        >>> table = sf.surrogate.WeightedTable(x, s, y, weight=np.array([1.5, 2.5]))
        >>> table.rows(n_groups=2).a.tolist()  # x, s and the 1 of the intercept
        [[0.2, 0.0, 1.0], [0.7, 1.0, 1.0]]
    """

    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def rows(self, *, n_groups: int, intercept: bool = True) -> Rows:
        """Return the same as a model sees them, which reads so many groups; 1 where it is blind."""
        others = other_inputs(self.s, n_groups=n_groups, intercept=intercept)
        return Rows(np.column_stack([self.x, others.T]), self.s, self.y, self.weight)  # type: ignore[arg-type]
