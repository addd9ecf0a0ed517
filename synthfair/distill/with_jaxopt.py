"""jaxopt's L-BFGS for the inner problem: the reference that our own is held against.

The one place that knows jaxopt, which is no longer maintained and imports SciPy's optimisers; it is
imported only where it is asked for.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp

from synthfair.distill.lbfgs import Function, Minimum


def lbfgs(
    fun: Function,
    phi: jax.Array,
    *,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
    convex: bool,  # noqa: ARG001 - its line search asks for values in any case
) -> Minimum:
    """As :func:`synthfair.distill.lbfgs.lbfgs`, with a zoom line search."""
    with warnings.catch_warnings():  # it announces on import that it is no longer maintained
        warnings.simplefilter("ignore", DeprecationWarning)
        import jaxopt
    solver = jaxopt.LBFGS(
        fun,
        maxiter=max_iterations,  # type: ignore[arg-type]  # traced is fine, here
        tol=tolerance,  # type: ignore[arg-type]  # and here
        linesearch="zoom",
        unroll=False,  # of the line search; "auto" would run all its iterations, as no-ops
        implicit_diff=False,
    )
    reached, state = solver.run(phi)
    failed = state.failed_linesearch & (jnp.linalg.norm(state.grad) > tolerance)
    return Minimum(reached, state.grad, state.iter_num, failed)
