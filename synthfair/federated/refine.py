"""Exact refinement: from a model nearby to the central optimum, by a few exchanges of sums.

For given params, all that the problem of :mod:`synthfair.surrogate.fair_training` needs adds up
over rows: the losses and, for each group, what the penalty compares, with their first and second
derivatives. From these sums over all clients the server computes the objective, its gradient and
its Hessian, and asks for the sums at the ends of several damped Newton steps at once. So an
exchange is a whole step of central training: near the optimum it squares the error.

Related: Jordan, Lee and Yang (2019), *Communication-efficient distributed statistical inference*;
Safaryan et al. (2022), *FedNL: making Newton-type methods applicable to federated learning*.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from synthfair.config.rules import Notion
from synthfair.config.target import Target
from synthfair.data.schema import Schema
from synthfair.distill.losses import derivative
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty, SumPenalty, named_penalty, strata
from synthfair.federated.algorithm import AtLeast0, Count, Positive, algorithm, static
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import report_size, run
from synthfair.federated.method_settings import TrainingPlan, UserPrivacySettings
from synthfair.federated.single_rows import RowWeights
from synthfair.federated.user_data import UserData
from synthfair.federated.users import UserRows, Users
from synthfair.model import logistic
from synthfair.trained import TrainedModel, read_model

DAMPING = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Added to the curvatures, the candidates of an exchange: the more, the shorter is the step."""

SHORTER = 0.1
"""Factor of all steps after an exchange in which no candidate was better."""

TOLERANCE = 1e-3
"""Newton decrement at the optimum: to second order, F is within half its square of the least."""


class RefineSettings(UserPrivacySettings):
    """Settings of ``refine``: Newton's method on the problem that the server solves on surrogates.

    No exchange is private: whoever chooses the params can choose them so that the exact sums, of
    each client or with ``secure`` of all together, tell what single rows hold. A ``clip`` scales a
    client's sums to a norm, so that it counts as fewer rows.

    Attributes:
        start: params of the model to start from, one an input; zeros if not given.
        rho: weight of the penalty.
        penalty: ``covariance`` of group and score, or the smooth ``selection_rate`` gap.
        notion: rows in which groups are compared.
        temperature: steepness of the smooth selection rate.
        lambda_theta: regularisation.
    """

    method: Literal["refine"] = "refine"
    start: tuple[float, ...] = Field(default=(), strict=False, max_length=10_000)
    rounds: Count = 5
    rho: Annotated[float, Field(ge=0, le=1e9)] = 10.0
    penalty: Literal["covariance", "selection_rate"] = "covariance"
    notion: Notion = "statistical_parity"
    temperature: Positive = 4.0
    lambda_theta: Positive = 1e-3

    @classmethod
    def reads(cls, key: str) -> bool:
        """All clients take part, nothing is noised, and Newton's steps of a linear model."""
        unread = "hidden", "learning_rate", "cohort", "sampling", "epsilon", "delta"
        return key not in unread and super().reads(key)

    @property
    def asked(self) -> Target:
        """Fairness is asked for by the weight of the penalty."""
        return Target(by="weight", amounts=(self.rho,))

    def plan(self, data: UserData) -> TrainingPlan:
        """Raises InputError: the start is of another number of inputs."""
        n_inputs = data.users.a.shape[1]
        if self.start and len(self.start) != n_inputs:
            raise InputError(f"start: {len(self.start)} numbers; must be {n_inputs}, one an input")
        penalty = named_penalty(
            self.penalty, self.notion, self.temperature, n_groups=len(data.schema.groups)
        )
        start = jnp.asarray(self.start or np.zeros(n_inputs), data.users.a.dtype)
        refine = Refine(start, penalty, self.rho, self.lambda_theta)
        return self.in_cohorts(refine, data)._replace(chunk=1)

    def progress(self, history: RefineRecord) -> str:
        """Shows the objective and its gradient."""
        return f"objective {history.objective[-1]:.6f}, gradient {history.gradient_norm[-1]:.0e}"

    def converged(self, plan: TrainingPlan, history: RefineRecord) -> bool:  # noqa: ARG002
        """Whether the params are those of the optimum."""
        return bool(history.decrement[-1] <= TOLERANCE)


class Sums(NamedTuple):
    """A client's sums over its rows: of the losses first, then of a term for each of K G groups.

    A group counts in each of K strata, see :func:`synthfair.fairness.penalties.strata`.
    """

    rows: jax.Array  # [1 + K G]
    values: jax.Array  # [C, 1 + K G] at C candidates
    gradients: jax.Array  # [C, 1 + K G, p]
    curvatures: jax.Array  # [C, 1 + K G, p (p + 1) / 2] upper halves, of what is not linear alone


