"""The bilevel problem of one client, solved in steps: Wu et al. (2024), algorithm 1.

    min over x of  P(x) = F(theta(x)) + rho_s penalty + ridge on x                          eq. (12)
    theta(x) = argmin over theta of the regularised loss on the synthetic rows              eq. (11)

Real rows enter through F alone. A step (:func:`step`) trains on the synthetic rows, differentiates
P through the implicit derivative of theta(x) (:func:`evaluate`), and moves x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from synthfair.data.batches import other_inputs
from synthfair.data.encode import Encoded, content_order
from synthfair.distill.losses import mean_loss, squared_norm
from synthfair.distill.solvers import Function, Method, regularized
from synthfair.errors import InputError
from synthfair.fairness.penalties import (
    CovariancePenalty,
    Grouping,
    Notion,
    Penalty,
    decision_gaps,
    named_penalty,
)
from synthfair.model import LinearModel, Model, Params, Rows, padded
from synthfair.release.settings import DistillConfig

CHUNK = 50
"""Steps in one compiled call, but for the first: enough to cost nothing, few enough to show and to
interrupt."""

MAX_PADDED_ROWS = 2**17
"""Most rows that are padded, so that tables of nearly one size share compiled code. More are used
where they lie: a copy of them would take more than compiling does."""


ROWS_PER_PAIR = 200
"""Synthetic rows for each pair of group and label where n_synthetic is not given."""

PUBLIC_STARTS = {"range": (0.0, 1.0), "middle": (0.25, 0.75)}
"""Starts that read no real row: uniform over the range that encoded features have by the schema,
or over its middle half."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PenalizedLoss:
    """The loss F(theta) = mean loss + rho_o penalty on real rows: Wu et al. (2024) eq. (12).

    Attributes:
        columns: [n, N] model inputs of the real rows, an input a line.
        s: [N] their groups.
        y: [N] their labels.
        weight: [N] how much each counts: 1, or 0 of rows that pad; None: all alike.
        rho_o: weight of the penalty, at least 0.
        model: what is trained.
        penalty: a differentiable measure of unfairness.
        notion: which rows :meth:`covariance` and :meth:`gap` compare.
        n_groups: number of groups.
        by: groupings that they compare; without any, each index s is a group.
    """

    columns: jax.Array
    s: jax.Array
    y: jax.Array
    weight: jax.Array | None
    rho_o: jax.Array | float
    model: Model = field(metadata={"static": True})
    penalty: Penalty = field(metadata={"static": True})
    notion: Notion = field(default="statistical_parity", metadata={"static": True})
    n_groups: int = field(default=2, metadata={"static": True})
    by: tuple[Grouping, ...] = field(default=(), metadata={"static": True})

    @property
    def rows(self) -> Rows:
        """The real rows."""
        return Rows(self.columns.T, self.s, self.y, self.weight)

    def __call__(self, params: Params) -> jax.Array:
        """Return F(theta); loss and penalty share one pass over the scores."""
        rows, scores = self.rows, self._scores(params)
        return mean_loss(self.model, scores, rows) + self.rho_o * self.penalty(scores, rows)

    def covariance(self, params: Params) -> jax.Array:
        """Return C(theta), eq. (2), (3): signed, of the stratum and group where it is largest."""
        penalty = CovariancePenalty(self.n_groups, self.notion, self.by)
        covariances = penalty.gaps(self._scores(params), self.rows)
        return covariances.ravel()[jnp.argmax(jnp.abs(covariances))]

    def gap(self, params: Params) -> jax.Array:
        """Return max_g P(decision = +1 | s = g) - min_g P(decision = +1 | s = g) of the real rows.

        Among the rows that the notion compares, the largest. With statistical parity that is
        |SPD|, eq. (4).
        """
        compared: Any = {"notion": self.notion, "n_groups": self.n_groups, "by": self.by}
        return jnp.nanmax(decision_gaps(self._scores(params), self.rows, **compared))

    def _scores(self, params: Params) -> jax.Array:
        return self.model.scores(params, self.rows.a)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """The problem min over x of P(x) = outer(theta(x), x), where theta(x) minimises inner(x).

    Within this package synthetic features are x [d, N_s], a feature a line: what is done to each
    entry is then done to long lines, which takes less than half of the time. theta [p] is the
    model's params as one vector.

    Attributes:
        objective: F(theta).
        start: [d, N_s] the first x.
        s: [N_s] groups of the synthetic rows, fixed; all 0 where the model reads none.
        y: [N_s] labels of the synthetic rows, fixed.
        constant: [n - d, N_s] model inputs of the synthetic rows other than the features, fixed:
            indicators of the groups where it reads them, and 1 where there is an intercept.
        rho_s: weight of the penalty on synthetic rows, at least 0; None where there is none.
        lambda_x: regularisation of x, at least 0.
        lambda_theta: regularisation of theta, positive.
    """

    objective: PenalizedLoss
    start: jax.Array
    s: jax.Array
    y: jax.Array
    constant: jax.Array
    rho_s: jax.Array | float | None
    lambda_x: jax.Array | float
    lambda_theta: jax.Array | float

    @property
    def model(self) -> Model:
        """The model that is trained, on real rows and on synthetic ones."""
        return self.objective.model

    def inner(self, x: jax.Array) -> Function:
        """Return the regularised loss on the synthetic rows, eq. (11), as a function of theta."""
        return regularized(self.model, self._rows(x), self.lambda_theta)

    def outer(self, theta: jax.Array, x: jax.Array) -> jax.Array:
        """Return F(theta) + rho_s penalty + lambda_x / (2 (N_s n)^2) ||x||^2, eq. (12)."""
        params, n_inputs = self.params(theta), len(x) + len(self.constant)
        ridge = self.lambda_x / (2.0 * (x.shape[1] * n_inputs) ** 2) * squared_norm(x)
        if self.rho_s is None:
            return self.objective(params) + ridge
        rows = self._rows(x)
        unfairness = self.objective.penalty(self.model.scores(params, rows.a), rows)
        return self.objective(params) + self.rho_s * unfairness + ridge

    def _rows(self, x: jax.Array) -> Rows:
        """Return the synthetic rows as the model sees them."""
        return Rows(jnp.concatenate([x, self.constant]).T, self.s, self.y)

    @property
    def first_theta(self) -> jax.Array:
        """[p] params before training."""
        return ravel_pytree(self.model.init(len(self.start) + len(self.constant)))[0]

    def params(self, theta: jax.Array) -> Params:
        """Return the model's params, of which theta is the vector."""
        return ravel_pytree(self.model.init(len(self.start) + len(self.constant)))[1](theta)


