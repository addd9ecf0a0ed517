"""The solvers of a step of the bilevel problem: for theta(x), for H v = c, for the next x.

:func:`choose_method` is where the settings' names become objects; x is moved by any
``optax.GradientTransformation``. theta is a vector of p numbers here, whatever params are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.sparse.linalg import cg

from synthfair.distill.losses import regularized_loss
from synthfair.model import Model, Rows
from synthfair.release.settings import DistillConfig

if TYPE_CHECKING:
    from synthfair.distill.problem import Problem

MIN_ITERATED_PARAMS = 200
"""From so many params on, conjugate gradients are chosen; times in benchmarks/results/scale."""


class Function(NamedTuple):
    """A strictly convex function of theta [p], twice differentiable by JAX.

    Attributes:
        value: theta -> f(theta), a scalar.
        hessian: theta -> [p, p], where there often is a better way than automatic differentiation.
    """

    value: Callable[[jax.Array], jax.Array]
    hessian: Callable[[jax.Array], jax.Array]


def regularized(model: Model, rows: Rows, lambda_theta: jax.Array | float) -> Function:
    """Return the regularised loss on rows, eq. (11), as a function of theta [p]."""
    n, unravel = rows.a.shape[1], ravel_pytree(model.init(rows.a.shape[1]))[1]

    def value(theta: jax.Array) -> jax.Array:
        return regularized_loss(model, unravel(theta), rows, lambda_theta)

    def hessian(theta: jax.Array) -> jax.Array:
        if (of_loss := getattr(model, "hessian", None)) is None:
            return jax.hessian(value)(theta)
        ridge = lambda_theta / n**2 * jnp.eye(len(theta), dtype=theta.dtype)
        return of_loss(unravel(theta), rows) + ridge

    return Function(value, hessian)


# A linear solver solves H v = c for Hessians H, and remembers how it did so last: ``init`` returns
# the memory before the first solve; ``solve`` v [p], the new memory, and whether the residual is as
# small as wanted.


@dataclass(frozen=True)
class Cholesky:
    """A solver that forms the Hessian, N_s p^2 operations, and factors it, p^3 / 3.

    Its memory is the factor.
    """

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:
        """Return the factor there."""
        return jax.lax.linalg.cholesky(fun.hessian(theta))

    def solve(
        self,
        fun: Function,
        theta: jax.Array,
        c: jax.Array,
        memory: jax.Array,  # noqa: ARG002
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return v, exact but for rounding; not-a-number where H is not positive definite."""
        factor = self.init(fun, theta)
        v = cho_solve((factor, True), c)
        return v, factor, jnp.isfinite(v).all()