def require_counts(sums: Sums, most: float) -> None:
    """Refuses sums of no rows or too many, or of groups not among them. Raises ValueError."""
    rows, groups = float(sums.rows[0]), np.asarray(sums.rows[1:])
    if not (0 < rows <= most and groups.min() >= 0 and groups.sum() <= rows * (1 + 1e-9)):
        raise ValueError("its counts of rows are none that a client can have")


class RefineState(NamedTuple):
    """The state of the server."""

    theta: jax.Array  # [p] the best so far
    objective: jax.Array  # there; infinite before the first exchange
    gradient_norm: jax.Array  # there
    decrement: jax.Array  # there, sqrt(g' |H|^-1 g)
    candidates: jax.Array  # [C, p] where sums are asked for


class RefineRecord(NamedTuple):
    """The record of an exchange, after it."""

    objective: jax.Array
    gradient_norm: jax.Array
    decrement: jax.Array  # of Newton's method
    step: jax.Array  # Euclidean norm of the change of params


@algorithm
class Refine:
    """Minimises loss + rho penalty + regularisation over all clients' rows together.

        F(theta) = 1/N sum_i l(y_i a_i'theta) + rho/2 sum_kg gap_kg^2 + lambda/(2 p^2) ||theta||^2

    The gaps are linear in the groups' sums, see :mod:`synthfair.fairness.penalties`; so are their
    derivatives. With |H| of the absolute eigenvalues of the Hessian (Dauphin et al. 2014, algorithm
    1), candidates are theta - (|H| + mu I)^-1 grad F for several mu; the best is taken, and none
    where no one is better than the last. Where no client has a row of a group that a selection rate
    compares, F is no number, and theta stays the start.

    Attributes:
        start: [p] params, float.
        penalty: of the scores.
        rho: its weight, at least 0.
        lambda_theta: at least 0, see :func:`synthfair.model.regularized_loss`.

    Raises:
        InputError: a value out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> import synthfair as sf
        >>> penalty = sf.SelectionRatePenalty(n_groups=2)
        >>> algorithm = sf.federated.Refine(jnp.zeros(5), penalty, rho=10.0)
    """

    start: jax.Array
    penalty: SumPenalty = static()
    rho: AtLeast0 = 10.0
    lambda_theta: AtLeast0 = 1e-3

    additive: ClassVar[bool] = True

    # Server, before the first exchange

    def init(self, key: jax.Array) -> RefineState:  # noqa: ARG002
        """Asks for the start alone."""
        worst = jnp.asarray(jnp.inf, self.start.dtype)
        return RefineState(self.start, worst, worst, worst, jnp.tile(self.start, (len(DAMPING), 1)))

    # Client

    def report(self, state: RefineState, rows: UserRows, key: jax.Array) -> Sums:  # noqa: ARG002
        """The sums at all candidates."""
        weights, upper = self.weights(state, rows), jnp.triu_indices(rows.a.shape[1])
        (values, slopes), bends = weights.sums, weights.products

        def curvature(weight: jax.Array) -> jax.Array:
            return ((rows.a.T * weight) @ rows.a)[upper]

        curvatures = jax.lax.map(curvature, bends.reshape(-1, bends.shape[-1]))
        curvatures = curvatures.reshape(*bends.shape[:-1], -1)
        return Sums(weights.members.sum(axis=1), values.sum(axis=2), slopes @ rows.a, curvatures)

    def weights(self, state: RefineState, rows: UserRows) -> RowWeights:
        """Return the weights of rows in the sums of a report, [C, 1 + K G, R] at the candidates."""
        groups = rows.s[:, 0] == jnp.arange(self.penalty.n_groups)[:, None]
        groups = (strata(rows.y, self.penalty.notion)[:, None] & groups).reshape(-1, len(rows.y))
        members = jnp.vstack([jnp.ones_like(groups[0]), groups]) * rows.weight
        scores, parts = state.candidates @ rows.a.T, []

        # Values, slopes and bends; the first sum is of losses, the others of the penalty's terms.
        functions = (lambda z: logistic(rows.y * z)), self.penalty.term
        for _ in range(3):
            loss, term = (function(scores)[:, None] for function in functions)
            parts.append(jnp.concatenate([members[:1] * loss, members[1:] * term], axis=1))
            functions = [partial(derivative, function) for function in functions]
        is_linear = isinstance(self.penalty, CovariancePenalty)
        return RowWeights(members, parts[:2], parts[2][:, :1] if is_linear else parts[2])

    # Server, after each exchange

    def update(
        self, state: RefineState, total: Sums, cohort: float
    ) -> tuple[RefineState, RefineRecord]:
        """Takes the best candidate, and asks for those of the next step."""
        del cohort  # clients count by their rows
        objective, gradient, hessian = jax.vmap(self.derivatives, (0, None, 0, 0, 0))(
            state.candidates, *total
        )
        best = jnp.argmin(jnp.where(jnp.isfinite(objective), objective, jnp.inf))
        g, norm = gradient[best], jnp.linalg.norm(gradient[best])
        theta = state.candidates[best]

        # The ends of damped Newton steps from there.
        values, vectors = jnp.linalg.eigh(hessian[best])
        least = 10 * jnp.finfo(g.dtype).eps * jnp.max(jnp.abs(values))
        damped = jnp.maximum(jnp.abs(values), least) + jnp.asarray(DAMPING, g.dtype)[:, None]
        ends = theta - ((g @ vectors) / damped) @ vectors.T
        decrement = jnp.sqrt(g @ (theta - ends[0]))

        # If no candidate is better, the same steps are tried again, shorter.
        again = state.theta + SHORTER * (state.candidates - state.theta)
        stay = state._replace(candidates=again)
        move = RefineState(theta, objective[best], norm, decrement, ends)
        better = (objective[best] < state.objective) & jnp.isfinite(ends).all()
        after = jax.tree.map(lambda new, old: jnp.where(better, new, old), move, stay)
        step = jnp.linalg.norm(after.theta - state.theta)
        return after, RefineRecord(after.objective, after.gradient_norm, after.decrement, step)

    def derivatives(
        self,
        theta: jax.Array,
        rows: jax.Array,
        values: jax.Array,
        gradients: jax.Array,
        curvatures: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """F, its gradient [p] and its Hessian [p, p] at theta [p], from the sums there."""
        p, n_groups = len(theta), self.penalty.n_groups
        by_group = rows[1:].reshape(-1, n_groups)
        of_stratum = by_group.sum(axis=1, keepdims=True)

        def gaps(sums: jax.Array) -> jax.Array:
            """[..., K G'] linear combinations of the sums [..., K G]."""
            means = sums.reshape(*sums.shape[:-1], -1, n_groups) / of_stratum
            compared = self.penalty.compare(means, by_group / of_stratum)
            return compared.reshape(*compared.shape[:-2], -1)

        gap, slopes = gaps(values[1:]), gaps(gradients[1:].T)
        upper = curvatures[0] / rows[0]
        if len(curvatures) > 1:
            upper += self.rho * gaps(curvatures[1:].T) @ gap
        half = jnp.zeros((p, p), theta.dtype).at[jnp.triu_indices(p)].set(upper)
        ridge = self.lambda_theta / p**2
        objective = values[0] / rows[0] + self.rho / 2 * gap @ gap + ridge / 2 * theta @ theta
        gradient = gradients[0] / rows[0] + self.rho * slopes @ gap + ridge * theta
        hessian = half + jnp.triu(half, 1).T + self.rho * slopes @ slopes.T + ridge * jnp.eye(p)
        return objective, gradient, hessian

    def params(self, state: RefineState) -> jax.Array:
        """The best of all candidates so far."""
        return state.theta


# Models


def refine_model(
    model: TrainedModel,
    users: Users,
    penalty: SumPenalty,
    *,
    rho: float,
    lambda_theta: float,
    exchanges: int,
) -> tuple[TrainedModel, int]:
    """A linear model after exchanges with users in memory, and the bytes that they send in all."""
    refine = Refine(jnp.asarray(model.theta), penalty, rho, lambda_theta)
    end = run(refine, users, Cohorts.everyone(len(users)), rounds=exchanges, seed=0)
    return refined(model, end.state), report_size(refine, users)[1] * len(users) * exchanges


def refined(model: TrainedModel, state: RefineState) -> TrainedModel:
    """The model with the params of a state. Raises InputError: the objective was never a number."""
    norm = float(state.gradient_norm)
    if not np.isfinite(norm):
        raise InputError("exchanges: no client has a row of some group that is compared")
    theta = tuple(np.asarray(state.theta, float).tolist())
    found = {"theta": theta, "gradient_norm": norm, "converged": bool(state.decrement <= TOLERANCE)}
    return model.model_copy(update=found)


def read_start(path: Path, schema: Schema) -> tuple[float, ...]:
    """Params to start from, of a linear model's file. Raises InputError: of another schema."""
    model = read_model(path)
    if model.schema_.hash != schema.hash or model.hidden or not model.intercept:
        raise InputError(f"{path}: must be a linear model of this schema, with an intercept")
    return model.theta
