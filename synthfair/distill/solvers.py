"""What a step of the bilevel problem is solved by: theta(x), H v = c, and the next x.

Each is an object with a written contract (:class:`InnerSolver`, :class:`LinearSolver`,
:class:`Optimizer`); :func:`choose_method` is where the settings' names become objects. theta is a
vector of p numbers here, whatever a model's params are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.sparse.linalg import cg

from synthfair.config import DistillConfig
from synthfair.errors import InputError
from synthfair.model import Model, Rows, regularized_hessian, regularized_loss

if TYPE_CHECKING:
    from synthfair.distill.problem import Point, Problem

LARGE = 200
"""From so many params on, conjugate gradients are chosen; times in benchmarks/results/scale."""

PULL = 1e-3
"""Of Gauss-Newton steps towards the first x: m, times the number of entries of x. P rises by at
most half of that times the mean square of x - x_0, some 0.01 %, for the sake of staying near."""


class Function(NamedTuple):
    """A strictly convex function of theta [p], twice differentiable by JAX.

    Attributes:
        value: theta -> f(theta), a scalar.
        hessian: theta -> [p, p], where there often is a better way than automatic differentiation.
    """

    value: Callable[[jax.Array], jax.Array]
    hessian: Callable[[jax.Array], jax.Array]


LinearSolution = tuple[jax.Array, jax.Array, jax.Array]
"""v = H^-1 c [p]; the memory, from which the next solve, of a problem nearby, starts; and whether
the residual is as small as wanted."""


class LinearSolver(Protocol):
    """Solves H v = c for Hessians H. Hashable; what it remembers is handed in and out."""

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:
        """The memory before the first solve, of a function's Hessian at theta."""
        ...

    def factor(self, memory: jax.Array) -> jax.Array | None:
        """L [p, p], lower triangular, of H = L L' where it was solved last; None if not known."""
        ...

    def solve(
        self, fun: Function, theta: jax.Array, c: jax.Array, memory: jax.Array
    ) -> LinearSolution:
        """H v = c, where H is the Hessian of a function at theta."""
        ...


@dataclass(frozen=True)
class Cholesky:
    """Forms the Hessian, N_s p^2 operations, and factors it, p^3 / 3. Its memory is the factor."""

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:
        """The factor there."""
        return jax.lax.linalg.cholesky(fun.hessian(theta))

    def factor(self, memory: jax.Array) -> jax.Array:
        """The memory itself."""
        return memory

    def solve(
        self,
        fun: Function,
        theta: jax.Array,
        c: jax.Array,
        memory: jax.Array,  # noqa: ARG002
    ) -> LinearSolution:
        """Exact but for rounding; not-a-number where H is not positive definite."""
        factor = self.init(fun, theta)
        v = cho_solve((factor, True), c)
        return v, factor, jnp.isfinite(v).all()


