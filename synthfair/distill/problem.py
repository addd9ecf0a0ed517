"""The bilevel problem of one client: Wu et al. (2024) eq. (11) inside eq. (12)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.data.real_rows import RealRows, beside_features, gather
from synthfair.distill.implicit import mixed_of
from synthfair.distill.objective import Objective, PenalizedLoss
from synthfair.distill.start import Start, choose_private_start, choose_start
from synthfair.fairness.penalties import CovariancePenalty, Penalty, SelectionRatePenalty
from synthfair.model import (
    LinearModel,
    Model,
    Params,
    Rows,
    derivative,
    regularized_hessian,
    regularized_loss,
    squared_norm,
)

ALIGNED = 8
"""Where N_s is a multiple of this, each column of x begins, in double precision, where a line of a
processor's cache does: products with columns are a quarter faster. It does no harm elsewhere."""

MANY_ROWS = 1000
"""From so many synthetic rows on, a few more cost nothing."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """min over x of P(x) = outer(theta(x), x), where theta(x) minimises inner(theta, x).

    Real rows enter through ``objective`` alone.

    Attributes:
        objective: F(theta).
        s: [N_s] groups of the synthetic rows, fixed.
        y: [N_s] labels of the synthetic rows, fixed.
        beside: [n - d, N_s] columns that a model sees of them beside the features, fixed.
        rho_s: weight of the penalty on synthetic rows, at least 0; None where there is none, as
            usual, and then it is not computed.
        lambda_x: regularisation of x, at least 0.
        lambda_theta: regularisation of theta, positive.
        model: what is trained.
        penalty: the same surrogate as in F.
        still: how many of the last lines of x do not move: 0 unless :meth:`widened`.
    """

    objective: Objective
    s: jax.Array
    y: jax.Array
    beside: jax.Array
    rho_s: jax.Array | float | None
    lambda_x: jax.Array | float
    lambda_theta: jax.Array | float
    model: Model = field(metadata={"static": True})
    penalty: Penalty = field(metadata={"static": True})
    still: int = field(default=0, metadata={"static": True})

    def widened(self) -> Problem:
        """The same problem with :meth:`widen` of x in the place of x.

        x, and all that is shaped like it, is [n, N_s + k] then: all columns of the rows in one
        array, which a step need not put together by copying x. What was not in x does not move.

        The k rows more are zero, their label, too: so their gradient is, and they only count in the
        mean over rows. lambda_theta is smaller by as much, which makes the inner objective
        N_s / (N_s + k) times what it was, plus a constant: its gradient's norm and its Hessian are
        smaller so. lambda_x is larger by the square, as eq. (12) divides by (N_s n)^2. theta(x)
        and P(x) are the same.
        """
        none, more = self.beside[..., :0, :], self._more_rows()
        growth = 1 + more / self.y.shape[-1]
        return dataclasses.replace(
            self,
            s=_with_zeros(self.s, more),
            y=_with_zeros(self.y, more),
            beside=_with_zeros(none, more),
            lambda_theta=self.lambda_theta / growth,
            lambda_x=self.lambda_x * growth**2,
            still=self.still + self.beside.shape[-2],
        )

    def widen(self, x: jax.Array) -> jax.Array:
        """All columns of the rows with features x [d, N_s], and k rows of zeros: [n, N_s + k].

        Where there are :data:`MANY_ROWS`, N_s + k is the next multiple of :data:`ALIGNED`.
        """
        return _with_zeros(jnp.concatenate([x, self.beside], axis=-2), self._more_rows())

    def _more_rows(self) -> int:
        """k; none where a row of zeros has a meaning: to a penalty, or to a model not known."""
        n_rows, known = self.y.shape[-1], type(self.model) is LinearModel and self.rho_s is None
        return -n_rows % ALIGNED if known and n_rows >= MANY_ROWS else 0

    def moving(self, x: jax.Array) -> jax.Array:
        """x, or a gradient like it, with zeros in the lines that do not move."""
        if not self.still:
            return x
        return jnp.where(jnp.arange(len(x))[:, None] < len(x) - self.still, x, 0.0)

    def rows(self, x: jax.Array) -> Rows:
        """The synthetic rows with features x [d, N_s]."""
        return self.rows_of(self.columns(x))

    def columns(self, x: jax.Array) -> jax.Array:
        """The columns that a model sees of these rows [n, N_s], the features first."""
        return jnp.concatenate([x, self.beside])

    def rows_of(self, columns: jax.Array) -> Rows:
        """The synthetic rows with given columns [n, N_s]."""
        return Rows(columns.T, self.s, self.y)

    def training_loss(self, params: Params, columns: jax.Array) -> jax.Array:
        """Regularised loss of params on the synthetic rows with given columns, eq. (11)."""
        return regularized_loss(self.model, params, self.rows_of(columns), self.lambda_theta)

    def training_hessian(self, params: Params, columns: jax.Array) -> jax.Array:
        """Its Hessian in params [p, p]."""
        return regularized_hessian(self.model, params, self.rows_of(columns), self.lambda_theta)

    def training_mixed(self, params: Params, columns: jax.Array, v: jax.Array) -> jax.Array:
        """(d2 inner/(dtheta dcolumns))' v [n, N_s], v [p].

        Of a linear model it is, for each row, l'(m) y v + l''(m) (a'v) theta over N_s, m the
        margin y a'theta: a product of two columns with two rows, where automatic differentiation
        would pass over all numbers again and again. Written as a sum and not as a product of
        matrices, it is computed where it is used, and not stored.
        """
        if type(self.model) is not LinearModel:
            return mixed_of(self.training_loss)(params, columns, v)
        n_rows = columns.shape[1]
        slope = partial(derivative, self.model.margin_loss)
        margin = self.y * self.model.scores(params, columns.T)
        first = slope(margin) * self.y / n_rows
        second = jax.jvp(slope, (margin,), (v @ columns,))[1] / n_rows
        return v[:, None] * first + params[:, None] * second

    def inner(self, params: Params, x: jax.Array) -> jax.Array:
        """The same on the synthetic rows, as a function of x."""
        return self.training_loss(params, self.columns(x))

    def outer(self, params: Params, x: jax.Array) -> jax.Array:
        """F(theta) + rho_s synthetic penalty + lambda_x / (2 (N_s n)^2) ||x||^2, eq. (12)."""
        ridge = self.lambda_x / (2 * self.columns(x).size ** 2) * squared_norm(self.moving(x))
        if self.rho_s is None:
            return self.objective(params) + ridge
        unfairness = self.rho_s * self.penalty(self.model, params, self.rows(x))
        return self.objective(params) + unfairness + ridge


def _with_zeros(lines: jax.Array, more: int) -> jax.Array:
    """With so many zeros more at the end of the last axis."""
    return jnp.pad(lines, [*[(0, 0)] * (lines.ndim - 1), (0, more)]) if more else lines


def make_penalty(config: DistillConfig, *, n_groups: int) -> Penalty:
    """The penalty that ``config.penalty`` and ``config.notion`` name."""
    if config.penalty == "covariance":
        return CovariancePenalty(n_groups, config.notion)
    return SelectionRatePenalty(n_groups, config.notion, config.temperature)


def make_rows(encoded: Encoded, *, n_groups: int, intercept: bool) -> Rows:
    """Encoded rows as a model sees them."""
    gathered = gather([encoded], len(encoded.y), n_groups=n_groups, intercept=intercept)
    columns, s, y = gathered.on_device()
    return Rows(columns.T, s, y)


def make_problem(
    real: Encoded | RealRows,
    config: DistillConfig,
    *,
    n_groups: int,
    model: Model | None = None,
    penalty: Penalty | None = None,
) -> tuple[Problem, jax.Array]:
    """The bilevel problem of one client, and the first x [d, N_s].

    Args:
        real: the real rows; if gathered, then for these settings.
        config: settings.
        n_groups: number of groups.
        model: the linear model with the logistic loss if not given.
        penalty: that of the settings if not given.

    Raises:
        InputError: the synthetic rows cannot be chosen as the settings say.
    """
    if isinstance(real, Encoded):
        real = gather([real], len(real.y), n_groups=n_groups, intercept=config.intercept)
    model = model or LinearModel()
    penalty = penalty or make_penalty(config, n_groups=n_groups)
    objective = PenalizedLoss(
        *real.on_device(), config.rho_o, model, penalty, config.notion, n_groups
    )
    start = choose_start(_first_rng(config), real.encoded, config, n_groups=n_groups)
    return _assembled(objective, start, config, model=model, penalty=penalty, n_groups=n_groups)


def make_private_problem(
    objective: Objective,
    counts: np.ndarray,
    config: DistillConfig,
    *,
    d: int,
    model: Model,
    penalty: Penalty,
) -> tuple[Problem, jax.Array]:
    """The same for an objective that was found privately, without a real row.

    Args:
        objective: F(theta).
        counts: [G, 2] noisy numbers of rows by group and label, positive.
        config: settings, with a start and labels that read no real row.
        d: number of features.
        model: what is trained.
        penalty: for the rho_s term.

    Raises:
        InputError: the synthetic rows cannot be chosen as the settings say.
    """
    start = choose_private_start(_first_rng(config), counts, config, d=d)
    return _assembled(objective, start, config, model=model, penalty=penalty, n_groups=len(counts))


def _first_rng(config: DistillConfig) -> np.random.Generator:
    return np.random.default_rng(config.seed)


def _assembled(
    objective: Objective,
    start: Start,
    config: DistillConfig,
    *,
    model: Model,
    penalty: Penalty,
    n_groups: int,
) -> tuple[Problem, jax.Array]:
    # Unlike jnp.asarray, device_put compiles nothing.
    x, s, y = (jax.device_put(np.ascontiguousarray(part.T)) for part in start)
    beside = beside_features(np.asarray(start.s), n_groups=n_groups, intercept=config.intercept)
    problem = Problem(
        objective=objective,
        s=s,
        y=y,
        beside=jax.device_put(beside),
        rho_s=config.rho_s or None,
        lambda_x=config.lambda_x,
        lambda_theta=config.lambda_theta,
        model=model,
        penalty=penalty,
    )
    return problem, x
