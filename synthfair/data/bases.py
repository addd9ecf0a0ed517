"""Public basis functions of a number: a model that is linear in them is a curve in the number.

A generalised additive model, Hastie and Tibshirani (1986), is a linear one behind this encoding.
Functions are of a number scaled to z = (value - lower) / (upper - lower), and lie in [0, 1].
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, Field

from synthfair.settings import STRICT

MAX_KNOTS = 100
"""The most knots or edges of a column."""


def _require_increasing(places: tuple[float, ...]) -> tuple[float, ...]:
    if not np.all(np.diff(places) > 0):
        raise ValueError("must increase")
    return places


Places = Annotated[
    tuple[float, ...],
    Field(strict=False, min_length=1, max_length=MAX_KNOTS),
    AfterValidator(_require_increasing),
]


class Steps(BaseModel):
    """A basis of indicators of value >= edge: a curve that is a staircase.

    Attributes:
        edges: increasing, above the column's lower bound, at most its upper one.

    Example:
        >>> import numpy as np
        >>> from synthfair.data.bases import Steps
        >>> Steps(edges=(20.0, 30.0)).functions(np.array([0.5, 0.2]), 10.0, 30.0).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """

    model_config = STRICT

    kind: Literal["steps"] = "steps"
    edges: Places

    def require_between(self, lower: float, upper: float) -> None:
        """Refuse edges that are not between these bounds, by a ValueError."""
        if not lower < self.edges[0] or not self.edges[-1] <= upper:
            raise ValueError(f"basis: edges must be above {lower:g}, and at most {upper:g}")

    def names(self, column: str) -> list[str]:
        """Return the names of the k functions of a column."""
        return [f"{column}>={edge:.12g}" for edge in self.edges]

    def functions(self, z: np.ndarray, lower: float, upper: float) -> np.ndarray:
        """Return the functions [N, k] of scaled numbers [N] of a column with these bounds."""
        edges = (np.array(self.edges) - lower) / (upper - lower)
        return (z[:, None] >= edges).astype(float)


class Spline(BaseModel):
    """A basis of B-splines between knots, without the first: with it they would sum to 1.

    De Boor, A Practical Guide to Splines (1978), chapter IX; the end knots are repeated.

    Attributes:
        knots: increasing; the first and last are the column's bounds.
        degree: 1, broken lines; 2; or 3, curves with continuous curvature.

    Example:
        >>> import numpy as np
        >>> from synthfair.data.bases import Spline
        >>> spline = Spline(knots=(0.0, 10.0, 20.0), degree=1)
        >>> spline.functions(np.array([0.25, 0.75]), 0.0, 20.0).tolist()
        [[0.5, 0.0], [0.5, 0.5]]
    """

    model_config = STRICT

    kind: Literal["spline"] = "spline"
    knots: Annotated[Places, Field(min_length=2)]
    degree: int = Field(2, ge=1, le=3)

    def require_between(self, lower: float, upper: float) -> None:
        """Refuse knots that do not reach from bound to bound, by a ValueError."""
        if (self.knots[0], self.knots[-1]) != (lower, upper):
            raise ValueError(f"basis: knots must begin with {lower:g} and end with {upper:g}")

    def names(self, column: str) -> list[str]:
        """Return the names of the k functions of a column, by the means of their inner knots."""
        t, degree = self._repeated(*self.knots[:: len(self.knots) - 1]), self.degree
        scaled = [t[i + 1 : i + 1 + degree].mean() for i in range(1, len(t) - degree - 1)]
        lower, upper = self.knots[0], self.knots[-1]
        return [f"{column}~{lower + z * (upper - lower):.12g}" for z in scaled]

    def functions(self, z: np.ndarray, lower: float, upper: float) -> np.ndarray:
        """Return the functions [N, k] of scaled numbers [N] of a column with these bounds."""
        from scipy.interpolate import BSpline  # takes a while

        t = self._repeated(lower, upper)
        return BSpline.design_matrix(z, t, self.degree).toarray()[:, 1:]

    def _repeated(self, lower: float, upper: float) -> np.ndarray:
        """Return the knots, scaled, with the ends repeated."""
        z = (np.array(self.knots) - lower) / (upper - lower)
        return np.concatenate([np.repeat(z[:1], self.degree), z, np.repeat(z[-1:], self.degree)])


Basis = Annotated[Spline | Steps, Field(discriminator="kind")]
