"""DP-SGD on every user's own rows (Abadi et al. 2016, algorithm 1), averaged in rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from synthfair.errors import InputError
from synthfair.federated.algorithm import require_at_least_0, require_positive
from synthfair.federated.averaging import AverageRecord, average, movement
from synthfair.federated.fedavg import Movement
from synthfair.federated.networks import Trainable
from synthfair.federated.private_sum import add_noise
from synthfair.federated.row_batches import poisson_sum
from synthfair.federated.row_gradients import clipped_sum
from synthfair.federated.users import UserRows, Users
from synthfair.model import Params, derivative, logistic
from synthfair.privacy.sampled import SampledSums


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("learning_rate", "clip", "noise"),
    meta_fields=("model", "batch", "local_steps"),
)
@dataclass(frozen=True)
class DpSgd:
    """In each round every user takes noisy steps on its cross-entropy; the mean is sent back.

        g = (sum over a Poisson batch of clip(grad l_i) + N(0, (noise clip)^2 I)) / batch

    Guarantee: :meth:`sums` with noise ``noise``, against whoever sees what the user sends, all
    rounds together. Unit: one row of one user. Neighbouring relation: add or remove one row; the
    labels of the others are the same in both, which is for whoever makes the labels to ensure. A
    user's number of rows is public: it sets the chance of a row, and the weight in the mean. The
    seed of the run gives batches and noise: it must come from the operating system's entropy, and
    stay secret, where this is claimed.

    Args:
        model: what is trained; of one score.
        learning_rate: of a step, positive.
        clip: Euclidean norm that no row's gradient exceeds, positive; infinite without noise only.
        noise: standard deviation of the noise in the sum, in units of clip; at least 0.
        batch: number of rows expected in a batch, at least 1, at most a user's rows.
        local_steps: of a user in a round, at least 1.

    Raises:
        InputError: a value out of range.
    """

    model: Trainable
    learning_rate: float = 0.25
    clip: float = 1.5
    noise: float = 1.3
    batch: int = 500
    local_steps: int = 1

    additive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        require_positive(
            learning_rate=self.learning_rate, batch=self.batch, local_steps=self.local_steps
        )
        require_at_least_0(noise=self.noise)
        require_clip(self.clip, self.noise)

    def init(self, key: jax.Array) -> Params:
        """The model's first params are the state."""
        return self.model.init(key)

    def report(self, state: Params, rows: UserRows, key: jax.Array) -> Movement:
        """Local steps; the labels are what there is to learn."""

        def step(params: Params, step_key: jax.Array) -> tuple[Params, None]:
            slope = self.noisy_gradient(params, rows, step_key)
            return jax.tree.map(lambda p, g: p - self.learning_rate * g, params, slope), None

        moved = jax.lax.scan(step, state, jax.random.split(key, self.local_steps))[0]
        return movement(state, moved, rows)

    def noisy_gradient(self, params: Params, rows: UserRows, key: jax.Array) -> Params:
        """Of one step, g."""
        batch_key, noise_key = jax.random.split(key)

        def of_batch(some: UserRows) -> Params:
            return clipped_gradients(self.model, params, some, cross_entropy, self.clip)

        total = poisson_sum(of_batch, rows, self.batch, batch_key)
        noisy = add_noise(total, noise_of(self.noise, self.clip), noise_key)
        return jax.tree.map(lambda leaf: leaf / self.batch, noisy)

    def update(self, state: Params, total: Movement, cohort: float) -> tuple[Params, AverageRecord]:
        """Adds the mean change."""
        del cohort  # users count by their rows
        return average(state, total)

    def params(self, state: Params) -> Params:
        """The last."""
        return state

    def sums(self, users: Users, rounds: int) -> SampledSums:
        """What a run releases of the rows of the smallest user, whose rows are sampled most."""
        return SampledSums(int(users.size.min()), self.batch, rounds * self.local_steps)


RowLoss = Callable[[jax.Array, UserRows], jax.Array]
"""Of scores [R] and rows to losses [R]; each row's depends on its own score alone."""


def cross_entropy(scores: jax.Array, rows: UserRows) -> jax.Array:
    """[R] of labels -1 and +1."""
    return logistic(rows.y * scores)


def clipped_gradients(
    model: Trainable, params: Params, rows: UserRows, loss: RowLoss, clip: jax.Array | float
) -> Params:
    """Sum over rows of their clipped gradients of a loss, see :func:`clipped_sum`."""
    scores = model.scores(params, rows.a)
    slope = rows.weight * derivative(lambda z: loss(z, rows), scores)
    return clipped_sum(model, params, rows.a, slope, clip)


def noise_of(noise: jax.Array | float, sensitivity: jax.Array | float) -> jax.Array:
    """Standard deviation; 0 without noise even where nothing bounds the sum."""
    return jnp.where(jnp.asarray(noise) > 0, noise * jnp.asarray(sensitivity), 0.0)


def require_clip(clip: float, noise: float) -> None:
    """Refuses a clip that is not positive, and noise that nothing bounds. Raises InputError."""
    if not (isinstance(clip, int | float) and isinstance(noise, int | float)):
        return  # JAX makes the same dataclass again of what it traces
    if not clip > 0:
        raise InputError(f"clip = {clip}: must be positive, or infinite for none")
    if clip == math.inf and noise > 0:
        raise InputError(f"noise = {noise}: must be 0 where clip is infinite")
