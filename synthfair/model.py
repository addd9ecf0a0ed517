"""What a model is, and the linear model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

Params = Any
"""A pytree of floating-point arrays."""


FEW_INPUTS, CACHED = 16, range(2**15, 2**17)
"""Inputs, and entries of the rows, with which a CPU multiplies a matrix with vectors one by one
faster than two matrices: those leave its cache in between. At 11 inputs of 8,319 rows 0.16 ms in
place of 0.30; not faster with more inputs or where the rows are larger than the cache."""


class Rows(NamedTuple):
    """Rows as a model and a penalty see them, real or synthetic.

    Attributes:
        a: [N, n] model inputs, see :func:`model_inputs`.
        s: [N] group index, 0 to n_groups - 1.
        y: [N] label, -1 or +1.
        weight: [N] by which each row counts, or None: all alike.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    weight: jax.Array | None = None


class Scorer(Protocol):
    """What a model does with rows, as pure functions over a params pytree.

    A model must be hashable and compare equal to another of the same mathematics (a frozen
    dataclass does), because compiled code is looked up by it.
    """

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """[N] scores; the decision is +1 where the score is positive."""
        ...

    def loss(self, params: Params, a: jax.Array, y: jax.Array) -> jax.Array:
        """[N] losses, one a row; the caller averages."""
        ...


class Model(Scorer, Protocol):
    """One that is trained to its optimum: the loss is convex in params, twice differentiable."""

    def init(self, n_inputs: int) -> Params:
        """First params for inputs a of shape [N, n_inputs]."""
        ...


@jax.custom_jvp
def logistic(margin: jax.Array) -> jax.Array:
    """Logistic loss log(1 + exp(-margin)) of the margin y a'theta, Wu et al. (2024) eq. (9).

    The value and its derivatives share one exponential, and the logarithm is a polynomial: as XLA
    has them, they would take half of a distillation's time on a CPU.
    """
    return _log1p(jnp.exp(-jnp.abs(margin))) + jnp.maximum(-margin, 0.0)


@logistic.defjvp
def _logistic_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (margin,), (change,) = primals, tangents
    return logistic(margin), -_falling(margin) * change


@jax.custom_jvp
def _falling(margin: jax.Array) -> jax.Array:
    """1 / (1 + exp(margin)), without overflow, by the exponential that the loss has."""
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
    """log(1 + u) = 2 atanh(u / (2 + u)) for 0 <= u <= 1, to about 1e-15, relatively."""
    z = u / (2.0 + u)
    return 2.0 * z * jnp.polyval(jnp.asarray(_ATANH[::-1], u.dtype), z**2, unroll=len(_ATANH))


@dataclass(frozen=True)
class LinearModel:
    """Scores a'theta with a loss of the margin y a'theta; params are theta, shape [n].

    Args:
        margin_loss: maps margins [N] to losses [N], each by itself; convex and twice
            differentiable (almost everywhere is enough in practice, as for the squared hinge), with
            finite derivatives at 0, where training starts.
    """

    margin_loss: Callable[[jax.Array], jax.Array] = logistic

    def __repr__(self) -> str:
        """By name: the same in each process."""
        return f"LinearModel({self.name})"

    @property
    def name(self) -> str:
        """For release files: what a server must train to get what the client foresaw."""
        return f"linear, {getattr(self.margin_loss, '__name__', 'custom')} loss"

    def init(self, n_inputs: int) -> jax.Array:
        """Zeros; made without compiling."""
        return jax.device_put(np.zeros(n_inputs))

    def scores(self, params: jax.Array, a: jax.Array) -> jax.Array:
        """[N] a'theta."""
        return params @ a.T

    def loss(self, params: jax.Array, a: jax.Array, y: jax.Array) -> jax.Array:
        """[N] losses of the margins."""
        return self.margin_loss(y * self.scores(params, a))


