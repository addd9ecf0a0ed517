"""A private student of a fair teacher, in two phases.

Padala, Damle and Gujar (2021), figure 2. Phase 1 stays on the user's side and happens once; in
phase 2 the students are averaged in rounds. The teacher is either as published, :class:`FairSgd`,
which no guarantee covers, or :class:`PrivateFairSgd`, with which one holds end to end::

    method = TwoPhase(clip=1.5).plan(data)
    labelled = method.teach(data.users, seed)
    done = run(method, labelled, method.cohorts, rounds=4, seed=seed)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import AfterValidator, model_validator

from synthfair.federated.clipping import (
    clipped_gradients,
    cross_entropy,
    noise_of,
    poisson_sum,
    random_rows,
    row_scores,
)
from synthfair.federated.dp_sgd import NoisySteps
from synthfair.federated.engine import add_noise, key_from
from synthfair.federated.fedavg import Averaging
from synthfair.federated.method import AtLeast0, Given, Positive, Share, given
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import UserData, Users
from synthfair.model import Params
from synthfair.privacy.accounting import SampledSums
from synthfair.privacy.guarantee import Summed
from synthfair.settings import notion_of

# A fair teacher


class FairPasses(Averaging):
    """The settings of methods that train fairly on each client's rows."""

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
    """Return l_fair, equations (3) and (4): the largest gap of a rate, less the slack, at least 0.

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
    """The method Fair-SGD: fairness by a Lagrange multiplier, on batches of a user's own rows.

        min over phi, max over kappa of   cross-entropy(phi) + kappa l_fair(phi)

    Equations (3) to (5) and algorithm 1. In each round every user trains from the server's state;
    the mean is sent back. In rounds it is the authors' baseline B2, and with a kappa of 0 B1; one
    long round of it is their first phase.

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

    def plan(self, data: UserData) -> FairSgd:
        """Return the method, in which all clients take part in every round."""
        steps = data.users.steps(self.rows, self.local_epochs)
        return self.bound_to(data, parity=Parity(self.notion, data.groups), local_steps=steps)

    # Server, before the first round

    def init(self, key: jax.Array) -> FairState:
        """Return the model's first params, and the first kappa."""
        params = self.model.init(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return FairState(params, jnp.asarray(self.kappa, dtype))

    # User; the server takes the mean, see Averaging

    def train(self, state: FairState, rows: UserRows, key: jax.Array) -> FairState:
        """Return the state after local steps of Adam down in phi, and of plain ascent in kappa."""
        adam = optax.adam(self.learning_rate)

        def step(carry: tuple[FairState, Any], step_key: jax.Array) -> tuple[Any, None]:
            state, moments = carry
            batch = random_rows(rows, self.rows, step_key)
            slope, unfair = jax.grad(
                lambda params: self.objective(state._replace(params=params), batch), has_aux=True
            )(state.params)
            change, moments = adam.update(slope, moments)
            params = optax.apply_updates(state.params, change)
            return (FairState(params, state.kappa + self.kappa_rate * unfair), moments), None

        first = (state, adam.init(state.params))
        return jax.lax.scan(step, first, jax.random.split(key, self.local_steps))[0][0]

    def objective(self, state: FairState, rows: UserRows) -> tuple[jax.Array, jax.Array]:
        """Return equation (5) on some rows, and l_fair."""
        scores = self.model.scores(state.params, rows.a)
        losses = rows.weight * cross_entropy(scores, rows)
        loss = jnp.sum(losses) / jnp.maximum(jnp.sum(rows.weight), 1.0)
        unfair = fair_loss(self.parity.sums(scores, rows), self.alpha)
        return loss + state.kappa * unfair, unfair

    def params(self, state: FairState) -> Params:
        """Return the last params."""
        return state.params


# A private teacher

COUNT_SCALE = 0.25
"""A row's part in the sums of the cells, (h, 1), is sent times this; a gradient has norm 1 at most.

The joint sensitivity is sqrt(1 + 2 COUNT_SCALE^2) = 1.06, as h is at most 1 and a row is in one
cell. So the gradients get 6 % more noise than alone, and a count noise of 4.2 rows times ``noise``.
"""

SENSITIVITY = (1.0 + 2.0 * COUNT_SCALE**2) ** 0.5

MIN_CELL_ROWS = 5.0
"""Rows of a batch below which a noisy cell says nothing of its rate, and is left out."""


class PrivateFairSgd(FairSgd):
    """A teacher that one user trains fairly and privately.

    The gap of a batch is no sum over rows, so that no clipping of its gradient bounds what one row
    does. But the gap's gradient is one, once the rates' counts and the sign of their difference are
    known: with noisy sums of h and of 1 for each cell (group, and label), each row's loss

        l_i + kappa v[cell of i] h_i,   v = batch (+1 / N highest cell, -1 / N lowest cell, else 0)

    depends on that row and on what was released before. So its gradient is clipped row by row.
    These are the sums of Rodríguez-Gálvez et al. (2021), (17), on users of one row, with the
    gradients of the cells added up before the noise and not after, which takes one sum of gradients
    and not one for each cell.

    Guarantee: :meth:`sums` with noise ``noise``. Unit: one row of one user. Neighbouring relation:
    add or remove one row; the number of rows is public, and the seed secret, as for
    :class:`synthfair.federated.dp_sgd.DpSgd`.

    Attributes:
        learning_rate: of a plain step, positive: Adam would turn noise alone into whole steps.
        batch: number of rows expected in a batch, at least 1, at most a user's rows.
        memory: share that earlier batches keep in the sums of the cells, 0 to below 1.
        clip: Euclidean norm that no row's gradient exceeds, positive and finite.
        noise: standard deviation of the noise, in units of the sensitivity; at least 0.
    """

    learning_rate: Positive = 2.0
    memory: Share = 0.95
    clip: Positive = 1.5
    noise: AtLeast0 = 0.0

    def train(self, state: FairState, rows: UserRows, key: jax.Array) -> FairState:
        """Return the state after local steps down in phi and up in kappa, of noisy sums alone."""
        rate = self.learning_rate * self.clip / self.rows

        def step(carry: tuple[FairState, RateSums, jax.Array], key: jax.Array) -> tuple[Any, None]:
            # What a batch releases joins the mean over the last batches, older ones weighing less.
            state, recent, weight = carry
            gradients, cells = self.noisy_sums(state, recent, rows, key)
            weight = self.memory * weight + 1.0
            recent = jax.tree.map(
                lambda old, new: old + (new / COUNT_SCALE - old) / weight, recent, cells
            )
            # Phi goes down, kappa up.
            params = jax.tree.map(lambda p, g: p - rate * g, state.params, gradients)
            unfair = fair_loss(_trust(recent), self.alpha)
            state = FairState(params, state.kappa + self.kappa_rate * unfair)
            return (state, recent, weight), None

        none = jnp.zeros(self.parity.shape, state.kappa.dtype)
        first = state, RateSums(none, none), jnp.zeros((), none.dtype)
        return jax.lax.scan(step, first, jax.random.split(key, self.local_steps))[0][0]

    def noisy_sums(
        self, state: FairState, recent: RateSums, rows: UserRows, key: jax.Array
    ) -> tuple[Params, RateSums]:
        """Return the noisy sums of one batch, in which a row's part has norm SENSITIVITY at most.

        Args:
            state: where, with kappa.
            recent: sums of the cells in a batch, as released before.
            rows: of the user.
            key: secret.

        Returns:
            The sum of the rows' clipped gradients, over the clip; the sums over the cells, times
            COUNT_SCALE.
        """
        batch_key, noise_key = jax.random.split(key)
        weights = state.kappa * self.rows * cell_weights(recent, self.alpha)

        def loss(scores: jax.Array, batch: UserRows) -> jax.Array:
            return cross_entropy(scores, batch) + self.parity.of_rows(scores, batch, weights)

        def of_batch(batch: UserRows) -> tuple[Params, RateSums]:
            gradients = clipped_gradients(self.model, state.params, batch, loss, self.clip)
            scores = row_scores(self.model, state.params, batch.a)
            finite = jnp.where(jnp.isfinite(scores), scores, 0.0)  # one row moves no sum beyond all
            cells = self.parity.sums(finite, batch)
            gradients = jax.tree.map(lambda leaf: leaf / self.clip, gradients)
            return gradients, jax.tree.map(lambda count: COUNT_SCALE * count, cells)

        total = poisson_sum(of_batch, rows, self.rows, batch_key)
        return add_noise(total, noise_of(self.noise, SENSITIVITY), noise_key)

    def sums(self, users: Users) -> SampledSums:
        """Return the sums that training releases of the rows of the smallest user, sampled most."""
        return SampledSums(users.smallest, self.rows, self.local_steps)


def cell_weights(sums: RateSums, slack: jax.Array | float) -> jax.Array:
    """Return the derivative [Q, G] of :func:`fair_loss` in the sums of h, which may be noisy."""
    cells = _trust(sums)
    return jax.grad(lambda values: fair_loss(cells._replace(values=values), slack))(cells.values)


def _trust(sums: RateSums) -> RateSums:
    """Return sums in which counts that say nothing are 0: such cells do not count."""
    return sums._replace(counts=jnp.where(sums.counts >= MIN_CELL_ROWS, sums.counts, 0.0))


# Both phases


class TwoPhase(FairPasses, NoisySteps):
    """A fair teacher once, and a student of it by noisy steps, averaged.

    The student is trained in rounds, of users whose labels :meth:`teach` has replaced.

    Guarantee: the plan's, for what each user sends in all rounds together; without a private
    teacher conditional on it. Unit: one row of one
    user. Neighbouring relation: add or remove one row. The seed must come from the operating
    system's entropy, and stay secret, where this is claimed. The learning rate is the student's;
    the teacher's is 0.01, of Adam, or end to end 2. The authors' clip is 1.5, their rate 0.25.

    Attributes:
        teacher: phase 1, trained by each user for itself.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> method = sf.federated.TwoPhase(batch=20, clip=1.5, epsilon=2.0, delta=1e-4)
        >>> rows, user = sf.encode(table, schema), np.arange(len(table)) % 2
        >>> plan = method.plan(sf.federated.make_user_data(rows, user, schema, method))
        >>> plan.guarantee.condition, [sums.name for sums in plan.guarantee.mechanisms]
        ('teacher', ['student_gradients'])
    """

    method: Literal["two_phase"] = "two_phase"
    end_to_end: bool = False
    """Whether the teachers are private, too. If not, epsilon is conditional on them, and nothing is
    guaranteed from end to end."""

    teacher_epochs: Positive = 10.0
    """Passes of the teacher over the smallest client's rows; the paper's number is lost."""

    teacher: Given[FairSgd] = given()

    @model_validator(mode="after")
    def _bounds_the_teacher(self) -> TwoPhase:
        if self.end_to_end and self.clip is None:
            raise ValueError("end_to_end needs clip: what a row may add to a sum must be bounded")
        return self

    def plan(self, data: UserData) -> TwoPhase:
        """Return the students' rounds, with the teachers that are trained before them."""
        users, clip, batch = data.users, self.clip or math.inf, self.batch_of(data.users)
        local, before = (users.steps(batch, n) for n in (self.local_epochs, self.teacher_epochs))
        method = self.bound_to(data, batch=batch, local_steps=local)
        sums: dict[Summed, tuple[SampledSums, float]] = {}
        shared: dict[str, Any] = self.model_dump(include={"alpha", "kappa", "kappa_rate"})
        shared |= {"model": method.model, "parity": Parity(self.notion, data.groups)}
        teacher = FairSgd(**shared, batch=batch, local_steps=before)
        if self.end_to_end:
            teacher = PrivateFairSgd(**shared, batch=batch, local_steps=before, clip=clip)
            sums["teacher_gradients"] = teacher.sums(users), teacher.clip * SENSITIVITY
        sums["student_gradients"] = method.sums(users, self.rounds), clip
        condition = None if self.end_to_end else "teacher"
        guarantee = self.promise(users.smallest, sums, condition=condition)
        noise = guarantee.samples[-1].noise / clip if guarantee else 0.0
        teacher = teacher.bound(noise=noise) if self.end_to_end else teacher
        return method.bound(noise=noise, guarantee=guarantee, teacher=teacher)

    def teach(self, users: Users, seed: int, numbers: Sequence[int] | None = None) -> Users:
        """Return the users with their teachers' decisions for labels: phase 1."""
        which = jnp.asarray(range(len(users)) if numbers is None else numbers)
        decisions = np.asarray(_decisions(self.teacher, users, which, key_from(seed, 4)))
        owner = np.repeat(np.arange(len(users)), users.size)
        place = np.arange(len(owner)) - np.asarray(users.first)[owner]
        return replace(users, y=jnp.asarray(decisions[owner, place], users.y.dtype))


@jax.jit
def _decisions(teacher: FairSgd, users: Users, numbers: jax.Array, key: jax.Array) -> jax.Array:
    """Return the teachers' decisions [K, R], -1 or +1, one user after the other."""

    def of_user(which: tuple[jax.Array, jax.Array]) -> jax.Array:
        user, number = which
        rows = users.rows_of(user)
        first, training = jax.random.split(jax.random.fold_in(key, number))
        end = teacher.train(teacher.init(first), rows, training)
        return jnp.where(teacher.model.scores(end.params, rows.a) > 0, 1.0, -1.0)

    return jax.lax.map(of_user, (jnp.arange(len(users)), numbers))