class StepRecord(NamedTuple):
    """The measures of one x; or of many, one after the other.

    Attributes:
        objective: P(x).
        covariance: of group and score on the real rows, as the objective defines it.
        gap: largest difference between the groups' decision rates there.
        gradient_norm: of the inner problem, at its solution.
        inner_converged: whether the inner problem, and the system for its derivative, met their
            tolerances.
        inner_iterations: L-BFGS iterations or Newton steps.
    """

    objective: jax.Array | np.ndarray
    covariance: jax.Array | np.ndarray
    gap: jax.Array | np.ndarray
    gradient_norm: jax.Array | np.ndarray
    inner_converged: jax.Array | np.ndarray
    inner_iterations: jax.Array | np.ndarray

    def improves(self, best: StepRecord) -> jax.Array | np.ndarray:
        """Return whether P(x) is lower than the least so far.

        A theta that is not the inner optimum may look good, and a server would not find it: x whose
        inner problem converged come first.
        """
        now, then = self.inner_converged, best.inner_converged
        return (now & ~then) | ((now == then) & (self.objective < best.objective))


class Point(NamedTuple):
    """A point x [d, N_s] of synthetic features, with theta(x) [p] and the measures there."""

    x: jax.Array
    theta: jax.Array
    record: StepRecord


def implicit_vjp(fun: Callable[[Any, Any], jax.Array], theta: Any, data: Any, v: Any) -> Any:
    """Return the cotangent c of theta, pulled back to x by the inner optimum, given v = H^-1 c.

    At the optimum df/dtheta = 0 for every x, hence H dtheta/dx + d2f/(dtheta dx) = 0 and

        (dtheta/dx)' c = - (d2f/(dtheta dx))' H^-1 c.

    Wu et al. (2024) eq. (14), which prints the equation without the minus sign.

    Args:
        fun: f(theta, x), twice differentiable and strictly convex in theta.
        theta: the inner optimum theta(x); the result is as exact as this is stationary.
        data: x, any pytree.
        v: H^-1 c, H the Hessian at (theta, data).

    Returns:
        A pytree like data.
    """
    _, pull = jax.vjp(lambda d: jax.grad(fun)(theta, d), data)
    return jax.tree.map(lambda leaf: -leaf, pull(v)[0])