@partial(jax.jit, static_argnames=("n_groups", "intercept"))
def model_inputs(x: jax.Array, s: jax.Array, *, n_groups: int, intercept: bool) -> jax.Array:
    """Model inputs a = (x, s), with a 1 appended where the model has an intercept.

    The groups enter as indicators of the groups 1 to n_groups - 1, which in the binary case is
    the column s of Wu et al. (2024).

    Args:
        x: [N, d] encoded features.
        s: [N] group index.
        n_groups: number of groups, at least 2.
        intercept: whether the 1 is appended.

    Returns:
        [N, d + n_groups - 1 (+ 1)].
    """
    groups = (s == jnp.arange(1, n_groups)[:, None]).astype(x.dtype)
    ones = jnp.ones((int(intercept), x.shape[0]), x.dtype)
    return jnp.concatenate([x.T, groups, ones]).T


def squared_norm(tree: Any) -> jax.Array:
    """Sum of squares over all leaves of a pytree."""
    return sum(map(_sum_of_squares, jax.tree.leaves(tree)), start=jnp.zeros(()))


def _sum_of_squares(leaf: jax.Array) -> jax.Array:
    """Of a matrix down each column first, then over the columns.

    Without a barrier XLA makes one sum of the two, and adds one number after the other.
    """
    squares = leaf * leaf
    if leaf.ndim < 2:
        return jnp.sum(squares)
    columns = jnp.sum(squares.reshape(-1, leaf.shape[-1]), axis=0)
    return jnp.sum(jax.lax.optimization_barrier(columns))


def regularized_loss(
    model: Scorer,
    params: Params,
    rows: Rows,
    lambda_theta: jax.Array | float,
    weights: jax.Array | float = 1.0,
) -> jax.Array:
    """Mean loss + lambda_theta / (2 n^2) ||params||^2, Wu et al. (2024) eq. (11).

    n is the number of inputs, the intercept counted. The intercept is regularised like the rest,
    which keeps the problem strictly convex. Rows may have weights [N], of mean 1.
    """
    n_inputs = rows.a.shape[1]
    ridge = lambda_theta / (2 * n_inputs**2) * squared_norm(params)
    return jnp.mean(weights * model.loss(params, rows.a, rows.y)) + ridge


def regularized_hessian(
    model: Model,
    params: Params,
    rows: Rows,
    lambda_theta: jax.Array | float,
    weights: jax.Array | float = 1.0,
) -> jax.Array:
    """Hessian [p, p] of :func:`regularized_loss` in params, raveled to p numbers.

    Of a linear model it is A' diag(l''(m)) A / N + lambda_theta / n^2 I with margins m, as y^2 = 1
    (or a = 0): one matrix product, where automatic differentiation would make p of vectors.
    """
    flat, unravel = ravel_pytree(params)
    if type(model) is not LinearModel:
        loss = lambda t: regularized_loss(  # noqa: E731
            model, unravel(t), rows, lambda_theta, weights
        )
        return jax.hessian(loss)(flat)
    n_rows, n_inputs = rows.a.shape
    margin = rows.y * model.scores(params, rows.a)
    curvature = weights * derivative(partial(derivative, model.margin_loss), margin)
    product = _weighted_gram(rows.a.T, curvature) / n_rows
    return product + lambda_theta / n_inputs**2 * jnp.eye(n_inputs, dtype=product.dtype)


def _weighted_gram(columns: jax.Array, weights: jax.Array) -> jax.Array:
    """sum_i w_i a_i a_i' [n, n] of columns a_i [n], [n, N] in all, with weights [N]."""
    cached = len(columns) <= FEW_INPUTS and columns.size in CACHED
    if cached and jax.default_backend() == "cpu":
        return jax.lax.map(lambda row: columns @ (row * weights), columns)
    return (columns * weights) @ columns.T


def derivative(function: Callable[[jax.Array], jax.Array], at: jax.Array) -> jax.Array:
    """Of a function of each entry by itself."""
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]