@dataclass(frozen=True)
class ConjugateGradient:
    """Multiplies by the Hessian, 4 N_s p operations a time, and never forms it.

    Its memory is the last solution: between two steps of the outer loop H and c hardly change.

    Attributes:
        tolerance: of the residual, relative to c; if not given, a little above what rounding
            allows.
    """

    tolerance: float | None = None

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:  # noqa: ARG002
        """Zero."""
        return jnp.zeros_like(theta)

    def factor(self, memory: jax.Array) -> None:  # noqa: ARG002
        """Not known."""
        return

    def solve(
        self, fun: Function, theta: jax.Array, c: jax.Array, memory: jax.Array
    ) -> LinearSolution:
        """By at most 10 p products, as in SciPy."""
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
        value: of the function there.
    """

    params: Any
    gradient_norm: jax.Array
    iterations: jax.Array
    converged: jax.Array
    value: jax.Array


class InnerSolver(Protocol):
    """Minimises a function of theta. A pytree of its numbers, which compiled code takes."""

    def minimise(
        self, fun: Function, start: jax.Array, factor: jax.Array | None = None
    ) -> InnerSolution:
        """The solution, from a start [p]; warm starts save most of the work.

        It stops where sqrt(g' M^-1 g) is at most the tolerance, g being the gradient and M the
        Hessian (Newton's decrement) or L L', ``factor`` being the Cholesky factor L [p, p] of a
        Hessian near the solution. That bounds the error of theta in the metric that f itself sets;
        where no factor is known, M = I. The hypergradient is only as exact as this solution.
        """
        ...


def default_tolerance() -> float:
    """1e-8 in float64, which keeps hypergradients exact to about 1e-6; 1e-5 in float32.

    Single precision cannot reach less, and a solution that missed its tolerance says so.
    """
    return 1e-8 if jax.dtypes.canonicalize_dtype(float) == jnp.float64 else 1e-5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lbfgs:
    """jaxopt's L-BFGS in variables in which f is nearly round.

    With L the Cholesky factor of a Hessian near the solution, the search runs over phi in
    theta = start + L^-T phi, where the Hessian is close to the identity, so that the unit step
    nearly always does, and about as many steps as Newton's method are needed.

    Attributes:
        tolerance: see :class:`InnerSolver`.
        max_iterations: at most so many.
    """

    tolerance: jax.Array | float
    max_iterations: jax.Array | int = 100

    def minimise(
        self, fun: Function, start: jax.Array, factor: jax.Array | None = None
    ) -> InnerSolution:
        """See :class:`InnerSolver`."""
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
            linesearch="backtracking",
            linesearch_init="max",
            unroll=False,
            implicit_diff=False,
        )

        # Its own loop makes the first iteration outside of the loop, and compiles it twice.
        def unfinished(at: tuple[jax.Array, Any]) -> jax.Array:
            missed = jnp.linalg.norm(at[1].grad) > self.tolerance  # not-a-number ends it, too
            return missed & (at[1].iter_num < self.max_iterations)

        zero = jnp.zeros_like(start)
        first = zero, solver.init_state(zero)
        phi, last = jax.lax.while_loop(unfinished, lambda at: tuple(solver.update(*at)), first)
        gradient = last.grad if factor is None else factor @ last.grad  # in phi it is L^-1 that
        return InnerSolution(
            params=place(phi),
            gradient_norm=jnp.linalg.norm(gradient),
            iterations=last.iter_num,
            converged=jnp.linalg.norm(last.grad) <= self.tolerance,
            value=last.value,
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Newton:
    """Newton steps, halved until f falls enough.

    Boyd and Vandenberghe, Convex Optimization (2004), algorithm 9.5.

    Attributes:
        tolerance: see :class:`InnerSolver`.
        max_iterations: at most so many.
        linear: solver of its systems.
    """

    tolerance: jax.Array | float
    max_iterations: jax.Array | int = 100
    linear: LinearSolver = field(default=Cholesky(), metadata={"static": True})

    def minimise(
        self,
        fun: Function,
        start: jax.Array,
        factor: jax.Array | None = None,  # noqa: ARG002 - its Hessians are its own
    ) -> InnerSolution:
        """See :class:`InnerSolver`."""
        shortest = 0.5**40

        def unfinished(at: tuple[jax.Array, ...]) -> jax.Array:
            _, decrement, iterations, length = at
            # Not-a-number ends it, too.
            more = (decrement > self.tolerance) & (iterations < self.max_iterations)
            return more & (length >= shortest)

        def step(at: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            theta, _, iterations, _ = at
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

        unknown, one = jnp.full((), jnp.inf, start.dtype), jnp.ones((), start.dtype)
        first = start, unknown, jnp.zeros((), int), one
        theta, decrement, iterations, length = jax.lax.while_loop(unfinished, step, first)
        value, gradient = jax.value_and_grad(fun.value)(theta)
        return InnerSolution(
            params=theta,
            gradient_norm=jnp.linalg.norm(gradient),
            iterations=iterations,
            converged=(decrement <= self.tolerance) & (length >= shortest),
            value=value,
        )


@partial(jax.jit, static_argnames="model")
def train(
    rows: Rows,
    lambda_theta: jax.Array | float,
    *,
    model: Model,
    tolerance: jax.Array | float | None = None,
    max_iterations: jax.Array | int = 1000,
) -> InnerSolution:
    """Trains a model straight on rows, as a server does, Wu et al. (2024) eq. (15).

    Args:
        rows: real or synthetic.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        model: what is trained.
        tolerance: see :class:`InnerSolver`; that of :func:`default_tolerance` if not given.
        max_iterations: at most so many L-BFGS iterations.
    """
    params, settings = model.init(rows.a.shape[1]), (rows, lambda_theta)
    start, unravel = ravel_pytree(params)
    fun = Function(
        lambda theta: regularized_loss(model, unravel(theta), *settings),
        lambda theta: regularized_hessian(model, unravel(theta), *settings),
    )
    solver = Lbfgs(default_tolerance() if tolerance is None else tolerance, max_iterations)
    solution = solver.minimise(fun, start, Cholesky().init(fun, start))
    return solution._replace(params=unravel(solution.params))


class Optimizer(Protocol):
    """What moves x; hashable, as it is chosen when compiling."""

    def init(self, point: Point) -> Any:
        """The optimizer's state before the first step from a point."""
        ...

    def step(self, problem: Problem, point: Point, state: Any) -> tuple[jax.Array, Any]:
        """The next x [d, N_s], and the state there."""
        ...


@dataclass(frozen=True)
class GradientDescent:
    """Any optimizer of optax, along the hypergradient.

    Attributes:
        transformation: such as ``optax.adam(0.01)``, Wu et al. (2024) algorithm 1.
    """

    transformation: optax.GradientTransformation

    def init(self, point: Point) -> Any:
        """Optax's state."""
        return self.transformation.init(point.x)

    def step(self, problem: Problem, point: Point, state: Any) -> tuple[jax.Array, Any]:  # noqa: ARG002
        """Adds optax's update."""
        update = optax.with_extra_args_support(self.transformation).update
        more = {"value": point.record.objective, "grad": point.gradient}
        change, state = update(point.gradient, state, point.x, **more)
        return optax.apply_updates(point.x, change), state  # pyright: ignore


adam = cache(optax.adam)
"""``optax.adam``, the same object for the same rate, so that clients share a compilation."""


@dataclass(frozen=True)
class GaussNewton:
    """Damped Gauss-Newton steps on the synthetic features; needs :class:`Cholesky`.

    Adam crawls where rho_o is large: P(x) then is a narrow valley, curved a thousand times more
    across than along. But P sees the many features in x almost only through the few numbers in
    theta(x). So a step takes the curvature of P in theta, which is exact and small, and how theta
    moves with x:

        dx = - (J' |B| J + (m + e) I)^-1 (dP/dx + m (x - x_0)),
        J = dtheta/dx = - H^-1 d2 inner/(dtheta dx),     B = d2 P/dtheta2,

    with |B| for its eigenvalues' absolute values (P may be concave in some directions of theta),
    and H the inner Hessian. That is Newton's step for theta, made by the smallest move of x; e
    damps it, in the manner of Levenberg and Marquardt: larger after a step that failed, which is
    taken back, and smaller after one that did not. See Nocedal and Wright, Numerical Optimization
    (2006), section 10.3.

    Very many x have the same theta(x). Of these, what is minimised, P(x) + m/2 ||x - x_0||^2,
    chooses one near the first x_0. That matters to the pool: a model trained on the rows of several
    clients is near the mean of theirs only where their inner problems are curved alike, as they are
    where all clients' rows stay near where they started, together. It is as in the iteratively
    regularised Gauss-Newton method (Bakushinskii 1992), here with a fixed m.
    """

    def init(self, point: Point) -> tuple[Point, jax.Array]:
        """The best point so far, where any that is evaluated next is better; and the damping."""
        return point, jax.device_put(np.asarray(1e-3, point.x.dtype))

    def step(
        self, problem: Problem, point: Point, state: tuple[Point, jax.Array]
    ) -> tuple[jax.Array, tuple[Point, jax.Array]]:
        """One step from the best point so far."""
        best, damping = state
        # What is minimised is P with the pull.
        pulled = point.record.objective + PULL / 2 * jnp.mean((point.x - problem.start) ** 2)
        point = point._replace(record=point.record._replace(objective=pulled))
        better = point.record.improves(best.record)
        best = jax.tree.map(partial(jnp.where, better), point, best)
        damping = jnp.clip(jnp.where(better, damping / 4, damping * 4), 1e-9, 1e6)
        step = self.direction(problem, best, damping)
        # theta(x) is far from linear: a tenth of the features' range is far enough.
        step *= jnp.minimum(1.0, 0.1 / jnp.sqrt(jnp.mean(step**2)))
        return best.x + step, (best, damping)

    def direction(self, problem: Problem, point: Point, damping: jax.Array | float) -> jax.Array:
        """The step dx [d, N_s], by the Woodbury identity: only a p x p system is solved.

        With R'R = |B| and K = R J [p, N_s d],

            (K'K + c I)^-1 h = (h - K' (K K' + c I)^-1 K h) / c,      c = m + e.

        K is never formed: K K' = R (J J') R', and J h and J' v are one derivative each.
        """
        m = PULL / point.x.size
        h = point.gradient + m * (point.x - problem.start)
        # J = -H^-1 M, M = d2 inner/(dtheta dx), by the implicit function theorem.
        slope = jax.grad(lambda theta, x: problem.inner(x).value(theta))
        _, push = jax.linearize(lambda x: slope(point.theta, x), point.x)
        pull, factor = jax.linear_transpose(push, point.x), (point.curvature, True)

        def forward(dx: jax.Array) -> jax.Array:
            return -cho_solve(factor, push(dx))

        def back(v: jax.Array) -> jax.Array:
            return -pull(cho_solve(factor, v))[0]

        b = hessian_of(lambda theta: problem.outer(theta, point.x), point.theta)
        values, vectors = absolute_eigen(b)
        floor = 1e-10 * jnp.max(values)  # flat directions: let them move, but not to infinity
        root = jnp.sqrt(jnp.maximum(values, floor))[:, None] * vectors.T
        identity = jnp.eye(len(root), dtype=root.dtype)
        kk = root @ jax.lax.map(lambda v: forward(back(v)), identity) @ root.T
        c = m + damping * jnp.trace(kk) / len(kk)  # e is in units of the mean curvature
        inside = jnp.linalg.solve(kk + c * identity, root @ forward(h))
        return -(h - back(root.T @ inside)) / c


def hessian_of(fun: Callable[[jax.Array], jax.Array], theta: jax.Array) -> jax.Array:
    """Hessian [p, p] of a function of theta, a line at a time: rows of data may be a million."""
    _, times_hessian = jax.linearize(jax.grad(fun), theta)
    return jax.lax.map(times_hessian, jnp.eye(len(theta), dtype=theta.dtype))


def absolute_eigen(hessian: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Absolute eigenvalues [p] and eigenvectors [p, p]; 0 counts as a little, for rounding."""
    values, vectors = jnp.linalg.eigh(hessian)
    values = jnp.abs(values)
    return jnp.maximum(values, 10 * jnp.finfo(values.dtype).eps * jnp.max(values)), vectors


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Method:
    """By what a problem is solved; a pytree, whose numbers may differ without compiling anew.

    Attributes:
        inner: solver of the inner problem.
        linear: solver for its derivative.
        optimizer: of x.
    """

    inner: InnerSolver
    linear: LinearSolver = field(metadata={"static": True})
    optimizer: Optimizer = field(metadata={"static": True})


def choose_method(
    problem: Problem,
    config: DistillConfig,
    *,
    optimizer: optax.GradientTransformation | None = None,
) -> Method:
    """What the settings name for a problem; another optimizer of x, if given.

    Where they say "auto", the solvers that are faster for so many params as the problem has.

    Raises:
        InputError: the settings name a custom optimizer, and none is given, or one that cannot be
            used.
    """
    large = len(problem.first_theta) >= LARGE
    # Gauss-Newton steps need the Hessian itself.
    iterates = {
        "auto": large and config.optimizer != "gauss_newton",
        "cholesky": False,
        "conjugate_gradient": True,
    }[config.linear_solver]
    # L-BFGS learns the curvature from a factor, or, with few params, in some tens of steps.
    steps = {"auto": large, "lbfgs": False, "newton": True}[config.inner_solver]
    numbers = config.inner_tolerance or default_tolerance(), config.inner_max_iterations
    if steps:
        # Systems of Newton's method that are solved by iteration need not be solved exactly.
        inner = Newton(*numbers, linear=ConjugateGradient(1e-3) if iterates else Cholesky())
    else:
        inner = Lbfgs(*numbers)
    if optimizer is not None:
        _require_usable(optimizer, problem.start)
        mover = GradientDescent(optimizer)
    elif config.optimizer == "custom":
        raise InputError("optimizer: custom is one given in Python, by distill_table(optimizer=)")
    elif config.optimizer == "gauss_newton":
        mover = GaussNewton()
    else:
        mover = GradientDescent(adam(config.learning_rate))
    return Method(inner, ConjugateGradient() if iterates else Cholesky(), mover)


def _require_usable(optimizer: optax.GradientTransformation, x: jax.Array) -> None:
    """Refuses what cannot move x by its gradient and P(x) alone, before anything is computed."""

    def once(x: jax.Array) -> tuple[Any, Any]:
        state, update = optimizer.init(x), optax.with_extra_args_support(optimizer).update
        return state, update(x, state, x, value=jnp.sum(x), grad=x)

    try:
        state, _ = jax.eval_shape(once, x)
    except Exception as error:  # whatever a user's own code raises
        raise InputError(
            f"optimizer: cannot be used with the gradient and the value of P(x) alone: {error}"
        ) from error
    kinds = [leaf.dtype for leaf in jax.tree.leaves(state)]
    if any(jnp.issubdtype(kind, jax.dtypes.extended) for kind in kinds):
        raise InputError("optimizer: its state holds random keys, which a checkpoint cannot save")