def evaluate(
    problem: Problem, x: jax.Array, theta: jax.Array, curvature: jax.Array, method: Method
) -> tuple[Point, jax.Array, jax.Array]:
    """Return x with its measures, the hypergradient [d, N_s] of P, and the curvature there.

        dP/dx = dP/dx (direct)  -  (d2 inner/(dtheta dx))' H^-1 dP/dtheta

    Wu et al. (2024) eq. (13); the direct part has the rho_s term as well as the lambda_x term.
    The solvers start at the theta and the curvature of an x nearby.
    """
    # theta(x), eq. (11).
    inner, factor = problem.inner(x), curvature if curvature.ndim == 2 else None
    theta, gradient_norm, iterations, converged = method.inner.minimise(inner, theta, factor)
    # The direct derivatives of P.
    value, (by_theta, by_x) = jax.value_and_grad(problem.outer, argnums=(0, 1))(theta, x)
    # The derivative through theta(x), eq. (14).
    v, curvature, solved = method.linear.solve(inner, theta, by_theta, curvature)
    through_theta = implicit_vjp(lambda theta, x: problem.inner(x).value(theta), theta, x, v)
    params = problem.params(theta)
    record = StepRecord(
        value,
        problem.objective.covariance(params),
        problem.objective.gap(params),
        gradient_norm,
        converged & solved,
        iterations.astype(int),
    )
    return Point(x, theta, record), by_x + through_theta, curvature


class OuterState(NamedTuple):
    """The state that a step reads and returns.

    Attributes:
        x: [d, N_s] synthetic features, the next to evaluate.
        theta: [p] theta near x, where the next inner solve starts.
        curvature: what the linear solver remembers of the inner Hessian there: Cholesky its factor
            [p, p], conjugate gradients their solution [p].
        optimizer: the optimizer's own.
        best: where P was least, among x whose inner problem converged.
    """

    x: jax.Array
    theta: jax.Array
    curvature: jax.Array
    optimizer: Any
    best: Point


def step(problem: Problem, state: OuterState, method: Method) -> tuple[OuterState, StepRecord]:
    """Train on x, differentiate P(x), and return the moved x: one pass of algorithm 1's loop."""
    point, slope, curvature = evaluate(problem, state.x, state.theta, state.curvature, method)
    update = optax.with_extra_args_support(method.optimizer).update
    more = {"value": point.record.objective, "grad": slope}
    change, memory = update(slope, state.optimizer, point.x, **more)
    better = point.record.improves(state.best.record)
    best = jax.lax.cond(better, lambda: point, lambda: state.best)
    x = cast(jax.Array, optax.apply_updates(point.x, change))
    return OuterState(x, point.theta, curvature, memory, best), point.record


