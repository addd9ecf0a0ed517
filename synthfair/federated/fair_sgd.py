"""Fair-SGD: fairness by a Lagrange multiplier, on batches of a user's own rows.

    min over phi, max over kappa of   cross-entropy(phi) + kappa l_fair(phi)

Padala, Damle and Gujar (2021), equations (3) to (5) and algorithm 1. In rounds it is their
baseline B2, and with a kappa of 0 B1; one long round of it is their first phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from pydantic import AfterValidator, model_validator

from synthfair.federated.clipping import cross_entropy, random_rows
from synthfair.federated.fedavg import Averaging
from synthfair.federated.method import AtLeast0, Given, Positive, Share, given
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import UserData
from synthfair.model import Params
from synthfair.settings import notion_of


class FairPasses(Averaging):
    """Settings of methods that train fairly on each client's rows."""

    notion: Annotated[
        Literal["statistical_parity", "demographic_parity", "equalized_odds"],
        AfterValidator(notion_of),
    ] = "statistical_parity"
    """Rates that must not differ between groups."""

    alpha: Share = 0.01
    """Most by which a group's rate may differ from another's."""

    kappa: AtLeast0 = 1.0
    """Initial weight of unfairness in the loss; 0 leaves it out, unless kappa_rate lets it grow."""

    kappa_rate: AtLeast0 = 0.0
    """Kappa grows in each step by this times the unfairness; 0: it is constant. In the paper it
    grows, at a rate that is not known."""

    unconstrained: ClassVar[Mapping[str, str | float]] = {"kappa": 0.0, "kappa_rate": 0.0}


class FairState(NamedTuple):
    """The learned parameters."""

    params: Params  # phi
    kappa: jax.Array  # the multiplier, at least 0


def fair_loss(sums: RateSums, slack: jax.Array | float) -> jax.Array:
    """l_fair, equations (3) and (4): the largest gap of a rate, less the slack, at least 0.

    A group without rows does not count.

    Args:
        sums: of probabilities; one rate for statistical parity, two for equalized odds.
        slack: gap that costs nothing, 0 to below 1.
    """
    present = sums.counts > 0
    rates = sums.values / jnp.where(present, sums.counts, 1.0)
    highest = jnp.max(jnp.where(present, rates, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(present, rates, jnp.inf), axis=1)
    gaps = jnp.where(jnp.any(present, axis=1), highest - lowest, 0.0)
    return jnp.maximum(jnp.max(gaps) - slack, 0.0)


class FairSgd(FairPasses):
    """In each round every user trains by Fair-SGD from the server's state; the mean is sent back.

    Nothing is private. Batches are drawn with replacement, so that no client has too few rows; of
    500, if not given. Adam's moments start anew each round; kappa is averaged as the parameters
    are.

    Attributes:
        parity: the notion, of one attribute: statistical parity or equalized odds.

    Raises:
        InputError: a value out of range, or a notion or attributes that the method does not have.
    """

    method: Literal["fair_sgd"] = "fair_sgd"
    learning_rate: Positive = 0.01
    """Learning rate of Adam."""

    parity: Given[Parity] = given()

    @model_validator(mode="after")
    def _has_the_notion(self) -> FairSgd:
        notions, parity = ("statistical_parity", "equalized_odds"), self.parity
        if parity and (parity.notion not in notions or len(parity.groups) != 1):
            raise ValueError(
                f"parity {parity.notion!r} of {len(parity.groups)} attributes: must be one of"
                f" {', '.join(notions)}, of one attribute"
            )
        return self

    def plan(self, data: UserData) -> FairSgd:
        """Return the method, in which all clients take part in every round."""
        steps = data.users.steps(batch=self.rows, epochs=self.local_epochs)
        return self.bound_to(data, parity=Parity(self.notion, data.groups), local_steps=steps)

    # Server, before the first round

    def init(self, key: jax.Array) -> FairState:
        """Return the model's first params, and the first kappa."""
        params = self.model.init(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return FairState(params, jnp.asarray(self.kappa, dtype))

    # User; the server takes the mean, see Averaging

    def train(self, state: FairState, rows: UserRows, key: jax.Array) -> FairState:
        """Local steps of Adam down in phi, and of plain ascent in kappa."""
        adam = optax.adam(self.learning_rate)

        def step(
            carry: tuple[FairState, Any], step_key: jax.Array
        ) -> tuple[tuple[FairState, Any], None]:
            state, moments = carry
            some = random_rows(rows, self.rows, step_key)
            slope, unfair = jax.grad(
                lambda params: self.objective(state._replace(params=params), some), has_aux=True
            )(state.params)
            change, moments = adam.update(slope, moments)
            params = optax.apply_updates(state.params, change)
            return (FairState(params, state.kappa + self.kappa_rate * unfair), moments), None

        first = (state, adam.init(state.params))
        return jax.lax.scan(step, first, jax.random.split(key, self.local_steps))[0][0]

    def objective(self, state: FairState, rows: UserRows) -> tuple[jax.Array, jax.Array]:
        """Equation (5) on some rows, and l_fair."""
        scores = self.model.scores(state.params, rows.a)
        losses = rows.weight * cross_entropy(scores, rows)
        loss = jnp.sum(losses) / jnp.maximum(jnp.sum(rows.weight), 1.0)
        unfair = fair_loss(self.parity.sums(scores, rows), self.alpha)
        return loss + state.kappa * unfair, unfair

    def params(self, state: FairState) -> Params:
        """Return the last params."""
        return state.params
