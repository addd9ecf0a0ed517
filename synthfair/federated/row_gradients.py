"""The sum of a model's gradients over rows, each row's clipped by itself.

Of a row with score z and loss l(z) the gradient is l'(z) grad z, so that whatever is lost on a row
enters by one number, its slope l'(z). In a dense layer with inputs h and errors e (the slope as it
comes back to the layer's outputs) the row's gradient is e h', whose norm is |e| |h|. So all rows'
norms, and then the clipped sum, follow from one pass forward and one back, and no row's gradient is
made.
Goodfellow (2015), "Efficient per-example gradient computations", section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from synthfair.federated.networks import Network, Perceptron, Trainable
from synthfair.model import Params, squared_norm


def clipped_sum(
    model: Trainable,
    params: Params,
    a: jax.Array,
    slope: jax.Array,
    clip: jax.Array | float,
) -> Params:
    """Sum over rows of v min(1, clip / |v|), where v = slope grad z is a row's gradient.

    Sensitivity: one row more or less changes it by at most ``clip`` in Euclidean norm. A row
    whose gradient has no finite norm counts 0.

    Args:
        model: with one score z a row.
        params: where.
        a: [R, n] model inputs.
        slope: [R] derivative of each row's loss in its score; 0 for a row that only fills up.
        clip: positive, or infinite.

    Returns:
        As params.
    """
    if isinstance(model, Network) and isinstance(model.build, Perceptron):
        return _of_dense_layers(params, a, slope, clip)
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
        return jnp.tensordot(factor, jnp.where(_like(factor, leaf) > 0, leaf, 0.0), axes=1)

    return jax.tree.map(total, gradients)


def _like(factor: jax.Array, leaf: jax.Array) -> jax.Array:
    return factor.reshape(-1, *(1,) * (leaf.ndim - 1))


def _factor(norm: jax.Array, clip: jax.Array | float) -> jax.Array:
    """[R] by which a row's gradient is multiplied; 0 where it has no finite norm."""
    least = jnp.finfo(norm.dtype).tiny
    return jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, clip / jnp.maximum(norm, least)), 0.0)


def _of_dense_layers(
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
    inputs = [a]
    for layer, probe in zip(layers[:-1], probes[:-1], strict=True):
        inputs.append(jax.nn.relu(_outputs(layer, inputs[-1]) + probe))
    return (_outputs(layers[-1], inputs[-1]) + probes[-1])[:, 0], inputs


def _outputs(layer: eqx.nn.Linear, inputs: jax.Array) -> jax.Array:
    return inputs @ layer.weight.T + jnp.asarray(layer.bias)
