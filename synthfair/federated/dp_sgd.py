"""DP-SGD on every user's own rows (Abadi et al. 2016, algorithm 1), averaged in rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import jax
from pydantic import Field

from synthfair.errors import InputError
from synthfair.federated.algorithm import AtLeast0, Count, Positive, algorithm, static
from synthfair.federated.engine import add_noise
from synthfair.federated.fedavg import Averaging
from synthfair.federated.method_settings import ROWS, PassSettings, PrivacySettings, TrainingPlan
from synthfair.federated.networks import Trainable
from synthfair.federated.row_sums import clipped_gradients, cross_entropy, noise_of, poisson_sum
from synthfair.federated.user_rows import UserRows
from synthfair.federated.users import Cohorts, UserData, Users
from synthfair.model import Params
from synthfair.privacy.accounting import SampledSums

Bound = Annotated[float, Field(gt=0)]
"""A bound of a norm; infinite for none."""


class NoisyPassSettings(PassSettings, PrivacySettings):
    """Settings of methods that train by DP-SGD on each client's rows."""

    def plan(self, data: UserData) -> TrainingPlan:
        """The least noise that the budget needs is in each client's steps."""
        users, clip, batch = data.users, self.clip or math.inf, self.batch_of(data.users)
        steps = users.steps(batch=batch, epochs=self.local_epochs)
        algorithm = DpSgd(
            self.trainable(data), self.learning_rate, clip, 0.0, batch, steps, data.row_weights
        )
        sums = algorithm.sums(users, self.rounds)
        guarantee = self.guarantee(users.smallest, ROWS, {"gradients": (sums, clip)})
        if guarantee:
            algorithm = replace(algorithm, noise=guarantee.samples[0].noise / clip)
        return TrainingPlan(algorithm, Cohorts.everyone(len(users)), guarantee=guarantee)


class DpSgdSettings(NoisyPassSettings):
    """Settings of ``dp_sgd``: noisy steps on each client's rows, averaged."""

    method: Literal["dp_sgd"] = "dp_sgd"

    row_weights: ClassVar[bool] = True


@algorithm
class DpSgd(Averaging):
    """In each round every user takes noisy steps on its cross-entropy; the mean is sent back.

        g = (sum over a Poisson batch of clip(w_i grad l_i) + N(0, (noise clip)^2 I)) / batch

    Guarantee: :meth:`sums` with noise ``noise``, against whoever sees what the user sends, all
    rounds together. Unit: one row of one user. Neighbouring relation: add or remove one row; the
    labels of the others are the same in both, which is for whoever makes the labels to ensure. A
    user's number of rows is public: it sets the chance of a row, and the weight in the mean,
    whatever the rows' own weights w_i. These are public, or private by themselves. The
    seed of the run gives batches and noise: it must come from the operating system's entropy, and
    stay secret, where this is claimed.

    Attributes:
        model: what is trained; of one score.
        learning_rate: of a step, positive.
        clip: Euclidean norm that no row's gradient exceeds, positive; infinite without noise only.
        noise: standard deviation of the noise in the sum, in units of clip; at least 0.
        batch: number of rows expected in a batch, at least 1, at most a user's rows.
        local_steps: of a user in a round, at least 1.
        row_weights: [G, 2] of w, by a row's group and label -1 or +1; all 1 if None. They multiply
            before clipping, and so change no guarantee.

    Raises:
        InputError: a value out of range.
    """

    model: Trainable = static()
    learning_rate: Positive = 0.25
    clip: Bound = 1.5
    noise: AtLeast0 = 1.3
    batch: Count = static(default=500)
    local_steps: Count = static(default=1)
    row_weights: jax.Array | None = None

    def __post_init__(self) -> None:
        """Refuses noise that nothing bounds."""
        numbers = isinstance(self.clip, float) and isinstance(
            self.noise, float
        )  # JAX traces others
        if numbers and self.clip == math.inf and self.noise > 0:
            raise InputError(f"noise = {self.noise}: must be 0 where clip is infinite")

    # Server, before the first round

    def init(self, key: jax.Array) -> Params:
        """The model's first params are the state."""
        return self.model.init(key)

    # User; the server takes the mean, see Averaging

    def train(self, state: Params, rows: UserRows, key: jax.Array) -> Params:
        """Local steps; the labels are what there is to learn."""

        def step(params: Params, step_key: jax.Array) -> tuple[Params, None]:
            slope = self.noisy_gradient(params, rows, step_key)
            return jax.tree.map(lambda p, g: p - self.learning_rate * g, params, slope), None

        return jax.lax.scan(step, state, jax.random.split(key, self.local_steps))[0]

    def noisy_gradient(self, params: Params, rows: UserRows, key: jax.Array) -> Params:
        """The g of one step."""
        batch_key, noise_key = jax.random.split(key)

        def loss(scores: jax.Array, some: UserRows) -> jax.Array:
            return some.factors(self.row_weights) * cross_entropy(scores, some)

        def of_batch(some: UserRows) -> Params:
            return clipped_gradients(self.model, params, some, loss, self.clip)

        total = poisson_sum(of_batch, rows, self.batch, batch_key)
        noisy = add_noise(total, noise_of(self.noise, self.clip), noise_key)
        return jax.tree.map(lambda leaf: leaf / self.batch, noisy)

    def params(self, state: Params) -> Params:
        """Returns the last params."""
        return state

    # What it costs

    def sums(self, users: Users, rounds: int) -> SampledSums:
        """The sums released of the rows of the smallest user, whose rows are sampled most."""
        return SampledSums(users.smallest, self.batch, rounds * self.local_steps)