def init(problem: Problem, method: Method, *, after: OuterState | None = None) -> OuterState:
    """Return the state before the first step.

    With ``after``, of a run where P was another, it goes on from the best x of that.
    """
    if after is None:
        x, theta = problem.start, problem.first_theta
        curvature = _first_curvature(problem, method)
    else:
        (x, theta, _), curvature = after.best, after.curvature
    # NumPy's arrays are put on the device without compiling. Nothing is measured yet.
    zero, count = np.zeros((), x.dtype), np.zeros((), jax.dtypes.canonicalize_dtype(int))
    nothing = StepRecord(np.full((), np.inf, x.dtype), zero, zero, zero, np.zeros((), bool), count)
    memory, record = jax.device_put((method.optimizer.init(x), nothing))
    return OuterState(x, theta, curvature, memory, Point(x, theta, record))


@jax.jit
def _first_curvature(problem: Problem, method: Method) -> jax.Array:
    return method.linear.init(problem.inner(problem.start), problem.first_theta)


@jax.jit
def _chunk(
    problem: Problem, state: OuterState, method: Method, steps: int
) -> tuple[OuterState, StepRecord]:
    """Take so many steps and return the state, and their records with blank ones up to CHUNK."""

    def body(i: jax.Array, carry: tuple[OuterState, StepRecord]) -> tuple[OuterState, StepRecord]:
        state, records = carry
        state, record = step(problem, state, method)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), records, record)

    blank = jax.tree.map(lambda leaf: jnp.zeros(CHUNK, leaf.dtype), state.best.record)
    return jax.lax.fori_loop(0, steps, body, (state, blank))


def run(
    problem: Problem, state: OuterState, method: Method, *, steps: int
) -> Iterator[tuple[OuterState, StepRecord]]:
    """Optimise in compiled chunks, so that a caller may show or interrupt between them.

    Args:
        problem: what is minimised.
        state: from :func:`init`.
        method: what solves it.
        steps: at least 1.

    Yields:
        The state after a chunk, the first of which is so short that whole ones are left, and the
        records [up to CHUNK] of its steps, as NumPy arrays. There is one more record than steps, as
        the x after the last step is evaluated, too.
    """
    while steps >= 0:
        taken = steps % CHUNK + 1
        state, records = _chunk(problem, state, method, taken)
        yield state, StepRecord(*(np.asarray(field)[:taken] for field in records))
        steps -= taken


@jax.jit
def outer_excess(problem: Problem, best: Point) -> jax.Array:
    """Return how far P(x) is above min F, as a share of F of the untrained model.

        (1/2 g' |B|^-1 g + P(x) - F(theta)) / F(theta_0),    g = dF/dtheta,    B = d2F/dtheta2.

    The first term, half the squared Newton decrement, estimates F(theta) - min F (Boyd and
    Vandenberghe 2004, eq. 9.30): the many features in x can nearly always reach that minimum. |B|
    has the absolute eigenvalues of B, as F may be concave in places. P(x) - F(theta), the ridge on
    x and the rho_s penalty, counts as a whole.
    """

    def fun(theta: jax.Array) -> jax.Array:
        return problem.objective(problem.params(theta))

    value, slope = jax.value_and_grad(fun)(best.theta)
    # The Hessian, a line at a time: rows of data may be a million.
    _, times_hessian = jax.linearize(jax.grad(fun), best.theta)
    hessian = jax.lax.map(times_hessian, jnp.eye(len(slope), dtype=slope.dtype))
    values, vectors = jnp.linalg.eigh(hessian)
    values = jnp.abs(values)  # 0 counts as a little, for rounding
    values = jnp.maximum(values, 10 * jnp.finfo(values.dtype).eps * jnp.max(values))
    along = slope @ vectors
    decrement = 0.5 * jnp.sum(along**2 / jnp.where(along == 0, 1.0, values))
    return (decrement + best.record.objective - value) / fun(problem.first_theta)


