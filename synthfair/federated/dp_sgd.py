"""DP-SGD on every user's own rows (Abadi et al. 2016, algorithm 1), averaged in rounds."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import jax
from pydantic import model_validator

from synthfair.federated.clipping import clipped_gradients, cross_entropy, noise_of, poisson_sum
from synthfair.federated.engine import add_noise
from synthfair.federated.fedavg import Averaging
from synthfair.federated.method import AtLeast0, Given, Private, given
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import UserData, Users
from synthfair.model import Params
from synthfair.privacy.accounting import SampledSums


class NoisySteps(Averaging, Private):
    """A method in which users take noisy steps on their cross-entropy, and are averaged in rounds.

        g = (sum over a Poisson batch of clip(w_i grad l_i) + N(0, (noise clip)^2 I)) / batch

    Guarantee: :meth:`sums` with noise ``noise``, against whoever sees what the user sends, all
    rounds together. Unit: one row of one user. Neighbouring relation: add or remove one row; the
    labels of the others are the same in both, which is for whoever makes the labels to ensure. A
    user's number of rows is public: it sets the chance of a row, and the weight in the mean,
    whatever the rows' own weights w_i. These are public, or private by themselves. The
    seed of the run gives batches and noise: it must come from the operating system's entropy, and
    stay secret, where this is claimed.

    Attributes:
        noise: standard deviation of the noise in the sum, in units of clip; at least 0.
        row_weights: [G, 2] of w, by a row's group and label -1 or +1; all 1 if None. They multiply
            before clipping, and so change no guarantee.
    """

    noise: AtLeast0 = given(0.0)
    row_weights: Given[jax.Array | None] = given()

    @model_validator(mode="after")
    def _bounds_the_noise(self) -> NoisySteps:
        if self.noise > 0 and self.clip is None:
            raise ValueError("noise needs clip: what a row may add to a sum must be bounded")
        return self

    def plan(self, data: UserData) -> Self:
        """Return the method, with the least noise that the budget needs in each client's steps."""
        users, clip, batch = data.users, self.clip or math.inf, self.batch_of(data.users)
        steps = users.steps(batch, self.local_epochs)
        method = self.bound_to(data, batch=batch, local_steps=steps, row_weights=data.row_weights)
        sums = method.sums(users, self.rounds)
        guarantee = self.promise(users.smallest, {"gradients": (sums, clip)})
        noise = guarantee.samples[0].noise / clip if guarantee else 0.0
        return method.bound(noise=noise, guarantee=guarantee)

    # Server, before the first round

    def init(self, key: jax.Array) -> Params:
        """Return the model's first params, which are the state."""
        return self.model.init(key)

    # User; the server takes the mean, see Averaging

    def train(self, state: Params, rows: UserRows, key: jax.Array) -> Params:
        """Return the params after local steps; the labels are what there is to learn."""

        def step(params: Params, step_key: jax.Array) -> tuple[Params, None]:
            slope = self.noisy_gradient(params, rows, step_key)
            return jax.tree.map(lambda p, g: p - self.learning_rate * g, params, slope), None

        return jax.lax.scan(step, state, jax.random.split(key, self.local_steps))[0]

    def noisy_gradient(self, params: Params, rows: UserRows, key: jax.Array) -> Params:
        """Return the g of one step."""
        clip = math.inf if self.clip is None else self.clip
        batch_key, noise_key = jax.random.split(key)

        def loss(scores: jax.Array, batch: UserRows) -> jax.Array:
            return batch.factors(self.row_weights) * cross_entropy(scores, batch)

        def of_batch(batch: UserRows) -> Params:
            return clipped_gradients(self.model, params, batch, loss, clip)

        total = poisson_sum(of_batch, rows, self.rows, batch_key)
        noisy = add_noise(total, noise_of(self.noise, clip), noise_key)
        return jax.tree.map(lambda leaf: leaf / self.rows, noisy)

    # What it costs

    def sums(self, users: Users, rounds: int) -> SampledSums:
        """Return the sums released of the rows of the smallest user, which are sampled most."""
        return SampledSums(users.smallest, self.batch_of(users), rounds * self.local_steps)


class DpSgd(NoisySteps):
    """The method DP-SGD: noisy steps on each client's rows, averaged; rows may have weights."""

    method: Literal["dp_sgd"] = "dp_sgd"

    takes_weights: ClassVar[bool] = True
