"""Averages of what users train by themselves, each by passes over its own rows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from pydantic import Field

from synthfair.errors import InputError
from synthfair.federated.algorithm import Count, Positive, RoundRecord
from synthfair.federated.method import TrainConfig, given
from synthfair.federated.user_rows import UserRows
from synthfair.federated.users import Users
from synthfair.model import Params

BATCH = 500
"""Rows of a batch, where the settings name no number."""


class Movement(NamedTuple):
    """The report of a user."""

    change: Params  # times the user's weight
    weight: jax.Array  # empty where all count alike: it would only take up room below the clip


def movement(old: Any, new: Any, rows: UserRows) -> Movement:
    """Return a user's movement times its number of rows; none is repeated to make users equal."""
    weight = jnp.sum(rows.weight)
    return Movement(jax.tree.map(lambda n, o: weight * (n - o), new, old), weight)


def check_weight(report: Movement, least_rows: int, most_rows: float) -> None:
    """Refuse the weight of a number of rows that no user has. Raises ValueError."""
    if report.weight.size and not least_rows <= float(report.weight) <= most_rows:
        raise ValueError("its weight is not that of a number of rows that a site may have")


class AverageRecord(NamedTuple):
    """The record of a round in which the mean of the users' movements is taken."""

    moved: jax.Array  # Euclidean norm of the change of the server's state


class Averaging(TrainConfig):
    """A method whose users train by themselves, and are averaged by their numbers of rows.

    Attributes:
        local_steps: of a user in a round, at least 1.
    """

    rounds: Count = 4
    learning_rate: Positive = 2.0
    batch: Annotated[int, Field(ge=1)] | None = None
    """Rows of a batch. If not given: 500; but all of the smallest client's rows where it has
    fewer."""

    local_epochs: Positive = 5.0
    """Passes over the smallest client's rows in a round."""

    local_steps: Count = given(1)

    additive: ClassVar[bool] = False
    local_passes: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """The number of rows of a batch, where no client has too few."""
        return self.batch or BATCH

    def batch_of(self, users: Users) -> int:
        """Rows of a batch; a sum over fewer, divided by the batch, would be too short.

        Raises:
            InputError: a batch that is larger than the smallest client.
        """
        if self.batch is None:
            return min(self.rows, users.smallest)
        if self.batch > users.smallest:
            raise InputError(
                f"batch = {self.batch}: must be 1 to {users.smallest}, the smallest client's rows",
                "batch",
            )
        return self.batch

    def progress(self, history: RoundRecord) -> str:
        """Show how far the mean of the clients' movements moved the server."""
        return f"moved by {history.moved[-1]:.2f}"

    def check(self, report: Movement, least_rows: int, most_rows: float) -> None:
        """Refuse a weight that no user has. Raises ValueError."""
        check_weight(report, least_rows, most_rows)

    def train(self, state: Any, rows: UserRows, key: jax.Array) -> Any:
        """Trains on a user's rows from the server's state, on the user's side."""
        raise NotImplementedError

    def report(self, state: Any, rows: UserRows, key: jax.Array) -> Movement:
        """Compute the movement of the state by the user's training."""
        return movement(state, self.train(state, rows, key), rows)

    def update(self, state: Any, total: Movement, cohort: float) -> tuple[Any, AverageRecord]:
        """Add the users' mean change: sum_k n_k w_k / sum_k n_k, if all took part."""
        del cohort  # users count by their rows
        count = jnp.maximum(total.weight, 1.0)
        mean = jax.tree.map(lambda change: change / count, total.change)
        distance = jnp.linalg.norm(ravel_pytree(mean)[0])
        return jax.tree.map(jnp.add, state, mean), AverageRecord(distance)

    def params(self, state: Any) -> Params:
        """Return the last params."""
        return state
