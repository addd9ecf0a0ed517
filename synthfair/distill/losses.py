"""The losses of models in JAX, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from synthfair.model import Params, Rows, Scorer


@jax.custom_jvp
def jax_logistic(margin: jax.Array) -> jax.Array:
    """Return the logistic loss log(1 + exp(-margin)) of the margin y a'theta, Wu et al. eq. (9).

    The value and its derivatives share one exponential, and the logarithm is a polynomial: as XLA
    has them, they would take half of a distillation's time on a CPU.

    >>> import jax.numpy as jnp
    >>> [f"{loss:.3f}" for loss in jax_logistic(jnp.array([0.0, 100.0, -100.0]))]  # log 2 first
    ['0.693', '0.000', '100.000']
    """
    return _log1p(jnp.exp(-jnp.abs(margin))) + jnp.maximum(-margin, 0.0)


@jax_logistic.defjvp
def _logistic_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (margin,), (change,) = primals, tangents
    return jax_logistic(margin), -_falling(margin) * change


@jax.custom_jvp
def _falling(margin: jax.Array) -> jax.Array:
    """Return 1 / (1 + exp(margin)), without overflow, by the exponential that the loss has."""
    small = jnp.exp(-jnp.abs(margin))
    return jnp.where(margin > 0, small, 1.0) / (1.0 + small)


@_falling.defjvp
def _falling_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (margin,), (change,) = primals, tangents
    small = jnp.exp(-jnp.abs(margin))
    return _falling(margin), -small * change / (1.0 + small) ** 2


_ATANH = (
    1.0000000000000002,
    0.333333333333389,
    0.1999999999779205,
    0.14285714540496558,
    0.11111096629890084,
    0.09091386099019605,
    0.07682653741850054,
    0.06787560393051295,
    0.04981144829799288,
    0.08808654257293481,
)
"""Coefficients of atanh(z) / z as a polynomial in z^2 that interpolates it at the Chebyshev nodes
of 0 <= z^2 <= 1/9."""


def _log1p(u: jax.Array) -> jax.Array:
    """Return log(1 + u) = 2 atanh(u / (2 + u)), 0 <= u <= 1, to about 1e-15, relatively."""
    z = u / (2.0 + u)
    return 2.0 * z * jnp.polyval(jnp.asarray(_ATANH[::-1], u.dtype), z**2, unroll=len(_ATANH))


def squared_norm(tree: Any) -> jax.Array:
    """Return the sum of squares over all leaves of a pytree."""
    return sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def mean_loss(model: Scorer, scores: jax.Array, rows: Rows) -> jax.Array:
    """Return the mean loss of scores [N], each row by its weight; 0 where all weigh 0."""
    losses, weight = model.loss(scores, rows.y), rows.weight
    if weight is None:
        return jnp.mean(losses)
    return jnp.sum(weight * losses) / jnp.maximum(jnp.sum(weight), jnp.finfo(losses.dtype).tiny)


def regularized_loss(
    model: Scorer, params: Params, rows: Rows, lambda_theta: jax.Array | float
) -> jax.Array:
    """Return mean loss + lambda_theta / (2 n^2) ||params||^2, Wu et al. (2024) eq. (11).

    n is the number of inputs, the intercept counted. The intercept is regularised like the rest,
    which keeps the problem strictly convex.
    """
    ridge = lambda_theta / (2 * rows.a.shape[1] ** 2) * squared_norm(params)
    return mean_loss(model, model.scores(params, rows.a), rows) + ridge


def derivative(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Return the derivative of an elementwise function."""
    return jax.jvp(function, (x,), (jnp.ones_like(x),))[1]
