"""Models that users train together, linear or networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import jax

from synthfair.model import LinearModel, Params, Scorer

_LINEAR = LinearModel()


class Trainable(Scorer, Protocol):
    """A model that is trained in steps from random params.

    Its scores are [R] log-odds of y = +1, or [R, C] log-probabilities of C classes, up to a
    constant; labels are then 0 to C - 1. A row's scores must not depend on the other rows that come
    with it, as they would after centring: privacy rests on what one row can change. It must be
    hashable, and compare equal to another of the same mathematics, as frozen dataclasses do:
    compiled code is looked up by it.
    """

    def init(self, key: jax.Array) -> Params:
        """Return first params, drawn by the key."""
        ...


@dataclass(frozen=True)
class LogisticRegression:
    """The linear model of the rest of the package, with the logistic loss, from zeros.

    Args:
        n_inputs: width of a row of inputs.

    Example:
        >>> import jax
        >>> import synthfair as sf
        >>> sf.federated.LogisticRegression(3).init(jax.random.key(0)).tolist()
        [0.0, 0.0, 0.0]
    """

    n_inputs: int

    def init(self, key: jax.Array) -> Params:  # noqa: ARG002
        """Return zeros; the key is not used."""
        return _LINEAR.init(self.n_inputs)

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """Return the scores [R] a'theta."""
        return _LINEAR.scores(params, a)

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """Return the losses [R] of the margins."""
        return _LINEAR.loss(scores, y)


@dataclass(frozen=True)
class Perceptron(LogisticRegression):
    """A fully connected network with ReLU, one output, and the logistic loss.

    Its params are a pair of weights [outputs, inputs] and biases [outputs] for each layer.

    Args:
        n_inputs: width of a row of inputs.
        hidden: widths of the hidden layers; with none it is linear.

    Example:
        >>> import jax
        >>> import synthfair as sf
        >>> network = sf.federated.Perceptron(3, hidden=(8, 4))
        >>> [w.shape for w, _ in jax.eval_shape(network.init, jax.random.key(0))]
        [(8, 3), (4, 8), (1, 4)]
    """

    hidden: tuple[int, ...]

    def init(self, key: jax.Array) -> Params:
        """Draw the params in the user's default precision."""
        shapes = list(pairwise((self.n_inputs, *self.hidden, 1)))
        pairs = zip(shapes, jax.random.split(key, len(shapes)), strict=True)
        return [draw_layer(*shape, layer_key) for shape, layer_key in pairs]

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """Return the scores [R]."""
        *layers, (weight, bias) = params
        for inner, shift in layers:
            a = jax.nn.relu(a @ inner.T + shift)
        return a @ weight[0] + bias[0]


def draw_layer(n_inputs: int, n_outputs: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw weights [outputs, inputs] and biases [outputs] from +-1 / sqrt(inputs), uniformly."""
    limit, keys = 1 / math.sqrt(n_inputs), jax.random.split(key)
    weight = jax.random.uniform(keys[0], (n_outputs, n_inputs), minval=-limit, maxval=limit)
    return weight, jax.random.uniform(keys[1], (n_outputs,), minval=-limit, maxval=limit)
