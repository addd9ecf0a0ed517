"""Averaging, in rounds, of what users train by themselves; federated averaging among others.

In each round of federated averaging (McMahan et al. 2017, algorithm 1) every user of the cohort
takes a few full-batch gradient steps on its own objective, with or without a fairness penalty, from
the server's parameters, and sends by how much it moved; the server moves by the mean, or with
momentum by a decaying sum of these means (Hsu, Qi and Brown 2019, FedAvgM). With clipping and noise
it is DP-FedAvg with the fixed denominator of McMahan et al. (2018), eq. (1).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from pydantic import Field

from synthfair.distill.losses import regularized_loss
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.federated.method import (
    AtLeast0,
    Count,
    Given,
    InCohorts,
    Positive,
    Share,
    TrainConfig,
    given,
)
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import UserData, Users
from synthfair.model import Params, Rows

MAX_SETTLED_DRIFT = 1e-3
"""Drift below which the rounds have settled, if it stays there."""


DEFAULT_BATCH = 500
"""Rows of a batch, where the settings name no number."""


class Movement(NamedTuple):
    """The report of a user."""

    change: Params  # times the user's weight
    weight: jax.Array  # empty where all count alike: it would only take up room below the clip


def movement(old: Any, new: Any, rows: UserRows) -> Movement:
    """Return a user's movement times its number of rows; none is repeated to make users equal."""
    weight = jnp.sum(rows.weight)
    return Movement(jax.tree.map(lambda n, o: weight * (n - o), new, old), weight)


class Moving(TrainConfig):
    """A method whose users report by how much they moved."""

    additive: ClassVar[bool] = False
    by_rows: ClassVar[bool] = True

    def mean_of(self, total: Movement, cohort: float) -> tuple[Any, jax.Array]:
        """Return the mean change, sum_k n_k w_k / sum_k n_k where users count by rows; its norm."""
        count = jnp.maximum(total.weight, 1.0) if self.counts_by_rows else cohort
        mean = jax.tree.map(lambda change: change / count, total.change)
        return mean, jnp.linalg.norm(ravel_pytree(mean)[0])

    def check(self, report: Movement, least_rows: int, most_rows: float) -> None:
        """Refuse the weight of a number of rows that no user has. Raises ValueError."""
        if report.weight.size and not least_rows <= float(report.weight) <= most_rows:
            raise ValueError("its weight is not that of a number of rows that a site may have")


class AverageRecord(NamedTuple):
    """The record of a round in which the mean of the users' movements is taken."""

    moved: jax.Array  # Euclidean norm of the change of the server's state


class Averaging(Moving):
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

    local_passes: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """The number of rows of a batch, where no client has too few."""
        return self.batch or DEFAULT_BATCH

    def batch_of(self, users: Users) -> int:
        """Return the rows of a batch; a sum over fewer, divided by the batch, would be too short.

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

    def train(self, state: Any, rows: UserRows, key: jax.Array) -> Any:
        """Return the state after a user's training from the server's, on the user's side."""
        raise NotImplementedError

    def report(self, state: Any, rows: UserRows, key: jax.Array) -> Movement:
        """Compute the movement of the state by the user's training."""
        return movement(state, self.train(state, rows, key), rows)

    def update(self, state: Any, total: Movement, cohort: float) -> tuple[Any, AverageRecord]:
        """Add the users' mean change."""
        mean, distance = self.mean_of(total, cohort)
        return jax.tree.map(jnp.add, state, mean), AverageRecord(distance)

    def params(self, state: Any) -> Params:
        """Return the last params."""
        return state


# Federated averaging


class FedAvgState(NamedTuple):
    """The state of the server."""

    params: Params
    velocity: Params  # by how much they moved last


class FedAvgRecord(NamedTuple):
    """The record of a round.

    Attributes:
        drift: norm of the users' mean change, per local step and in units of the learning rate: the
            mean gradient along the users' paths. It falls to 0 as the rounds settle, whatever rate
            and momentum; where users differ, at a point that depends on the local steps. With
            momentum it may be small in passing.
    """

    drift: jax.Array | np.ndarray


