"""Fair-SGD with differential privacy: a teacher for which the two-phase method holds end to end.

The gap of a batch is no sum over rows, so that no clipping of its gradient bounds what one row
does. But the gap's gradient is one, once the rates' counts and the sign of their difference are
known: with noisy sums of h and of 1 for each cell (group, and label), each row's loss

    l_i + kappa v[cell of i] h_i,   v = batch (+1 / N highest cell, -1 / N lowest cell, else 0)

depends on that row and on what was released before. So its gradient is clipped row by row. These
are the sums of Rodríguez-Gálvez et al. (2021), (17), on users of one row, with the gradients of
the cells added up before the noise and not after, which takes one sum of gradients and not one
for each cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from synthfair.federated.algorithm import require_at_least_0, require_positive, require_share
from synthfair.federated.dp_sgd import (
    clipped_gradients,
    cross_entropy,
    noise_of,
    poisson_sum,
    require_clip,
)
from synthfair.federated.engine import add_noise
from synthfair.federated.fair_sgd import (
    FairState,
    fair_loss,
    first_state,
    require_two_phase_parity,
)
from synthfair.federated.networks import Trainable
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.users import UserRows, Users
from synthfair.model import Params
from synthfair.privacy.sampled import SampledSums

COUNT_SCALE = 0.25
"""A row's part in the sums of the cells, (h, 1), is sent times this; a gradient has norm 1 at most.

