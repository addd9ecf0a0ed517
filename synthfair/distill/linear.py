"""Two solvers of H v = c, H being the Hessian of a function f(theta, data) in theta.

Cholesky forms H [p, p], which costs some N_s p^2 operations, and factors it, p^3 / 3. Conjugate
gradients only multiply by H, 4 N_s p operations a time, and start from the last solution: between
two steps of the outer loop H and c hardly change. :func:`choose` picks by size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve
from jax.scipy.sparse.linalg import cg

from synthfair.model import Params

LARGE = 200
"""From so many params on, conjugate gradients are chosen; times in benchmarks/results/scale."""

LinearSolverName = Literal["cholesky", "conjugate_gradient"]

Matrix = Callable[[Params, Any], jax.Array]
"""H(theta, data) -> [p, p], theta raveled to p numbers."""


class LinearSolution(NamedTuple):
    """An approximate solution and how well it was computed.

    Attributes:
        v: [p] H^-1 c.
        memory: what the next solve, of a problem nearby, may start from.
        converged: whether the residual is as small as wanted.
    """

    v: jax.Array
    memory: jax.Array
    converged: jax.Array


class LinearSolver(Protocol):
    """How H v = c is solved; stateless, what it remembers is handed in and out."""

    def init(self, c: jax.Array | np.ndarray) -> jax.Array:
        """The memory before the first solve, of a system with as many unknowns as c [p] has."""
        ...

    def factor(self, memory: jax.Array) -> jax.Array | None:
        """L [p, p], lower triangular, of H = L L' where it was solved last; None if not known."""
        ...

    def solve(
        self,
        fun: Callable[[Params, Any], jax.Array],
        params: Params,
        data: Any,
        c: jax.Array,
        memory: jax.Array,
        *,
        hessian: Matrix | None = None,
        tolerance: jax.Array | float | None = None,
    ) -> LinearSolution:
        """H v = c at (params, data), to a residual of tolerance ||c||.

        ``hessian`` forms H where there is a better way than automatic differentiation.
        """
        ...


class Cholesky:
    """Forms and factors the Hessian, exactly but for rounding. Its memory is the factor."""

    def init(self, c: jax.Array | np.ndarray) -> jax.Array:
        """The factor of the identity; made without compiling."""
        return jax.device_put(np.eye(len(c), dtype=c.dtype))

    def factor(self, memory: jax.Array) -> jax.Array:
        """The memory itself."""
        return memory

    def solve(
        self,
        fun: Callable[[Params, Any], jax.Array],
        params: Params,
        data: Any,
        c: jax.Array,
        memory: jax.Array,  # noqa: ARG002 - it starts from nothing
        *,
        hessian: Matrix | None = None,
        tolerance: jax.Array | float | None = None,  # noqa: ARG002
    ) -> LinearSolution:
        """See :class:`LinearSolver`. Not-a-number where H is not positive definite."""
        if hessian:
            h = hessian(params, data)
        else:
            theta, unravel = ravel_pytree(params)
            h = jax.hessian(lambda t: fun(unravel(t), data))(theta)
        factor = jax.lax.linalg.cholesky(h)
        v = cho_solve((factor, True), c)
        return LinearSolution(v, factor, jnp.isfinite(v).all())


class ConjugateGradient:
    """Multiplies by the Hessian, never forms it. Its memory is the last solution."""

    def init(self, c: jax.Array | np.ndarray) -> jax.Array:
        """Zero."""
        return jax.device_put(np.zeros(c.shape, c.dtype))

    def factor(self, memory: jax.Array) -> None:  # noqa: ARG002
        """Not known."""
        return

    def solve(
        self,
        fun: Callable[[Params, Any], jax.Array],
        params: Params,
        data: Any,
        c: jax.Array,
        memory: jax.Array,
        *,
        hessian: Matrix | None = None,  # noqa: ARG002 - never formed
        tolerance: jax.Array | float | None = None,
    ) -> LinearSolution:
        """See :class:`LinearSolver`; at most 10 p products, as in SciPy."""
        theta, unravel = ravel_pytree(params)
        gradient = jax.grad(lambda t: fun(unravel(t), data))
        _, times_hessian = jax.linearize(gradient, theta)
        # If not given, a little above what rounding allows.
        small = jnp.finfo(c.dtype).eps ** 0.625 if tolerance is None else tolerance
        v, _ = cg(times_hessian, c, x0=memory, tol=small)  # type: ignore[arg-type]
        residual = jnp.linalg.norm(times_hessian(v) - c)
        # The residual that it steps by drifts from the true one by rounding.
        return LinearSolution(v, v, residual <= 10 * small * jnp.linalg.norm(c))


SOLVERS: dict[LinearSolverName, LinearSolver] = {
    "cholesky": Cholesky(),
    "conjugate_gradient": ConjugateGradient(),
}
"""The linear solvers by name."""


def choose(
    wanted: Literal["auto"] | LinearSolverName, *, optimizer: str, n_params: int
) -> LinearSolverName:
    """The solver wanted; if that is "auto", the one that is faster for so many params.

    Gauss-Newton steps need the Hessian itself.
    """
    if wanted != "auto":
        return wanted
    small = n_params < LARGE or optimizer == "gauss_newton"
    return "cholesky" if small else "conjugate_gradient"
