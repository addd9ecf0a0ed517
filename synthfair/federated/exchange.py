"""The exchanges of refine: sums of the sites, of which the server makes Newton steps.

For given params, all that the global problem needs adds up over rows: the losses and, for each
stratum and group, what the penalty compares, with their first and second derivatives. Arrays are of
NumPy or of JAX: sites answer files without JAX, and an engine compiles the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.penalties import Array, CovariancePenalty, SumPenalty, strata, sum_gaps
from synthfair.federated.single_rows import SummandWeights, UserRows
from synthfair.trained import TrainedModel

DAMPING = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Added to the curvatures, the candidates of an exchange: the more, the shorter is the step."""

RETRY_FACTOR = 0.1
"""Factor of all steps after an exchange in which no candidate was better."""

MAX_NEWTON_DECREMENT = 1e-3
"""Newton decrement at the optimum: to second order, F is within half its square of the least."""


class ExchangeSums(NamedTuple):
    """A client's sums over its rows: of the losses first, then of a term for each of K G groups.

    A group counts in each of K strata, see :func:`synthfair.fairness.penalties.strata`.
    """

    rows: Array  # [1 + K G]
    values: Array  # [C, 1 + K G] at C candidates
    gradients: Array  # [C, 1 + K G, p]
    curvatures: Array  # [C, 1 + K G, p (p + 1) / 2] upper halves, of what is not linear alone


class ExchangeState(NamedTuple):
    """The state of the server."""

    theta: Array  # [p] the best so far
    objective: Array  # there; infinite before the first exchange
    gradient_norm: Array  # there
    decrement: Array  # there, sqrt(g' |H|^-1 g)
    candidates: Array  # [C, p] where sums are asked for


class ExchangeRecord(NamedTuple):
    """The record of an exchange, after it."""

    objective: Array
    gradient_norm: Array
    decrement: Array
    step: Array  # Euclidean norm of the change of params


def first_state(start: Array) -> ExchangeState:
    """Return the state that asks for the sums at a start [p] alone."""
    worst = start[0] * 0 + np.inf
    xp = start.__array_namespace__()
    return ExchangeState(start, worst, worst, worst, xp.stack([start] * len(DAMPING)))


