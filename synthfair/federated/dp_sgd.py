"""DP-SGD on every user's own rows (Abadi et al. 2016, algorithm 1), averaged in rounds.

The sum of a model's gradients, each row's clipped by itself, takes one pass forward and one back.
Of a row with score z and loss l(z) the gradient is l'(z) grad z, so that whatever is lost on a row
enters by one number, its slope l'(z). In a dense layer with inputs h and errors e (the slope as it
comes back to the layer's outputs) the row's gradient is e h', whose norm is |e| |h|. So all rows'
norms, and then the clipped sum, follow without any row's gradient (Goodfellow 2015, "Efficient
per-example gradient computations", section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from synthfair.errors import InputError
from synthfair.federated.algorithm import require_at_least_0, require_positive
from synthfair.federated.engine import add_noise
from synthfair.federated.fedavg import Averaged, Movement, movement
from synthfair.federated.networks import Network, Perceptron, Trainable
from synthfair.federated.users import UserRows, Users
from synthfair.model import Params, derivative, logistic, squared_norm
from synthfair.privacy.sampled import SampledSums

RowLoss = Callable[[jax.Array, UserRows], jax.Array]
"""Of scores [R] and rows to losses [R]; each row's depends on its own score alone."""

RowSum = TypeVar("RowSum")
"""A pytree of arrays that adds up over rows."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("learning_rate", "clip", "noise", "row_weights"),
    meta_fields=("model", "batch", "local_steps"),
)
@dataclass(frozen=True)
class DpSgd(Averaged):
    """In each round every user takes noisy steps on its cross-entropy; the mean is sent back.

        g = (sum over a Poisson batch of clip(w_i grad l_i) + N(0, (noise clip)^2 I)) / batch

    Guarantee: :meth:`sums` with noise ``noise``, against whoever sees what the user sends, all
    rounds together. Unit: one row of one user. Neighbouring relation: add or remove one row; the
    labels of the others are the same in both, which is for whoever makes the labels to ensure. A
    user's number of rows is public: it sets the chance of a row, and the weight in the mean,
    whatever the rows' own weights w_i. These are public, or private by themselves. The
    seed of the run gives batches and noise: it must come from the operating system's entropy, and
    stay secret, where this is claimed.

    Args:
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

    model: Trainable
    learning_rate: float = 0.25
    clip: float = 1.5
    noise: float = 1.3
    batch: int = 500
    local_steps: int = 1
    row_weights: jax.Array | None = None

    def __post_init__(self) -> None:
        """Refuses values out of range."""
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

        def loss(scores: jax.Array, some: UserRows) -> jax.Array:
            return some.factors(self.row_weights) * cross_entropy(scores, some)

        def of_batch(some: UserRows) -> Params:
            return clipped_gradients(self.model, params, some, loss, self.clip)

        total = poisson_sum(of_batch, rows, self.batch, batch_key)
        noisy = add_noise(total, noise_of(self.noise, self.clip), noise_key)
        return jax.tree.map(lambda leaf: leaf / self.batch, noisy)

    def params(self, state: Params) -> Params:
        """The last."""
        return state

    def sums(self, users: Users, rounds: int) -> SampledSums:
        """What a run releases of the rows of the smallest user, whose rows are sampled most."""
        return SampledSums(users.smallest, self.batch, rounds * self.local_steps)


def cross_entropy(scores: jax.Array, rows: UserRows) -> jax.Array:
    """[R] of labels -1 and +1."""
    return logistic(rows.y * scores)


def noise_of(noise: jax.Array | float, sensitivity: jax.Array | float) -> jax.Array:
    """Standard deviation; 0 without noise even where nothing bounds the sum."""
    return jnp.where(jnp.asarray(noise) > 0, noise * jnp.asarray(sensitivity), 0.0)


def require_clip(clip: float, noise: float) -> None:
    """Refuses a clip that is not positive, and noise that nothing bounds. Raises InputError."""
    if not (isinstance(clip, int | float) and isinstance(noise, int | float)):
        return  # JAX builds the same dataclass again from what it traces
    if not clip > 0:
        raise InputError(f"clip = {clip}: must be positive, or infinite for none")
    if clip == math.inf and noise > 0:
        raise InputError(f"noise = {noise}: must be 0 where clip is infinite")


# Batches


