"""The contract of an iterative method: a few pure functions between the server and one user."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, dataclass_transform, get_type_hints

import jax
from pydantic import Field, TypeAdapter, ValidationError

from synthfair.errors import InputError
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
"""Ranges of settings, and of the numbers of algorithms."""

_Class = TypeVar("_Class")


class Algorithm(Protocol):
    """A method in rounds; a dataclass of :func:`algorithm` is one once it has these functions.

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
        """Returns the server's first state."""
        ...

    def report(self, state: ServerState, rows: UserRows, key: jax.Array) -> UserReport:
        """Computes a user's report on the device. Rows of weight 0 must not enter it."""
        ...

    def update(
        self, state: ServerState, total: UserReport, cohort: float
    ) -> tuple[ServerState, RoundRecord]:
        """Computes the next state from the sum of the reports, which may be noisy, on the server.

        Args:
            state: the last one.
            total: the sum.
            cohort: number of users expected in a round.
        """
        ...

    def params(self, state: ServerState) -> Params:
        """The model to use if this state is the last one."""
        ...


def static(*, default: Any = MISSING) -> Any:
    """A field of an algorithm that is no number, such as its model; it must be hashable."""
    return field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static, field))
def algorithm(cls: type[_Class]) -> type[_Class]:
    """Makes a class a frozen dataclass whose numbers are in range, and a pytree of these.

    Code is compiled anew for another :func:`static` field, and not for other numbers. Values of
    fields that are annotated with a range, such as :data:`Positive`, are refused outside it, with
    InputError.
    """
    also = getattr(cls, "__post_init__", None)

    def check(self: Any) -> None:
        for name, kind in ranges.items():
            value = getattr(self, name)
            if not isinstance(value, int | float):
                continue  # JAX builds the same class again from what it traces
            try:
                kind.validate_python(value)
            except ValidationError as error:
                rule = error.errors()[0]["msg"].removeprefix("Input should be ")
                raise InputError(f"{name} = {value}: must be {rule}") from error
        if also:
            also(self)

    cls.__post_init__ = check  # type: ignore[attr-defined]
    hints = get_type_hints(cls, include_extras=True)
    ranges = {n: TypeAdapter(hint) for n, hint in hints.items() if hasattr(hint, "__metadata__")}
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))
