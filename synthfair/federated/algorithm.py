"""The contract of an iterative method: a few pure functions between the server and one user."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol

import jax
from pydantic import Field

from synthfair.federated.user_rows import UserRows
from synthfair.model import Params

ServerState = Any
"""A pytree of arrays that the server keeps from round to round."""

UserReport = Any
"""A pytree of arrays that a user sends: only the sum over the cohort is seen by the server."""

RoundRecord = Any
"""A NamedTuple of arrays that is kept of every round; made of what the server saw."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeast0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
"""Ranges of settings."""


class Algorithm(Protocol):
    """A method in rounds: any pytree with these functions.

    Attributes:
        additive: whether the sum of the reports of two users is the report of their rows together.
            Where nothing is clipped, a cohort is then computed as one user, which is faster. Such
            an algorithm has ``weights(state, rows)``, too, which gives the
            :class:`synthfair.federated.single_rows.RowWeights` in its report: a site reports sums
            without protection only where no row stands out.

    Example:
        This one counts the rows of a cohort; :func:`synthfair.federated.engine.run` runs it.

        >>> import jax.numpy as jnp
        >>> class CountRows:
        ...     additive = True
        ...     def init(self, key):
        ...         return jnp.zeros(())
        ...     def report(self, state, rows, key):
        ...         return rows.weight.sum()
        ...     def update(self, state, total, cohort):
        ...         return state + total, (total,)
        ...     def params(self, state):
        ...         return state
    """

    additive: ClassVar[bool]

    def init(self, key: jax.Array) -> ServerState:
        """Return the server's first state."""
        ...

    def report(self, state: ServerState, rows: UserRows, key: jax.Array) -> UserReport:
        """Compute a user's report on the device. Rows of weight 0 must not enter it."""
        ...

    def update(
        self, state: ServerState, total: UserReport, cohort: float
    ) -> tuple[ServerState, RoundRecord]:
        """Compute the next state from the sum of the reports, which may be noisy, on the server.

        Args:
            state: the last one.
            total: the sum.
            cohort: number of users expected in a round.
        """
        ...

    def params(self, state: ServerState) -> Params:
        """Return the model to use if this state is the last one."""
        ...
