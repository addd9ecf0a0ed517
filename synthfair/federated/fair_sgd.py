"""Fair-SGD: fairness by a Lagrange multiplier, on batches of a user's own rows.

    min over phi, max over kappa of   cross-entropy(phi) + kappa l_fair(phi)

Padala, Damle and Gujar (2021), equations (3) to (5) and algorithm 1. In rounds it is their
baseline B2, and without a notion B1; one long round of it is their first phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from synthfair.errors import InputError
from synthfair.federated.algorithm import require_at_least_0, require_positive, require_share
from synthfair.federated.dp_sgd import cross_entropy
from synthfair.federated.fedavg import Averaged, Movement, movement
from synthfair.federated.networks import Trainable
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.users import UserRows
from synthfair.model import Params


class FairState(NamedTuple):
    """What is learned.

    Attributes:
        params: phi.
        kappa: the multiplier, at least 0.
    """

    params: Params
    kappa: jax.Array


def first_state(model: Trainable, kappa: jax.Array | float, key: jax.Array) -> FairState:
    """The model's first params, and the first kappa."""
    params = model.init(key)
    return FairState(params, jnp.asarray(kappa, jnp.result_type(*jax.tree.leaves(params))))


def fair_loss(sums: RateSums, slack: jax.Array | float) -> jax.Array:
    """l_fair, equations (3) and (4): the largest gap of a rate, less the slack, at least 0.

    A group without rows does not count.

    Args:
        sums: of probabilities; one rate for statistical parity, two for equalized odds.
        slack: gap that costs nothing, 0 to below 1.
    """
    there = sums.counts > 0
    rates = sums.values / jnp.where(there, sums.counts, 1.0)
    highest = jnp.max(jnp.where(there, rates, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(there, rates, jnp.inf), axis=1)
    gaps = jnp.where(jnp.any(there, axis=1), highest - lowest, 0.0)
    return jnp.maximum(jnp.max(gaps) - slack, 0.0)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("slack", "learning_rate", "kappa", "kappa_rate"),
    meta_fields=("model", "parity", "batch", "local_steps"),
)
@dataclass(frozen=True)
class FairSgd(Averaged):
    """In each round every user trains by Fair-SGD from the server's state; the mean is sent back.

    Nothing is private. Batches are drawn with replacement. Adam's moments start anew each round;
    kappa is averaged as the parameters are.

    Args:
        model: what is trained; of one score.
        parity: the notion, of one attribute: statistical parity or equalized odds; None: accuracy
            alone.
        slack: see :func:`fair_loss`.
        learning_rate: of Adam, positive.
        kappa: the multiplier's first value, at least 0.
        kappa_rate: its step, at least 0: kappa grows by it times l_fair.
        batch: number of rows in a batch, at least 1.
        local_steps: of a user in a round, at least 1.

    Raises:
        InputError: a value out of range, or a notion or attributes that the method does not have.
    """

    model: Trainable
    parity: Parity | None = None
    slack: float = 0.01
    learning_rate: float = 0.01
    kappa: float = 1.0
    kappa_rate: float = 0.1
    batch: int = 500
    local_steps: int = 1

    def __post_init__(self) -> None:
        """Refuses values out of range."""
        require_positive(
            learning_rate=self.learning_rate, batch=self.batch, local_steps=self.local_steps
        )
        require_at_least_0(kappa=self.kappa, kappa_rate=self.kappa_rate)
        require_share(slack=self.slack)
        require_two_phase_parity(self.parity)

    def init(self, key: jax.Array) -> FairState:
        """The model's first params, and the first kappa."""
        return first_state(self.model, self.kappa, key)

    def objective(self, state: FairState, rows: UserRows) -> tuple[jax.Array, jax.Array]:
        """Equation (5) on some rows, and l_fair."""
        scores = self.model.scores(state.params, rows.a)
        losses = rows.weight * cross_entropy(scores, rows)
        loss = jnp.sum(losses) / jnp.maximum(jnp.sum(rows.weight), 1.0)
        if self.parity is None:
            return loss, jnp.zeros_like(loss)
        unfair = fair_loss(self.parity.sums(scores, rows), self.slack)
        return loss + state.kappa * unfair, unfair

    def train(self, state: FairState, rows: UserRows, key: jax.Array) -> FairState:
        """Local steps of Adam down in phi, and of plain ascent in kappa."""
        adam = optax.adam(self.learning_rate)

        def step(
            carry: tuple[FairState, Any], step_key: jax.Array
        ) -> tuple[tuple[FairState, Any], None]:
            state, moments = carry
            some = random_rows(rows, self.batch, step_key)
            slope, unfair = jax.grad(
                lambda params: self.objective(state._replace(params=params), some), has_aux=True
            )(state.params)
            change, moments = adam.update(slope, moments)
            params = optax.apply_updates(state.params, change)
            return (FairState(params, state.kappa + self.kappa_rate * unfair), moments), None

        first = (state, adam.init(state.params))
        return jax.lax.scan(step, first, jax.random.split(key, self.local_steps))[0][0]

    def report(self, state: FairState, rows: UserRows, key: jax.Array) -> Movement:
        """By how much training moved the state."""
        return movement(state, self.train(state, rows, key), rows)

    def params(self, state: FairState) -> Params:
        """The last."""
        return state.params


def random_rows(rows: UserRows, size: int, key: jax.Array) -> UserRows:
    """As many rows as asked for, each drawn from all that are there, with replacement."""
    chance = rows.weight / jnp.maximum(jnp.sum(rows.weight), 1.0)
    which = jax.random.choice(key, len(rows.weight), (size,), p=chance)
    return UserRows(*(part[which] for part in rows))


def require_two_phase_parity(parity: Parity | None) -> None:
    """Refuses notions and attributes that the method does not have. Raises InputError."""
    allowed = ("statistical_parity", "equalized_odds")
    if parity is not None and (parity.notion not in allowed or len(parity.groups) != 1):
        raise InputError(
            f"parity {parity.notion!r} of {len(parity.groups)} attributes: must be one of"
            f" {', '.join(allowed)}, of one attribute"
        )