class FedAvg(Moving, InCohorts):
    """The method federated averaging: users train on their own rows, and the mean is sent back.

    They minimise their loss + ridge + rho penalty.

    Users count by their rows, unless what they send is clipped: then they count alike, and the sum
    of their changes is divided by the expected number of users, which no single user changes.

    Attributes:
        penalty: none if not given; each user can compute it of its own rows alone.
        rho: its weight, at least 0.
        lambda_theta: at least 0, see :func:`synthfair.distill.losses.regularized_loss`.
        row_weights: [G, 2] by which the loss of a row counts, by its group and label -1 or +1: a
            row of weight 2 is as good as two rows. If None, all count alike.

    Example:
        >>> import synthfair as sf
        >>> model = sf.federated.LogisticRegression(n_inputs=5)
        >>> method = sf.federated.FedAvg(model=model, learning_rate=0.5, local_steps=10)
    """

    method: Literal["fedavg"] = "fedavg"
    local_steps: Count = 5
    """Steps of a user in a round."""

    momentum: Share = 0.0
    """Share of its last movement that the server adds to the next; 0 as first published. It is
    computed of what the server has, and costs no privacy."""

    penalty: Given[Penalty | None] = given()
    rho: AtLeast0 = given(0.0)
    lambda_theta: AtLeast0 = given(0.0)
    row_weights: Given[jax.Array | None] = given()

    takes_weights: ClassVar[bool] = True
    unsettled: ClassVar[str] = "fedavg did not settle: more rounds, or another learning rate"

    def plan(self, data: UserData) -> FedAvg:
        """Return the method as it trains on these users."""
        return self.in_cohorts(data, row_weights=data.row_weights)

    def converged(self, history: FedAvgRecord) -> bool | None:
        """Return whether the drift stayed small in the last twentieth of a whole history.

        It does with all users and without noise; None where that is not so.
        """
        if self.cohorts.size < self.cohorts.population or self.protection.noise > 0:
            return None
        last = max(1, len(history.drift) // 20)
        return bool(np.max(history.drift[-last:]) <= MAX_SETTLED_DRIFT)

    # Server, before the first round

    def init(self, key: jax.Array) -> FedAvgState:
        """Return the model's first params, at rest."""
        params = self.model.init(key)
        return FedAvgState(params, jax.tree.map(jnp.zeros_like, params))

    # User

    def report(self, state: FedAvgState, rows: UserRows, key: jax.Array) -> Movement:  # noqa: ARG002
        """Return the movement by local steps on all of the user's rows."""

        def step(params: Params, _: None) -> tuple[Params, None]:
            slope = jax.grad(self.objective)(params, rows)
            return jax.tree.map(lambda p, g: p - self.learning_rate * g, params, slope), None

        end = jax.lax.scan(step, state.params, None, length=self.local_steps)[0]
        if self.counts_by_rows:
            return movement(state.params, end, self._weigh(rows))
        change = jax.tree.map(jnp.subtract, end, state.params)
        return Movement(change, jnp.zeros(0, rows.weight.dtype))

    def objective(self, params: Params, rows: UserRows) -> jax.Array:
        """Return the objective that a user minimises."""
        rows = self._weigh(rows)
        flat = Rows(rows.a, rows.s[:, 0], rows.y, rows.weight)
        loss = regularized_loss(self.model, params, flat, self.lambda_theta)
        if self.penalty is None:
            return loss
        return loss + self.rho * self.penalty(self.model.scores(params, flat.a), flat)

    def _weigh(self, rows: UserRows) -> UserRows:
        return rows._replace(weight=rows.weight * rows.factors(self.row_weights))

    # Server, after each round

    def update(
        self, state: FedAvgState, total: Movement, cohort: float
    ) -> tuple[FedAvgState, FedAvgRecord]:
        """Move the params by the users' mean change, with momentum."""
        mean, distance = self.mean_of(total, cohort)
        drift = distance / (self.learning_rate * self.local_steps)
        velocity = jax.tree.map(lambda v, m: self.momentum * v + m, state.velocity, mean)
        params = jax.tree.map(jnp.add, state.params, velocity)
        return FedAvgState(params, velocity), FedAvgRecord(drift)

    def params(self, state: FedAvgState) -> Params:
        """Return the last params."""
        return state.params


@jax.jit
def safe_rate(algorithm: FedAvg, users: Users) -> jax.Array:
    """Return 1 / L, where L is the largest curvature of a user's objective at the first params.

    Of a linear model from zeros with the logistic loss and the covariance penalty, curvature is
    largest there, so that no step overshoots. A steep penalty makes L large and progress slow,
    which momentum mends.
    """
    start = algorithm.model.init(jax.random.key(0))
    flat, unravel = ravel_pytree(start)

    def largest(user: jax.Array) -> jax.Array:
        rows = users.rows_of(user)
        curvature = jax.hessian(lambda theta: algorithm.objective(unravel(theta), rows))(flat)
        return jnp.max(jnp.abs(jnp.linalg.eigvalsh(curvature)))

    return 1.0 / jnp.max(jax.lax.map(largest, jnp.arange(len(users))))
