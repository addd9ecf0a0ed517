"""Models that users train together: linear models, and networks from equinox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from synthfair.errors import require
from synthfair.model import LinearModel, Params, Scorer, logistic

BuildNetwork = Callable[[jax.Array], Callable[[jax.Array], jax.Array]]
"""A function of a key that makes an equinox module, which maps one row's inputs to its scores."""

_LINEAR = LinearModel()


class Trainable(Scorer, Protocol):
    """A model that is trained in steps from random params.

    Its scores are [R] log-odds of y = +1, or [R, C] log-probabilities of C classes, up to a
    constant; labels are then 0 to C - 1.
    """

    def init(self, key: jax.Array) -> Params:
        """Draws first params."""
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
        """Returns zeros; the key is not used."""
        return _LINEAR.init(self.n_inputs)

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """Returns the scores [R] a'theta."""
        return _LINEAR.scores(params, a)

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """[R] losses of the margins."""
        return _LINEAR.loss(scores, y)


@dataclass(frozen=True)
class Network:
    """A network with the logistic loss, or, of several outputs, with the cross-entropy.

    Args:
        build: makes the equinox module, whose arrays are all floating-point; must be hashable, and
            compare equal to another of the same mathematics, as functions and frozen dataclasses
            do.

    Example:
        >>> import synthfair as sf
        >>> network = sf.federated.Network(sf.federated.Perceptron(3, hidden=(8, 4)))
    """

    build: BuildNetwork

    def init(self, key: jax.Array) -> Params:
        """Returns the module's own params, in the user's default precision."""
        import equinox as eqx

        return eqx.filter(self.build(key), eqx.is_inexact_array)

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """[R] or [R, C] outputs."""
        import equinox as eqx

        shapes = eqx.filter_eval_shape(self.build, jax.random.key(0))
        static = eqx.filter(
            shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct), inverse=True
        )
        return jax.vmap(eqx.combine(params, static))(a)

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """[R] logistic losses of log-odds [R], or cross-entropies of log-probabilities [R, C]."""
        if scores.ndim == 1:
            return logistic(y * scores)
        log_chance = jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None].astype(int), axis=1)
        return -log_chance[:, 0]


@dataclass(frozen=True)
class Perceptron:
    """Builds a fully connected network with ReLU and one output.

    Args:
        n_inputs: width of a row of inputs.
        hidden: widths of the hidden layers; with none it is linear.

    Raises:
        InputError: equinox is not installed.
    """

    n_inputs: int
    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuses to go on without equinox."""
        require("equinox", "hidden", "networks")

    def __call__(self, key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """Makes the equinox module."""
        import equinox as eqx

        widths = (self.n_inputs, *self.hidden, "scalar")
        keys = jax.random.split(key, len(widths) - 1)
        layers: list[Callable] = []
        for width, after, layer_key in zip(widths, widths[1:], keys, strict=False):
            layers += [eqx.nn.Linear(width, after, key=layer_key), eqx.nn.Lambda(jax.nn.relu)]
        return eqx.nn.Sequential(layers[:-1])
