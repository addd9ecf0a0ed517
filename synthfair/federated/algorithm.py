"""What an iterative method is: a few pure functions between the server and one user."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax

from synthfair.errors import InputError
from synthfair.federated.users import UserRows
from synthfair.model import Params

ServerState = Any
"""A pytree of arrays that the server keeps from round to round."""

UserReport = Any
"""A pytree of arrays that a user sends: only the sum over the cohort is seen by the server."""

RoundRecord = Any
"""A NamedTuple of arrays that is kept of every round; made of what the server saw."""


class Algorithm(Protocol):
    """A method in rounds: a dataclass that is a pytree of its numbers.

    What is no number, such as the model, is a static field and must be hashable, see
    :class:`synthfair.model.Model`; code is compiled anew for each, but not for other numbers.

    Attributes:
        additive: whether the sum of the reports of two users is the report of their rows together.
            Where nothing is clipped, a cohort is then computed as one user, which is faster.

    Example:
        Counts the rows that were in a cohort; :func:`synthfair.federated.engine.run` runs it.

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
        """The server's first state."""
        ...

    def report(self, state: ServerState, rows: UserRows, key: jax.Array) -> UserReport:
        """On the device: what a user sends of its rows. Rows of weight 0 must not enter it."""
        ...

    def update(
        self, state: ServerState, total: UserReport, cohort: float
    ) -> tuple[ServerState, RoundRecord]:
        """On the server: the next state, of the sum of the reports, which may be noisy.

        Args:
            state: the last one.
            total: the sum.
            cohort: number of users expected in a round.
        """
        ...

    def params(self, state: ServerState) -> Params:
        """The model to use if this state is the last one."""
        ...


def require_positive(**settings: float) -> None:
    """Refuses settings that are not positive and finite. Raises InputError."""
    _require(settings, lambda value: 0 < value < math.inf, "positive and finite")


def require_at_least_0(**settings: float) -> None:
    """Refuses settings that are not at least 0 and finite. Raises InputError."""
    _require(settings, lambda value: 0 <= value < math.inf, "at least 0 and finite")


def require_share(**settings: float) -> None:
    """Refuses settings that are not from 0 to below 1. Raises InputError."""
    _require(settings, lambda value: 0 <= value < 1, "from 0 to below 1")


def _require(settings: dict[str, float], allowed: Callable[[float], bool], words: str) -> None:
    """Numbers alone: JAX builds the same dataclasses again from what it traces."""
    for name, value in settings.items():
        if isinstance(value, int | float) and not allowed(value):
            raise InputError(f"{name} = {value}: must be {words}")
