"""The bilevel problem of one client: Wu et al. (2024) eq. (11) inside eq. (12)."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import DistillConfig
from synthfair.data.batches import RealRows, gather, other_inputs
from synthfair.data.encode import Encoded
from synthfair.distill.objective import Objective, PenalizedLoss
from synthfair.distill.start import Start, choose_private_start, choose_start
from synthfair.fairness.penalties import CovariancePenalty, Penalty, SelectionRatePenalty
from synthfair.model import (
    LinearModel,
    Model,
    Params,
    Rows,
    regularized_hessian,
    regularized_loss,
    squared_norm,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """min over x of P(x) = outer(theta(x), x), where theta(x) minimises inner(theta, x).

    Real rows enter through ``objective`` alone. Within this package synthetic features are x
    [d, N_s], a feature a line: what is done to each entry is then done to long lines, which takes
    less than half of the time.

    Attributes:
        objective: F(theta).
        start: [d, N_s] the first x.
        s: [N_s] groups of the synthetic rows, fixed.
        y: [N_s] labels of the synthetic rows, fixed.
        others: [n - d, N_s] model inputs of the synthetic rows other than the features, fixed:
            indicators of the groups, and 1 where there is an intercept.
        rho_s: weight of the penalty on synthetic rows, at least 0; None where there is none.
        lambda_x: regularisation of x, at least 0.
        lambda_theta: regularisation of theta, positive.
        model: what is trained.
        penalty: the same as in F.
    """

    objective: Objective
    start: jax.Array
    s: jax.Array
    y: jax.Array
    others: jax.Array
    rho_s: jax.Array | float | None
    lambda_x: jax.Array | float
    lambda_theta: jax.Array | float
    model: Model = field(metadata={"static": True})
    penalty: Penalty = field(metadata={"static": True})

    def inputs(self, x: jax.Array) -> jax.Array:
        """Model inputs [n, N_s] of the synthetic rows with features x [d, N_s]."""
        return jnp.concatenate([x, self.others])

    def inner(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Regularised loss on the synthetic rows, eq. (11), as a function of their inputs."""
        return regularized_loss(self.model, params, self._rows(inputs), self.lambda_theta)

    def inner_hessian(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Its Hessian in params [p, p]."""
        return regularized_hessian(self.model, params, self._rows(inputs), self.lambda_theta)

    def outer(self, params: Params, x: jax.Array) -> jax.Array:
        """F(theta) + rho_s synthetic penalty + lambda_x / (2 (N_s n)^2) ||x||^2, eq. (12)."""
        n_inputs = len(x) + len(self.others)
        ridge = self.lambda_x / (2 * (x.shape[1] * n_inputs) ** 2) * squared_norm(x)
        if self.rho_s is None:
            return self.objective(params) + ridge
        rows = self._rows(self.inputs(x))
        unfairness = self.penalty(self.model.scores(params, rows.a), rows)
        return self.objective(params) + self.rho_s * unfairness + ridge

    def _rows(self, inputs: jax.Array) -> Rows:
        return Rows(inputs.T, self.s, self.y)


def make_penalty(config: DistillConfig, *, n_groups: int) -> Penalty:
    """The penalty that ``config.penalty`` and ``config.notion`` name."""
    if config.penalty == "covariance":
        return CovariancePenalty(n_groups, config.notion)
    return SelectionRatePenalty(n_groups, config.notion, config.temperature)


def make_rows(encoded: Encoded, *, n_groups: int, intercept: bool) -> Rows:
    """Encoded rows as a model sees them, in their order."""
    others = other_inputs(encoded.s, n_groups=n_groups, intercept=intercept)
    columns = np.concatenate([encoded.x.T, others])
    columns, s, y = map(jax.device_put, (columns, encoded.s, encoded.y))
    return Rows(columns.T, s, y)


def make_problem(
    real: Encoded | RealRows,
    config: DistillConfig,
    *,
    n_groups: int,
    model: Model | None = None,
    penalty: Penalty | None = None,
) -> Problem:
    """The bilevel problem of one client.

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
) -> Problem:
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
) -> Problem:
    others = other_inputs(start.s, n_groups=n_groups, intercept=config.intercept)
    # Unlike jnp.asarray, device_put compiles nothing.
    x, s, y = jax.device_put((np.ascontiguousarray(start.x.T), start.s, start.y))
    return Problem(
        objective=objective,
        start=x,
        s=s,
        y=y,
        others=jax.device_put(others),
        rho_s=config.rho_s or None,
        lambda_x=config.lambda_x,
        lambda_theta=config.lambda_theta,
        model=model,
        penalty=penalty,
    )
