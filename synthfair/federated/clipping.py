"""Sums over random batches of rows, in which no row's gradient has more than a given norm.

The sum of a model's gradients, each row's clipped by itself, takes one pass forward and one back.
Of a row with score z and loss l(z) the gradient is l'(z) grad z, so that whatever is lost on a row
enters by one number, its slope l'(z). In a dense layer with inputs h and errors e (what comes back
from the score to the layer's outputs) the score's gradient is e h', whose norm is |e| |h|. So all
rows' norms, and then the clipped sum, follow without any row's gradient (Goodfellow 2015,
"Efficient per-example gradient computations", section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp

from synthfair.distill.losses import derivative, squared_norm
from synthfair.federated.networks import LogisticRegression, Perceptron, Trainable
from synthfair.federated.single_rows import UserRows
from synthfair.model import Params, logistic

RowLoss = Callable[[jax.Array, UserRows], jax.Array]
"""A function of scores [R] and rows to losses [R]; each row's depends on its own score alone."""

PASS_ERRORS = 4
"""Standard deviations more than expected for which one pass over a batch has room: with 100 rows or
more, a second pass is needed less than once in 10,000 batches."""

RowSum = TypeVar("RowSum")
"""A pytree of arrays that adds up over rows."""


def cross_entropy(scores: jax.Array, rows: UserRows) -> jax.Array:
    """Return the cross-entropy [R] of labels -1 and +1."""
    return logistic(rows.y * scores)


def noise_of(noise: jax.Array | float, sensitivity: jax.Array | float) -> jax.Array:
    """Return the standard deviation; 0 without noise even where nothing bounds the sum."""
    return jnp.where(jnp.asarray(noise) > 0, noise * jnp.asarray(sensitivity), 0.0)


def random_rows(rows: UserRows, size: int, key: jax.Array) -> UserRows:
    """Return as many rows as asked for, drawn with replacement."""
    chance = rows.weight / jnp.maximum(jnp.sum(rows.weight), 1.0)
    index = jax.random.choice(key, len(rows.weight), (size,), p=chance)
    return UserRows(*(leaf[index] for leaf in rows))


def poisson_sum(
    function: Callable[[UserRows], RowSum], rows: UserRows, expected: int, key: jax.Array
) -> RowSum:
    """Return a sum over a batch into which each row comes by itself with the same chance.

    The chance is ``expected`` divided by the number of rows, which is taken as public. No row of a
    large batch is left out: what does not fit into one pass takes another, so that the sampling is
    exactly the one that is accounted for, see :class:`synthfair.privacy.accounting.SampledSums`.

    Args:
        function: of rows, of which those of weight 0 must not enter, to their sum.
        rows: of one user.
        expected: mean size of the batch, at least 1.
        key: must be secret where the sum is made private.
    """
    room = min(len(rows.weight), expected + PASS_ERRORS * int(expected**0.5) + 1)
    size = jnp.maximum(jnp.sum(rows.weight), 1.0)
    batch = (jax.random.uniform(key, rows.weight.shape) < expected / size) & (rows.weight > 0)
    order = jnp.nonzero(batch, size=-(-len(rows.weight) // room) * room, fill_value=0)[0]
    count = jnp.sum(batch)

    @jax.jit  # so that JAX traces it once for both uses below
    def sum_of(start: jax.Array | int) -> RowSum:
        index = jax.lax.dynamic_slice_in_dim(order, start, room)
        weight = (start + jnp.arange(room) < count).astype(rows.weight.dtype)
        return function(UserRows(*(leaf[index] for leaf in rows))._replace(weight=weight))

    def add(number: jax.Array, total: RowSum) -> RowSum:
        return jax.tree.map(jnp.add, total, sum_of(number * room))

    shapes = jax.eval_shape(sum_of, 0)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // room), add, zero)


def clipped_gradients(
    model: Trainable, params: Params, rows: UserRows, loss: RowLoss, clip: jax.Array | float
) -> Params:
    """Sum over rows of v min(1, clip / |v|), where v is the gradient of a row's loss.

    Sensitivity: one row more or less changes it by at most ``clip`` in Euclidean norm. A row
    whose gradient has no finite norm counts 0.

    Args:
        model: with one score z a row.
        params: where.
        rows: R of them; those of weight 0 count nothing.
        loss: of scores and rows.
        clip: positive, or infinite.

    Returns:
        As params.
    """
    slope = rows.weight * derivative(lambda z: loss(z, rows), row_scores(model, params, rows.a))
    # A subclass may compute other scores: it takes the way that holds for any model.
    norms = _dense_norms if type(model) is Perceptron else partial(_norms, model)
    norm = jnp.abs(slope) * norms(params, rows.a)
    least = jnp.finfo(norm.dtype).tiny
    factor = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, clip / jnp.maximum(norm, least)), 0.0)

    # The sum of the rows that count, in one pass; 0 times infinity would be no number.
    counts = factor > 0
    short = jnp.where(counts, factor * slope, 0.0)
    a = jnp.where(counts.reshape(-1, *(1,) * (rows.a.ndim - 1)), rows.a, 0.0)
    return jax.grad(lambda p: short @ row_scores(model, p, a))(params)


def row_scores(model: Trainable, params: Params, a: jax.Array) -> jax.Array:
    """Return the scores [R], each computed of its row alone, whatever the model does with many."""
    if type(model) in (LogisticRegression, Perceptron):
        return model.scores(params, a)
    return jax.vmap(lambda row: model.scores(params, row[None])[0])(a)


def _norms(model: Trainable, params: Params, a: jax.Array) -> jax.Array:
    """Return the norms [R] of the gradients of scores, which are held together."""
    gradients = jax.vmap(lambda row: jax.grad(lambda p: model.scores(p, row[None])[0])(params))(a)
    return jnp.sqrt(jax.vmap(squared_norm)(gradients))


def _dense_norms(params: Params, a: jax.Array) -> jax.Array:
    """Return the same, see the head of the module; a bias weighs one more input, 1."""

    def forward(probes: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        """Return scores [R] and each layer's inputs; a probe is added to a layer's outputs."""
        inputs, outputs = [], a
        for i, ((weight, bias), probe) in enumerate(zip(params, probes, strict=True)):
            inputs.append(outputs if i == 0 else jax.nn.relu(outputs))
            outputs = inputs[-1] @ weight.T + bias + probe
        return outputs[:, 0], inputs

    probes = [jnp.zeros((len(a), len(bias)), a.dtype) for _, bias in params]
    scores, back, inputs = jax.vjp(forward, probes, has_aux=True)
    pairs = zip(*back(jnp.ones_like(scores)), inputs, strict=True)
    squares = [jnp.sum(e**2, axis=1) * (1.0 + jnp.sum(h**2, axis=1)) for e, h in pairs]
    return jnp.sqrt(sum(squares, start=jnp.zeros_like(scores)))
