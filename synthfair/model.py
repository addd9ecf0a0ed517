"""Models: their protocol, with the linear model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any
"""An array of NumPy or of JAX."""

Params = Any
"""A pytree of floating-point arrays."""


class Rows(NamedTuple):
    """A table of rows as a model and a penalty see them, real or synthetic.

    Attributes:
        a: [N, n] model inputs: features, indicators of the groups but the first where the model
            reads them, and a 1 with an intercept.
        s: [N] group index, 0 to n_groups - 1.
        y: [N] label, -1 or +1.
        weight: [N] how much each row counts, at least 0; None: all alike.
    """

    a: Array
    s: Array
    y: Array
    weight: Array | None = None


MIN_PADDED_ROWS = 2048
"""Rows that tables are padded to at least, where less time is spent on them than on compiling."""


def padded(rows: Rows, *, least: int = MIN_PADDED_ROWS) -> Rows:
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
    """The scores that a model computes from rows, as pure functions of a params pytree.

    A model must be hashable and compare equal to another of the same mathematics (a frozen
    dataclass does), because compiled code is looked up by it.
    """

    def scores(self, params: Params, a: Array) -> Array:
        """Return [N] scores of inputs [N, n]; the decision is +1 where the score is positive."""
        ...

    def loss(self, scores: Array, y: Array) -> Array:
        """Return [N] losses of scores [N] and labels [N], one a row; the caller averages."""
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


def logistic(margin: Array) -> Array:
    """Return the logistic loss log(1 + exp(-margin)) of the margin y a'theta, Wu et al. eq. (9).

    >>> import numpy as np
    >>> [f"{loss:.3f}" for loss in logistic(np.array([0.0, 100.0, -100.0]))]  # log 2 first
    ['0.693', '0.000', '100.000']
    """
    if isinstance(margin, np.ndarray):
        return np.logaddexp(0.0, -margin)
    from synthfair.distill.losses import jax_logistic

    return jax_logistic(margin)


@dataclass(frozen=True)
class LinearModel:
    """A linear model: scores a'theta, a loss of the margin y a'theta, and params theta [n].

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

    margin_loss: Callable[[Array], Array] = logistic

    def __init_subclass__(cls) -> None:
        """Refuse a subclass with other scores and the Hessian of these."""
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

    def init(self, n_inputs: int) -> Array:
        """Return zeros [n_inputs]; made without compiling."""
        import jax

        return jax.device_put(np.zeros(n_inputs))

    def scores(self, params: Array, a: Array) -> Array:
        """Return [N] a'theta."""
        return params @ a.T

    def loss(self, scores: Array, y: Array) -> Array:
        """Return [N] losses of the margins."""
        return self.margin_loss(y * scores)

    def hessian(self, params: Array, rows: Rows) -> Array:
        """Return A' diag(l'') A / N [n, n]: one matrix product, l'' the loss's second derivative.

        With weights, the weighted mean of the rows' Hessians; 0 where all weigh 0.
        """
        import jax.numpy as jnp

        from synthfair.distill.losses import derivative

        scores = self.scores(params, rows.a)
        slope = partial(derivative, partial(self.loss, y=rows.y))
        weight = derivative(slope, scores)
        if rows.weight is not None:
            tiny = jnp.finfo(weight.dtype).tiny  # as in mean_loss
            weight = weight * rows.weight / jnp.maximum(jnp.sum(rows.weight), tiny)
            return (rows.a.T * weight) @ rows.a
        return (rows.a.T * weight) @ rows.a / len(rows.y)