class NewtonSteps:
    """The functions of the sites and of the server, of an object with the problem's attributes.

    Attributes:
        gap: the penalty, of the scores.
        rho: its weight, see :class:`synthfair.surrogate.fair.Price`.
        C: inverse strength of the ridge, as in scikit-learn; the last input, 1, has none.
        free: the gap that costs nothing.
    """

    gap: SumPenalty
    rho: float
    C: float
    free: float

    # Site

    def weights(self, state: ExchangeState, rows: UserRows) -> SummandWeights:
        """Return the weights of rows in the sums, [C, 1 + K G, R] at the candidates."""
        xp, scores = rows.a.__array_namespace__(), state.candidates @ rows.a.T
        groups = rows.s[:, 0] == np.arange(self.gap.n_groups)[:, None]
        groups = (strata(rows.y, self.gap.notion)[:, None] & groups).reshape(-1, len(rows.y))
        members = xp.concatenate([xp.ones_like(groups[:1]), groups]) * rows.weight

        # Values, slopes and bends; the first sum is of losses, the others of the penalty's terms.
        margin = rows.y * scores
        q = (1 - xp.tanh(margin / 2)) / 2
        losses = xp.logaddexp(0.0 * margin, -margin), -rows.y * q, q * (1 - q)
        parts = [
            xp.concatenate([members[:1] * loss[:, None], members[1:] * term[:, None]], axis=1)
            for loss, term in zip(losses, self.gap.derivatives(scores), strict=True)
        ]
        is_linear = isinstance(self.gap, CovariancePenalty)
        return SummandWeights(members, parts[:2], parts[2][:, :1] if is_linear else parts[2])

    def report(self, state: ExchangeState, rows: UserRows, key: object = None) -> ExchangeSums:  # noqa: ARG002
        """Return the sums over rows at all candidates."""
        xp, upper = rows.a.__array_namespace__(), np.triu_indices(rows.a.shape[1])
        weights = self.weights(state, rows)
        (values, slopes), bends = weights.sums, weights.products
        curvatures = [((rows.a.T * w) @ rows.a)[upper] for w in bends.reshape(-1, bends.shape[-1])]
        return ExchangeSums(
            weights.members.sum(axis=1),
            values.sum(axis=2),
            slopes @ rows.a,
            xp.stack(curvatures).reshape(*bends.shape[:-1], -1),
        )

    # Server

    def read(self, numbers: np.ndarray, state: ExchangeState) -> ExchangeSums:
        """Return a report whose arrays stand one after the other.

        Raises:
            ValueError: of another length, or with counts of rows that no client can have.
        """
        p = state.candidates.shape[1]
        row = UserRows(np.zeros((1, p)), np.zeros((1, 1), int), np.ones(1), np.ones(1))
        like = self.report(state._replace(candidates=0.0 * state.candidates), row)
        ends = np.cumsum([leaf.size for leaf in like])
        if len(numbers) != ends[-1]:
            raise ValueError(f"{len(numbers)} numbers; must be {ends[-1]}")
        pairs = zip(np.split(numbers, ends[:-1]), like, strict=True)
        sums = ExchangeSums(*(values.reshape(leaf.shape) for values, leaf in pairs))
        self.check(sums, 0, np.inf)
        return sums

    def check(self, report: ExchangeSums, least_rows: int, most_rows: float) -> None:  # noqa: ARG002
        """Refuse sums of no rows or too many, or of groups not among them. Raises ValueError."""
        rows, groups = float(report.rows[0]), np.asarray(report.rows[1:])
        if not (0 < rows <= most_rows and groups.min() >= 0 and groups.sum() <= rows * (1 + 1e-9)):
            raise ValueError("its counts of rows are none that a client can have")

    def derivatives(self, theta: Array, sums: ExchangeSums) -> tuple[Array, Array, Array]:
        """Return F, its gradient [p] and its Hessian [p, p] at theta [p], from the sums there.

        Args:
            theta: where.
            sums: of a single candidate, without the axis C.
        """
        xp, p = theta.__array_namespace__(), len(theta)
        shares = sums.rows[1:].reshape(-1, self.gap.n_groups)

        def gaps(terms: Array) -> Array:
            """Return the gaps [C, m] of sums [K G, m]."""
            return sum_gaps(self.gap, shares, terms.reshape(*shares.shape, -1))

        n, loss, pull = sums.rows[0], sums.values[0], sums.gradients[0]
        gap, slope = gaps(sums.values[1:])[:, 0], gaps(sums.gradients[1:])
        charged = xp.sign(gap) * xp.maximum(xp.abs(gap) - self.free, 0.0)
        bends = slope * ((charged != 0) | (self.free == 0))[:, None]
        upper = sums.curvatures[0] / n
        if len(sums.curvatures) > 1:
            upper = upper + self.rho * charged @ gaps(sums.curvatures[1:])
        position = np.zeros((p, p), int)  # of each entry among the upper half's
        position[np.triu_indices(p)] = np.arange(p * (p + 1) // 2)
        ridge = np.append(np.ones(p - 1), 0.0) / (self.C * n)
        objective = loss / n + self.rho / 2 * charged @ charged + theta @ (ridge * theta) / 2
        gradient = pull / n + self.rho * charged @ slope + ridge * theta
        hessian = upper[np.maximum(position, position.T)] + ridge * np.eye(p)
        return objective, gradient, hessian + self.rho * bends.T @ bends

    def update(
        self, state: ExchangeState, total: ExchangeSums, cohort: float = 0.0
    ) -> tuple[ExchangeState, ExchangeRecord]:
        """Return the state with the best candidate and the next ones, and the exchange's record.

        With |H| of the absolute eigenvalues of the Hessian (Dauphin et al. 2014, algorithm 1),
        candidates are theta - (|H| + mu I)^-1 grad F for several mu; the best is taken, and none
        where no one is better than the last.
        """
        del cohort  # clients count by their rows
        xp = state.theta.__array_namespace__()
        with np.errstate(all="ignore"):  # a group without a row makes an objective no number
            results = [
                self.derivatives(theta, ExchangeSums(total.rows, *(leaf[i] for leaf in total[1:])))
                for i, theta in enumerate(state.candidates)
            ]
            objective, gradient, hessian = map(xp.stack, zip(*results, strict=True))
            best = xp.argmin(xp.where(xp.isfinite(objective), objective, np.inf))
            g, h, theta = gradient[best], hessian[best], state.candidates[best]

            # The ends of damped Newton steps from there.
            values, vectors = xp.linalg.eigh(xp.where(xp.isfinite(h), h, 0.0))
            least = 10 * np.finfo(g.dtype).eps * xp.abs(values).max()
            damped = xp.maximum(xp.abs(values), least) + np.asarray(DAMPING, g.dtype)[:, None]
            ends = theta - ((g @ vectors) / damped) @ vectors.T
            decrement, norm = xp.sqrt(g @ (theta - ends[0])), xp.sqrt(g @ g)

            # If no candidate is better, the same steps are tried again, shorter.
            again = state.theta + RETRY_FACTOR * (state.candidates - state.theta)
            stay = state._replace(candidates=again)
            move = ExchangeState(theta, objective[best], norm, decrement, ends)
            better = (objective[best] < state.objective) & xp.isfinite(ends).all()
            pairs = zip(move, stay, strict=True)
            after = ExchangeState(*(xp.where(better, new, old) for new, old in pairs))
            step = after.theta - state.theta
            return after, ExchangeRecord(*after[1:4], xp.sqrt(step @ step))

    def params(self, state: ExchangeState) -> Array:
        """Return the best of all candidates so far."""
        return state.theta

    def converged(self, history: ExchangeRecord) -> bool:
        """Return whether the params are those of the optimum."""
        return bool(history.decrement[-1] <= MAX_NEWTON_DECREMENT)


@dataclass(frozen=True)
class Exchange(NewtonSteps):
    """The same of a problem, in NumPy."""

    gap: SumPenalty
    rho: float
    C: float
    free: float = 0.0


def refined(model: TrainedModel, state: ExchangeState) -> TrainedModel:
    """Return the model with the params of a state.

    Raises:
        InputError: the objective was never a number.
    """
    norm = float(state.gradient_norm)
    if not np.isfinite(norm):
        raise InputError("exchanges: no client has a row of some group that is compared")
    theta = tuple(np.asarray(state.theta, float).tolist())
    update = {"theta": theta, "gradient_norm": norm}
    return model.model_copy(
        update=update | {"converged": bool(state.decrement <= MAX_NEWTON_DECREMENT)}
    )