@dataclass(frozen=True)
class ConjugateGradient:
    """A solver that multiplies by the Hessian, 4 N_s p operations a time, and never forms it.

    Its memory is the last solution: between two steps of the outer loop H and c hardly change.

    Attributes:
        tolerance: of the residual, relative to c; if not given, a little above what rounding
            allows.
    """

    tolerance: float | None = None

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:  # noqa: ARG002
        """Return zeros."""
        return jnp.zeros_like(theta)

    def solve(
        self, fun: Function, theta: jax.Array, c: jax.Array, memory: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return v by at most 10 p products, as in SciPy."""
        _, times_hessian = jax.linearize(jax.grad(fun.value), theta)
        small = jnp.finfo(c.dtype).eps ** 0.625 if self.tolerance is None else self.tolerance
        v, _ = cg(times_hessian, c, x0=memory, tol=small)  # type: ignore[arg-type]
        residual = jnp.linalg.norm(times_hessian(v) - c)
        # The residual that it steps by drifts from the true one by rounding.
        return v, v, residual <= 10 * small * jnp.linalg.norm(c)


class InnerSolution(NamedTuple):
    """An approximate minimiser and how well it was computed.

    Attributes:
        params: the minimiser.
        gradient_norm: Euclidean norm of the gradient there.
        iterations: L-BFGS iterations or Newton steps spent.
        converged: whether the stopping criterion was met.
    """

    params: Any
    gradient_norm: jax.Array
    iterations: jax.Array
    converged: jax.Array


# An inner solver minimises a function of theta from a start [p]; warm starts save most of the work.
# It stops where sqrt(g' M^-1 g) is at most the tolerance, g being the gradient and M the Hessian
# (Newton's decrement) or L L', ``factor`` being the Cholesky factor L [p, p] of a Hessian near the
# solution. That bounds the error of theta in the metric that f itself sets; where no factor is
# known, M = I. The hypergradient is only as exact as this solution.


def default_tolerance() -> float:
    """Return 1e-8 in float64, which keeps hypergradients exact to about 1e-6; or 1e-5.

    Single precision cannot reach less, and a solution that missed its tolerance says so.
    """
    return 1e-8 if jax.dtypes.canonicalize_dtype(float) == jnp.float64 else 1e-5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lbfgs:
    """The L-BFGS of jaxopt in variables in which f is nearly round.

    With L the Cholesky factor of a Hessian near the solution, the search runs over phi in
    theta = start + L^-T phi, where the Hessian is close to the identity, so that the unit step
    nearly always does, and about as many steps as Newton's method are needed.

    Attributes:
        tolerance: of the solution, see above.
        max_iterations: at most so many.
    """

    tolerance: jax.Array | float
    max_iterations: jax.Array | int = 100

    def minimise(
        self, fun: Function, start: jax.Array, factor: jax.Array | None = None
    ) -> InnerSolution:
        """Return the minimiser."""
        with warnings.catch_warnings():  # it announces on import that it is no longer maintained
            warnings.simplefilter("ignore", DeprecationWarning)
            import jaxopt

        whiten = None
        if factor is not None:  # L^-T
            identity = jnp.eye(len(factor), dtype=factor.dtype)
            whiten = solve_triangular(factor.T, identity, lower=False)

        def place(phi: jax.Array) -> jax.Array:
            return start + (phi if whiten is None else whiten @ phi)

        # Steps shrink from 1 until they meet the strong Wolfe conditions. (jaxopt's zoom search
        # needs no fewer evaluations here, and takes twice as long to compile.)
        solver = jaxopt.LBFGS(
            lambda phi: fun.value(place(phi)),
            maxiter=self.max_iterations,  # type: ignore[arg-type]
            tol=self.tolerance,  # type: ignore[arg-type]
            linesearch="backtracking",
            linesearch_init="max",
            unroll=False,
            implicit_diff=False,
        )
        phi, last = solver.run(jnp.zeros_like(start))
        gradient = last.grad if factor is None else factor @ last.grad  # in phi it is L^-1 that
        return InnerSolution(
            params=place(phi),
            gradient_norm=jnp.linalg.norm(gradient),
            iterations=last.iter_num,
            converged=jnp.linalg.norm(last.grad) <= self.tolerance,
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Newton:
    """A solver by Newton steps, halved until f falls enough.

    Boyd and Vandenberghe, Convex Optimization (2004), algorithm 9.5.

    Attributes:
        tolerance: of the solution, see above.
        max_iterations: at most so many.
        linear: solver of its systems.
    """

    tolerance: jax.Array | float
    max_iterations: jax.Array | int = 100
    linear: Cholesky | ConjugateGradient = field(default=Cholesky(), metadata={"static": True})

    def minimise(
        self,
        fun: Function,
        start: jax.Array,
        factor: jax.Array | None = None,  # noqa: ARG002 - its Hessians are its own
    ) -> InnerSolution:
        """Return the minimiser."""
        shortest = 0.5**40

        def unfinished(carry: tuple[jax.Array, ...]) -> jax.Array:
            _, decrement, iterations, length = carry
            # Not-a-number ends it, too.
            more = (decrement > self.tolerance) & (iterations < self.max_iterations)
            return more & (length >= shortest)

        def step(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            theta, _, iterations, _ = carry
            value, slope = jax.value_and_grad(fun.value)(theta)
            memory = self.linear.init(fun, theta)
            change, _, solved = self.linear.solve(fun, theta, slope, memory)
            squared = slope @ change
            rounding = 10 * jnp.finfo(value.dtype).eps * jnp.abs(value)

            def too_long(length: jax.Array) -> jax.Array:
                least = 1e-4 * length * squared
                falls = fun.value(theta - length * change) <= value - least + rounding
                return ~falls & (length >= shortest)

            length = jax.lax.while_loop(too_long, lambda length: length / 2, jnp.ones_like(value))
            # Negative only where f is not convex, or the system was not solved: then not-a-number.
            decrement = jnp.sqrt(jnp.where(solved, squared, jnp.nan))
            return theta - length * change, decrement, iterations + 1, length

        unknown, full = jnp.full((), jnp.inf, start.dtype), jnp.ones((), start.dtype)
        first = start, unknown, jnp.zeros((), int), full
        theta, decrement, iterations, length = jax.lax.while_loop(unfinished, step, first)
        return InnerSolution(
            params=theta,
            gradient_norm=jnp.linalg.norm(jax.grad(fun.value)(theta)),
            iterations=iterations,
            converged=(decrement <= self.tolerance) & (length >= shortest),
        )


@partial(jax.jit, static_argnames="model")
def train(rows: Rows, lambda_theta: jax.Array | float, *, model: Model) -> InnerSolution:
    """Return the params of a model trained on rows, Wu et al. (2024) eq. (15).

    Args:
        rows: real or synthetic.
        lambda_theta: see :func:`synthfair.distill.losses.regularized_loss`.
        model: what is trained.
    """
    start, unravel = ravel_pytree(model.init(rows.a.shape[1]))
    fun, solver = regularized(model, rows, lambda_theta), Lbfgs(default_tolerance(), 1000)
    solution = solver.minimise(fun, start, Cholesky().init(fun, start))
    return solution._replace(params=unravel(solution.params))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Method:
    """The solvers of a problem; a pytree, whose numbers may differ without compiling anew.

    Attributes:
        inner: solver of the inner problem.
        linear: solver for its derivative.
        optimizer: of x.
    """

    inner: Lbfgs | Newton
    linear: Cholesky | ConjugateGradient = field(metadata={"static": True})
    optimizer: optax.GradientTransformation = field(metadata={"static": True})


adam = cache(optax.adam)
"""``optax.adam``, the same object for the same rate, so that clients share a compilation."""


def choose_method(
    problem: Problem,
    config: DistillConfig,
    *,
    optimizer: optax.GradientTransformation | None = None,
) -> Method:
    """Return what the settings name for a problem, with Adam or another optimizer of x.

    Where they say "auto", the solvers that are faster for so many params as the problem has.
    """
    large = len(problem.first_theta) >= MIN_ITERATED_PARAMS
    iterates = {"auto": large, "cholesky": False, "conjugate_gradient": True}[config.linear_solver]
    # L-BFGS learns the curvature from a factor, or, with few params, in some tens of steps.
    steps = {"auto": large, "lbfgs": False, "newton": True}[config.inner_solver]
    tolerance = config.inner_tolerance or default_tolerance()
    linear = ConjugateGradient() if iterates else Cholesky()
    # Systems of Newton's method that are solved by iteration need not be solved exactly.
    loose = ConjugateGradient(1e-3) if iterates else linear
    inner = Newton(tolerance, linear=loose) if steps else Lbfgs(tolerance)
    return Method(inner, linear, optimizer or adam(config.learning_rate))