def make_problem(
    real: Encoded,
    config: DistillConfig,
    *,
    n_groups: int,
    weight: np.ndarray | None = None,
    by: tuple[Grouping, ...] = (),
    model: Model | None = None,
    penalty: Penalty | None = None,
) -> Problem:
    """Return the bilevel problem of one client.

    Args:
        real: the real rows; in their :func:`~synthfair.data.encode.content_order` they are summed.
        config: settings.
        n_groups: number of groups.
        weight: [N] how much each row counts; all alike if None.
        by: groupings that are compared; without any, each index s is a group.
        model: the linear model with the logistic loss if not given.
        penalty: that of the settings if not given; one that is given sees the real rows alone.

    Raises:
        InputError: the synthetic rows cannot be chosen as the settings say.
    """
    n_read = n_groups if config.group_input else 1
    # A blind release does not declare groups, so that its order must not tell them.
    order = content_order([*real.x.T, *[real.s] * (n_read > 1), real.y])
    real = Encoded(*(field[order] for field in real))
    weight = None if weight is None else weight[order]
    constant = other_inputs(real.s, n_groups=n_read, intercept=config.intercept)
    # An input a line: on a CPU, products with long lines are faster.
    rows = Rows(np.ascontiguousarray(np.vstack([real.x.T, constant])).T, real.s, real.y, weight)
    if penalty is None and len(real.y) <= MAX_PADDED_ROWS:
        rows = padded(rows)
    model = model or LinearModel()
    penalty = penalty or named_penalty(config, n_groups=n_groups, by=by)
    start = choose_start(config, real, n_groups=n_groups)
    columns, s, y, row_weight = jax.device_put((rows.a.T, *rows[1:]))
    kinds: Any = model, penalty, config.notion, n_groups, by
    objective = PenalizedLoss(columns, s, y, row_weight, config.rho_o, *kinds)
    constant = other_inputs(start.s, n_groups=n_read, intercept=config.intercept)
    # Unlike jnp.asarray, device_put compiles nothing.
    x, s, y, constant = jax.device_put(
        (np.ascontiguousarray(start.x.T), start.s, start.y, constant)
    )
    weights = config.rho_s or None, config.lambda_x, config.lambda_theta
    return Problem(objective, x, s, y, constant, *weights)


def choose_start(config: DistillConfig, rows: Encoded, *, n_groups: int) -> Encoded:
    """Return groups, labels and first features as ``config.labels`` and ``config.start`` say.

    With balanced labels and a public start nothing is read but the number of features. Every other
    choice discloses something; see the documentation of settings.

    Args:
        config: settings; the seed is theirs.
        rows: the rows, of which only some settings read more than the number of features.
        n_groups: number of groups.

    Raises:
        InputError: n_synthetic does not split as wanted.
    """
    rng = np.random.default_rng(config.seed)
    n_rows = config.n_synthetic or ROWS_PER_PAIR * 2 * n_groups
    if not config.group_input:
        n_groups, rows = 1, rows._replace(s=np.zeros_like(rows.s))
    if config.labels == "copy":
        if config.n_synthetic not in (None, len(rows.y)):
            raise InputError(
                f"n_synthetic = {config.n_synthetic}: with labels = 'copy' it must be the number of"
                f" real rows, {len(rows.y)}"
            )
        s, y = rows.s, rows.y
    else:
        pairs = 2 * n_groups
        if n_rows % pairs:
            raise InputError(
                f"n_synthetic = {n_rows}: with balanced labels it must be a multiple of {pairs},"
                f" the number of {'labels' if n_groups == 1 else 'pairs of group and label'}"
            )
        s = np.repeat(np.arange(n_groups), 2 * (n_rows // pairs))
        y = np.repeat(np.tile([-1.0, 1.0], n_groups), n_rows // pairs)
    shape = (len(s), rows.x.shape[1])
    if config.start in PUBLIC_STARTS:
        return Encoded(rng.uniform(*PUBLIC_STARTS[config.start], size=shape), s, y)
    spread = [column.std() for column in rows.x.T]  # one by one: they may be a million
    return Encoded(rows.x.mean(axis=0) + spread * rng.standard_normal(shape), s, y)