The joint sensitivity is sqrt(1 + 2 COUNT_SCALE^2) = 1.06, as h is at most 1 and a row is in one
cell. So the gradients get 6 % more noise than alone, and a count noise of 4.2 rows times ``noise``.
"""

SENSITIVITY = (1.0 + 2.0 * COUNT_SCALE**2) ** 0.5

LEAST_COUNT = 5.0
"""Rows of a batch below which a noisy cell says nothing of its rate, and is left out."""


class BatchSums(NamedTuple):
    """What one batch releases, scaled so that a row's part has norm SENSITIVITY at most.

    Attributes:
        gradients: sum of the rows' clipped gradients, over the clip.
        cells: sums over the cells, times COUNT_SCALE.
    """

    gradients: Params
    cells: RateSums


class RecentCells(NamedTuple):
    """The sums of the cells in the last batches.

    Attributes:
        mean: over batches, older ones weighing less.
        weight: of these batches together; that of the last one is 1.
    """

    mean: RateSums
    weight: jax.Array

    def with_next(self, cells: RateSums, share: jax.Array | float) -> RecentCells:
        """With the sums that one more batch released; earlier ones weigh ``share`` as much."""
        weight = share * self.weight + 1.0
        mean = jax.tree.map(
            lambda old, new: old + (new / COUNT_SCALE - old) / weight, self.mean, cells
        )
        return RecentCells(mean, weight)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("slack", "learning_rate", "kappa", "kappa_rate", "memory", "clip", "noise"),
    meta_fields=("model", "parity", "batch", "local_steps"),
)
@dataclass(frozen=True)
class PrivateFairSgd:
    """Trains one user's network fairly and privately.

    Guarantee: :meth:`sums` with noise ``noise``. Unit: one row of one user. Neighbouring relation:
    add or remove one row; the number of rows is public, and the seed secret, as for
    :class:`synthfair.federated.dp_sgd.DpSgd`.

    Args:
        model: what is trained; of one score.
        parity: the notion, of one attribute: statistical parity or equalized odds.
        slack: see :func:`synthfair.federated.fair_sgd.fair_loss`.
        learning_rate: of a plain step, positive: Adam would turn noise alone into whole steps.
        kappa: the multiplier's first value, at least 0.
        kappa_rate: its step, at least 0: kappa grows by it times l_fair.
        memory: share that earlier batches keep in the sums of the cells, 0 to below 1.
        clip: Euclidean norm that no row's gradient exceeds, positive and finite.
        noise: standard deviation of the noise, in units of the sensitivity; at least 0.
        batch: number of rows expected in a batch, at least 1, at most a user's rows.
        local_steps: at least 1.

    Raises:
        InputError: a value out of range, or a notion or attributes that the method does not have.
    """

    model: Trainable
    parity: Parity
    slack: float = 0.01
    learning_rate: float = 2.0
    kappa: float = 1.0
    kappa_rate: float = 0.1
    memory: float = 0.95
    clip: float = 1.5
    noise: float = 1.3
    batch: int = 500
    local_steps: int = 1

    def __post_init__(self) -> None:
        """Refuses values out of range."""
        require_positive(
            learning_rate=self.learning_rate,
            clip=self.clip,
            batch=self.batch,
            local_steps=self.local_steps,
        )
        require_at_least_0(kappa=self.kappa, kappa_rate=self.kappa_rate, noise=self.noise)
        require_share(slack=self.slack, memory=self.memory)
        require_clip(self.clip, self.noise)
        require_two_phase_parity(self.parity)

    def init(self, key: jax.Array) -> FairState:
        """The model's first params, and the first kappa."""
        return first_state(self.model, self.kappa, key)

    def noisy_sums(
        self, state: FairState, recent: RateSums, rows: UserRows, key: jax.Array
    ) -> BatchSums:
        """The noisy sums of one batch.

        Args:
            state: where, with kappa.
            recent: sums of the cells in a batch, as released before.
            rows: of the user.
            key: secret.
        """
        batch_key, noise_key = jax.random.split(key)
        weights = state.kappa * self.batch * cell_weights(recent, self.slack)

        def loss(scores: jax.Array, some: UserRows) -> jax.Array:
            return cross_entropy(scores, some) + self.parity.of_rows(scores, some, weights)

        def of_batch(some: UserRows) -> BatchSums:
            gradients = clipped_gradients(self.model, state.params, some, loss, self.clip)
            scores = self.model.scores(state.params, some.a)
            finite = jnp.where(jnp.isfinite(scores), scores, 0.0)  # one row moves no sum beyond all
            cells = self.parity.sums(finite, some)
            return BatchSums(
                jax.tree.map(lambda leaf: leaf / self.clip, gradients),
                jax.tree.map(lambda count: COUNT_SCALE * count, cells),
            )

        total = poisson_sum(of_batch, rows, self.batch, batch_key)
        return add_noise(total, noise_of(self.noise, SENSITIVITY), noise_key)

    def train(self, state: FairState, rows: UserRows, key: jax.Array) -> FairState:
        """Local steps down in phi and up in kappa, of noisy sums alone."""
        rate = self.learning_rate * self.clip / self.batch

        def step(carry: tuple[FairState, RecentCells], key: jax.Array) -> tuple[Any, None]:
            state, recent = carry
            released = self.noisy_sums(state, recent.mean, rows, key)
            recent = recent.with_next(released.cells, self.memory)
            unfair = fair_loss(_trusted(recent.mean), self.slack)
            params = jax.tree.map(lambda p, g: p - rate * g, state.params, released.gradients)
            return (FairState(params, state.kappa + self.kappa_rate * unfair), recent), None

        none = jnp.zeros(self.parity.shape, state.kappa.dtype)
        empty = RecentCells(RateSums(none, none), jnp.zeros((), none.dtype))
        return jax.lax.scan(step, (state, empty), jax.random.split(key, self.local_steps))[0][0]

    def sums(self, users: Users) -> SampledSums:
        """What training releases of the rows of the smallest user, sampled most."""
        return SampledSums(users.smallest, self.batch, self.local_steps)


def cell_weights(sums: RateSums, slack: jax.Array | float) -> jax.Array:
    """[Q, G] derivative of :func:`fair_loss` in the sums of h, from sums that may be noisy."""
    trusted = _trusted(sums)
    return jax.grad(lambda values: fair_loss(trusted._replace(values=values), slack))(
        trusted.values
    )


def _trusted(sums: RateSums) -> RateSums:
    """Counts that say nothing are set to 0: such cells do not count."""
    return sums._replace(counts=jnp.where(sums.counts >= LEAST_COUNT, sums.counts, 0.0))
