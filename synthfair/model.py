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


class Rows(NamedTuple):
    """Rows as a model and a penalty see them, real or synthetic.

    Attributes:
        a: [N, n] model inputs: features, indicators of the groups but the first, and a 1 with an
            intercept.
        s: [N] group index, 0 to n_groups - 1.
        y: [N] label, -1 or +1.
        weight: [N] how much each row counts, at least 0; None: all alike.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    weight: jax.Array | None = None


LEAST_PADDED = 1024
"""Rows that tables are padded to at least, where less time is spent on them than on compiling."""


def padded(rows: Rows, *, least: int = LEAST_PADDED) -> Rows:
    """Add rows of weight 0, so that code is compiled for few numbers of rows.

    There are then as many as the least of 4, 5, 6 and 7 times powers of two that is at least the
    number of rows, and ``least``.

    >>> import numpy as np
    >>> rows = padded(Rows(np.ones((9, 2)), np.zeros(9, int), np.ones(9)), least=1)
    >>> rows.a.shape, rows.weight.tolist()
    ((10, 2), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    """
    n = len(rows.y)
    most = max(n, least)
    more = most + -most % max(1, 2 ** (most.bit_length() - 3)) - n
    weight = np.ones(n) if rows.weight is None else rows.weight
    a, s = np.pad(rows.a, ((0, more), (0, 0))), np.pad(rows.s, (0, more))
    y = np.pad(rows.y, (0, more), constant_values=1)  # 0 is no label
    return Rows(a, s, y, np.pad(weight, (0, more)))  # type: ignore[arg-type]


class Scorer(Protocol):
    """What a model computes from rows, as pure functions of a params pytree.

    A model must be hashable and compare equal to another of the same mathematics (a frozen
    dataclass does), because compiled code is looked up by it.
    """

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """[N] scores of inputs [N, n]; the decision is +1 where the score is positive."""
        ...

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """[N] losses of scores [N] and labels [N], one a row; the caller averages."""
        ...


class Model(Scorer, Protocol):
    """A model that is trained to its optimum: the loss is convex in params, twice differentiable.

    A model may also have ``hessian(params, rows) -> [p, p]``, the Hessian of its mean loss in
    params raveled to p numbers, where each row counts by ``rows.weight``; without it, the Hessian
    is found by automatic differentiation, which takes longer.
    """

    def init(self, n_inputs: int) -> Params:
        """First params for inputs a of shape [N, n_inputs]."""
        ...


@jax.custom_jvp
def logistic(margin: jax.Array) -> jax.Array:
    """Logistic loss log(1 + exp(-margin)) of the margin y a'theta, Wu et al. (2024) eq. (9).

    The value and its derivatives share one exponential, and the logarithm is a polynomial: as XLA
    has them, they would take half of a distillation's time on a CPU.

    >>> import jax.numpy as jnp
    >>> [f"{loss:.3f}" for loss in logistic(jnp.array([0.0, 100.0, -100.0]))]  # log 2 first
    ['0.693', '0.000', '100.000']
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

    Example:
        >>> import jax.numpy as jnp
        >>> import synthfair as sf
        >>> model = sf.LinearModel()
        >>> scores = model.scores(jnp.array([2.0, -1.0]), jnp.array([[1.0, 1.0], [0.0, 3.0]]))
        >>> scores.tolist()
        [1.0, -3.0]
        >>> [f"{loss:.3f}" for loss in model.loss(scores, jnp.array([1.0, -1.0]))]
        ['0.313', '0.049']
    """

    margin_loss: Callable[[jax.Array], jax.Array] = logistic

    def __init_subclass__(cls) -> None:
        """Refuses a subclass with other scores and the Hessian of these."""
        scores, hessian = (
            next(i for i, base in enumerate(cls.__mro__) if name in vars(base))
            for name in ("scores", "hessian")
        )
        if scores < hessian and cls.hessian is not None:
            raise TypeError(
                f"{cls.__name__} has scores of its own, of which LinearModel's hessian would be"
                " wrong: give it a hessian too, or hessian = None for automatic differentiation"
            )

    @property
    def name(self) -> str:
        """For release files: what a server must train to get the model that the client expects."""
        kind = "linear" if type(self) is LinearModel else f"linear ({type(self).__name__})"
        return f"{kind}, {getattr(self.margin_loss, '__name__', 'custom')} loss"

    def init(self, n_inputs: int) -> jax.Array:
        """Zeros [n_inputs]; made without compiling."""
        return jax.device_put(np.zeros(n_inputs))

    def scores(self, params: jax.Array, a: jax.Array) -> jax.Array:
        """[N] a'theta."""
        return params @ a.T

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """[N] losses of the margins."""
        return self.margin_loss(y * scores)

    def hessian(self, params: jax.Array, rows: Rows) -> jax.Array:
        """A' diag(l'') A / N [n, n]: one matrix product, l'' the loss's second derivative.

        With weights, the weighted mean of the rows' Hessians; 0 where all weigh 0.
        """
        scores = self.scores(params, rows.a)
        slope = partial(derivative, partial(self.loss, y=rows.y))
        weight = derivative(slope, scores)
        if rows.weight is not None:
            tiny = jnp.finfo(weight.dtype).tiny  # as in mean_loss
            weight = weight * rows.weight / jnp.maximum(jnp.sum(rows.weight), tiny)
            return (rows.a.T * weight) @ rows.a
        return (rows.a.T * weight) @ rows.a / len(rows.y)


def squared_norm(tree: Any) -> jax.Array:
    """Sum of squares over all leaves of a pytree."""
    return sum((jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def mean_loss(model: Scorer, scores: jax.Array, rows: Rows) -> jax.Array:
    """Mean of the losses of scores [N], each row counting by its weight; 0 where all weigh 0."""
    losses, weight = model.loss(scores, rows.y), rows.weight
    if weight is None:
        return jnp.mean(losses)
    return jnp.sum(weight * losses) / jnp.maximum(jnp.sum(weight), jnp.finfo(losses.dtype).tiny)


def regularized_loss(
    model: Scorer, params: Params, rows: Rows, lambda_theta: jax.Array | float
) -> jax.Array:
    """Mean loss + lambda_theta / (2 n^2) ||params||^2, Wu et al. (2024) eq. (11).

    n is the number of inputs, the intercept counted. The intercept is regularised like the rest,
    which keeps the problem strictly convex.
    """
    ridge = lambda_theta / (2 * rows.a.shape[1] ** 2) * squared_norm(params)
    return mean_loss(model, model.scores(params, rows.a), rows) + ridge


def regularized_hessian(
    model: Model, params: Params, rows: Rows, lambda_theta: jax.Array | float
) -> jax.Array:
    """Hessian [p, p] of :func:`regularized_loss` in params, raveled to p numbers."""
    flat, unravel = ravel_pytree(params)
    own = getattr(model, "hessian", None)
    if own is None:
        loss = lambda theta: regularized_loss(model, unravel(theta), rows, lambda_theta)  # noqa: E731
        return jax.hessian(loss)(flat)
    ridge = lambda_theta / rows.a.shape[1] ** 2
    return own(params, rows) + ridge * jnp.eye(len(flat), dtype=flat.dtype)


def derivative(function: Callable[[jax.Array], jax.Array], at: jax.Array) -> jax.Array:
    """Of a function of each entry by itself."""
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]