def poisson_sum(
    function: Callable[[UserRows], RowSum],
    rows: UserRows,
    expected: int,
    key: jax.Array,
    *,
    room: int | None = None,
) -> RowSum:
    """A sum over a batch into which each row comes by itself with the same chance.

    The chance is ``expected`` divided by the number of rows, which is taken as public. No row of a
    large batch is left out: what does not fit into one pass takes another, so that the sampling is
    exactly the one that is accounted for, see :class:`synthfair.privacy.sampled.SampledSums`.

    Args:
        function: of rows, of which those of weight 0 must not enter, to their sum.
        rows: of one user.
        expected: mean size of the batch, at least 1.
        key: must be secret where the sum is made private.
        room: rows of one pass; if not given, four standard deviations more than expected, so that
            with 100 or more a second pass is needed less than once in 10,000 batches.
    """
    room = min(len(rows.weight), room or expected + 4 * int(expected**0.5) + 1)
    size = jnp.maximum(jnp.sum(rows.weight), 1.0)
    chosen = (jax.random.uniform(key, rows.weight.shape) < expected / size) & (rows.weight > 0)
    order = jnp.nonzero(chosen, size=-(-len(rows.weight) // room) * room, fill_value=0)[0]
    count = jnp.sum(chosen)

    @jax.jit  # so that JAX traces it once for both uses below
    def sum_of(start: jax.Array | int) -> RowSum:
        which = jax.lax.dynamic_slice_in_dim(order, start, room)
        there = (start + jnp.arange(room) < count).astype(rows.weight.dtype)
        return function(UserRows(*(part[which] for part in rows))._replace(weight=there))

    def add(number: jax.Array, total: RowSum) -> RowSum:
        return jax.tree.map(jnp.add, total, sum_of(number * room))

    shapes = jax.eval_shape(sum_of, 0)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // room), add, zero)


# Gradients, each row's clipped


def clipped_gradients(
    model: Trainable, params: Params, rows: UserRows, loss: RowLoss, clip: jax.Array | float
) -> Params:
    """Sum over rows of their clipped gradients of a loss, see :func:`clipped_sum`."""
    scores = model.scores(params, rows.a)
    slope = rows.weight * derivative(lambda z: loss(z, rows), scores)
    return clipped_sum(model, params, rows.a, slope, clip)


def clipped_sum(
    model: Trainable, params: Params, a: jax.Array, slope: jax.Array, clip: jax.Array | float
) -> Params:
    """Sum over rows of v min(1, clip / |v|), where v = slope grad z is a row's gradient.

    Sensitivity: one row more or less changes it by at most ``clip`` in Euclidean norm. A row
    whose gradient has no finite norm counts 0.

    Args:
        model: with one score z a row.
        params: where.
        a: [R, n] model inputs.
        slope: [R] derivative of each row's loss in its score; 0 for padding.
        clip: positive, or infinite.

    Returns:
        As params.
    """
    # A subclass may compute other scores: it takes the way that holds for any model.
    if type(model) is Network and type(model.build) is Perceptron:
        return _dense_layers(params, a, slope, clip)
    return _one_by_one(model, params, a, slope, clip)


def _one_by_one(
    model: Trainable, params: Params, a: jax.Array, slope: jax.Array, clip: jax.Array | float
) -> Params:
    """Of any model: holds all rows' gradients."""

    def gradient(row: jax.Array, change: jax.Array) -> tuple[Params, jax.Array]:
        of_score = jax.grad(lambda p: model.scores(p, row[None])[0])(params)
        own = jax.tree.map(lambda leaf: change * leaf, of_score)
        return own, jnp.sqrt(squared_norm(own))

    gradients, norm = jax.vmap(gradient)(a, slope)
    factor = _factor(norm, clip)

    def total(leaf: jax.Array) -> jax.Array:
        counts = factor.reshape(-1, *(1,) * (leaf.ndim - 1)) > 0
        return jnp.tensordot(factor, jnp.where(counts, leaf, 0.0), axes=1)

    return jax.tree.map(total, gradients)


def _factor(norm: jax.Array, clip: jax.Array | float) -> jax.Array:
    """[R] by which a row's gradient is multiplied; 0 where it has no finite norm."""
    least = jnp.finfo(norm.dtype).tiny
    return jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, clip / jnp.maximum(norm, least)), 0.0)


def _dense_layers(
    params: Params, a: jax.Array, slope: jax.Array, clip: jax.Array | float
) -> Params:
    """See the head of the module; the bias is the weight of one more input, 1."""
    layers = [layer for layer in params.layers if isinstance(layer, eqx.nn.Linear)]
    probes = [jnp.zeros((len(a), len(layer.weight)), a.dtype) for layer in layers]
    _, back, inputs = jax.vjp(lambda p: _forward(layers, a, p), probes, has_aux=True)
    (errors,) = back(slope)
    pairs = list(zip(errors, inputs, strict=True))
    squares = sum(jnp.sum(e**2, axis=1) * (1.0 + jnp.sum(h**2, axis=1)) for e, h in pairs)
    factor = _factor(jnp.sqrt(jnp.asarray(squares)), clip)[:, None]
    leaves = []
    for e, h in pairs:
        clipped = jnp.where(factor > 0, factor * e, 0.0)  # 0 times infinity would be no number
        leaves += [clipped.T @ jnp.where(factor > 0, h, 0.0), jnp.sum(clipped, axis=0)]
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


def _forward(
    layers: Sequence[eqx.nn.Linear], a: jax.Array, probes: Sequence[jax.Array]
) -> tuple[jax.Array, list[jax.Array]]:
    """Scores [R] and each layer's inputs; a probe is added to a layer's outputs."""
    inputs, outputs = [], a
    for i, (layer, probe) in enumerate(zip(layers, probes, strict=True)):
        inputs.append(outputs if i == 0 else jax.nn.relu(outputs))
        outputs = inputs[-1] @ layer.weight.T + jnp.asarray(layer.bias) + probe
    return outputs[:, 0], inputs
