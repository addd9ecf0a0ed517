"""How far each release moves the pooled model: the model is trained without it, and compared.

With the losses l_i of N pooled rows, N_k of them in release k, and theta the pooled optimum, the
model without release k minimises

    1 / (N - N_k) sum of l_i over the other rows + lambda_theta / (2 n^2) ||theta||^2.

Newton's first step towards it from theta needs only the release's own gradient and Hessian, taken
out of the sums over all rows. Among up to a hundred releases Newton's method then goes on, over all
rows, until it has converged. Among more, only the hundred largest first steps are continued, and of
those only the ones that change the scores by more than 0.01; :class:`Influence` says which.

A change of theta means little by itself. What counts is the change of the scores: its root mean
square over the pooled rows, where each release has the same weight however many rows it has. The
release's own rows enter as they are, the others' clipped to the range of real rows, 0 to 1, so that
no release is blamed for what another one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config.server_settings import ServerConfig
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.solvers import Function, InnerSolution, Newton, default_tolerance
from synthfair.errors import InputError
from synthfair.fairness.intervals import FEW_ROWS
from synthfair.fairness.penalties import CovariancePenalty, Penalty, SumPenalty
from synthfair.model import (
    LinearModel,
    Rows,
    derivative,
    padded,
    regularized_hessian,
    regularized_loss,
)
from synthfair.release.format import Release
from synthfair.run_files import Influence, Influences
from synthfair.server.changes import change_on_others, change_on_tables, measured_on_own
from synthfair.server.outliers import outlier_bound, stand_out
from synthfair.server.pooling import Pool, make_pool
from synthfair.server.trust import LITTLE
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

RETRAINED = 100
"""Releases without which the model is trained to convergence, at most."""

SHORT = 0.01
"""Change of scores by a first step, of one release among more than those, that is good enough: the
error of a Newton step is of the order of its square."""

MAX_STEPS = 100
"""Of Newton's method; from the pooled optimum a handful is usual."""


def measure_influence(
    releases: Mapping[str, Release],
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    config: ServerConfig | None = None,
    rho: float | None = None,
    model: LinearModel | None = None,
    penalty: Penalty | None = None,
    trusted: pd.DataFrame | Encoded | None = None,
) -> Influences:
    """The influence of each release on the model that was trained on them all.

    Args:
        releases: by name.
        trained: by :func:`synthfair.pool_and_train`, on these releases.
        tables: test tables, by name; without any, changes of accuracy and SPD are of surrogates on
            the rows of the others, by their weights, and of fair releases not-a-number.
        config: as given to :func:`synthfair.pool_and_train`.
        rho: weight of the penalty that it was trained with, of surrogates; that of the settings if
            not given.
        model: as given to :func:`synthfair.pool_and_train`.
        penalty: as given to :func:`synthfair.pool_and_train`.
        trusted: as given to :func:`synthfair.pool_and_train`.

    Returns:
        By the same names; none for a single release, which nothing can be compared with.

    Raises:
        InputError: no release, or a table that does not fit the schema.
    """
    pooled = make_pool(releases, trained.schema_, config, penalty=penalty, trusted=trusted)
    return influence_in(pooled, trained, tables, rho=rho, model=model)


def influence_in(
    pooled: Pool,
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    rho: float | None = None,
    model: LinearModel | None = None,
) -> Influences:
    """:func:`measure_influence` of the releases of a pool."""
    if len(pooled.parts) < 2:
        return Influences({}, np.nan)
    names, rho = list(pooled.parts), pooled.rho if rho is None else rho
    at = _Trained(pooled, np.array(trained.theta), rho, model or LinearModel())
    without, converged = _first_steps(at), np.zeros(len(names), bool)
    moved, scores = _change_of_scores(at, without)
    furthest = np.argsort(-moved)[:RETRAINED]
    for k in furthest if len(moved) <= RETRAINED else furthest[moved[furthest] > SHORT]:
        without[k], converged[k] = _retrained(at, k)
    if converged.any():
        moved, scores = _change_of_scores(at, without)
    bound, alone = outlier_bound(moved), _alone(at, trained.schema_)
    # The groups; of several attributes, small combinations are merged.
    schema, sizes = trained.schema_, np.bincount(pooled.rows.s, at.weight, pooled.n_groups)
    groups = schema.compared(None, sizes, FEW_ROWS)[schema.sensitive_name]
    if tables or pooled.penalty is None:
        changed = change_on_tables(without, tables, trained, groups.grouping)
    else:
        changed = change_on_others(without, at.theta, pooled.rows, pooled.parts, groups.grouping)
    own = measured_on_own(without, pooled.rows, pooled.parts, groups.grouping)
    by = stand_out(moved, bound, changed, own, compared=~alone, groups=groups.names)
    change = changed.of
    columns = (
        np.linalg.norm(without - at.theta, axis=1),
        moved,
        moved / np.maximum(scores, np.finfo(float).tiny),
        change.accuracy,
        change.spd,
        converged,
        [bool(names) for names in by],
        alone,
    )
    numbers = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    found = (
        Influence(*number, rates=tuple(rates), by=names, weight=pooled.trust.get(name, np.nan))
        for name, number, rates, names in zip(
            names, numbers, change.rates.T.tolist(), by, strict=True
        )
    )
    return Influences(dict(zip(names, found, strict=True)), bound)


def _alone(at: _Trained, schema: Schema) -> np.ndarray:
    """[K] whether a release has rows of a pair of group and label of which no other has any.

    Groups are those of each attribute. Releases that hardly count, given trusted rows, have none.
    """
    there, trust, alone = at.weight > 0, at.pooled.trust, np.zeros(len(at.pooled.parts), bool)
    for attribute in schema.attributes:
        s = np.array(schema.groupings[attribute])[np.asarray(at.pooled.rows.s)]
        pair = 2 * s + (np.asarray(at.pooled.rows.y) > 0)
        has = [
            np.unique(pair[part][there[part] & (trust.get(name, 1.0) >= LITTLE)])
            for name, part in at.pooled.parts.items()
        ]
        owners = np.bincount(np.concatenate(has), minlength=2 * at.pooled.n_groups)
        alone |= np.array([(owners[pairs] == 1).any() for pairs in has])
    return alone


UNLIKE = "An honest client that is unlike the others can do this, too"


def refuse_influence(
    influences: Influences, most: float, most_spd: float = 2.0, *, remedy: str = ""
) -> None:
    """Refuses a pool in which one release moves the scores, or SPD, further than is allowed.

    A release that alone has some pair of group and label must move the model, and is let pass.

    Args:
        influences: of all releases.
        most: change of the scores, relative to those without the release.
        most_spd: change of SPD.
        remedy: sentence for the end, of what else is known of the pool.

    Raises:
        InputError: naming that release, the furthest of all.
    """
    compared = {n: moved for n, moved in influences.releases.items() if not moved.alone}
    moved_spd = {n: abs(moved.spd) for n, moved in compared.items()}
    if any(change > most_spd for change in moved_spd.values()):
        name = max(moved_spd, key=lambda n: -1.0 if np.isnan(moved_spd[n]) else moved_spd[n])
        raise InputError(
            f"{name}: changes SPD by {moved_spd[name]:.3f}; at most {most_spd:g} is allowed. Are"
            f" its groups the right way round? {UNLIKE}: see what it holds with python -m synthfair"
            f" inspect, leave it out, or raise --max-spd-influence{remedy and '. ' + remedy}"
        )
    beyond = [(n, moved) for n, moved in compared.items() if not moved.relative <= most]
    if beyond:
        # By the scores: next to a hostile release, an honest one may be relatively further.
        name, worst = max(beyond, key=lambda item: item[1].scores)
        raise InputError(
            f"{name}: moves the scores of the pooled model by {worst.scores:.3g} (root mean square)"
            f", which is {worst.relative:.3g} times those of the model without it; at most {most:g}"
            f" times is allowed. {UNLIKE}: see what it holds with python -m synthfair inspect,"
            f" leave it out, or raise --max-influence{remedy and '. ' + remedy}"
        )


class _Trained(NamedTuple):
    """The pooled rows, and the model that was trained on them all, under rho times the penalty."""

    pooled: Pool
    theta: np.ndarray
    rho: float
    model: LinearModel

    @property
    def weight(self) -> np.ndarray:
        """[N] of the rows."""
        rows = self.pooled.rows
        return np.ones(len(rows.y)) if rows.weight is None else np.asarray(rows.weight, float)


def _first_steps(at: _Trained) -> np.ndarray:
    """[K, n] theta without each release, by one Newton step from the pooled optimum."""
    if at.pooled.penalty is not None:
        return _jackknife(at)
    a, theta = np.asarray(at.pooled.rows.a, float), at.theta
    derivatives = _derivatives(jnp.asarray(theta), padded(at.pooled.rows), model=at.model)
    weight = at.weight
    slopes, curvatures = (weight * np.asarray(part, float)[: len(a)] for part in derivatives)
    gradient, hessian = a.T @ slopes, a.T @ (curvatures[:, None] * a)
    ridge = at.pooled.lambda_theta / len(theta) ** 2

    def step(part: slice) -> np.ndarray:
        mine, others = a[part], weight.sum() - weight[part].sum()
        g = (gradient - mine.T @ slopes[part]) / others + ridge * theta
        h = (hessian - mine.T @ (curvatures[part, None] * mine)) / others
        return _solution(h + ridge * np.eye(len(theta)), g)

    return np.stack([theta - step(part) for part in at.pooled.parts.values()])


def _solution(hessian: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Not-a-number where rows that are all alike, and large, leave no digits of the curvature."""
    try:
        return np.linalg.solve(hessian, right)
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)


@partial(jax.jit, static_argnames="model")
def _derivatives(
    theta: jax.Array, rows: Rows, *, model: LinearModel
) -> tuple[jax.Array, jax.Array]:
    """First and second derivative [N] of each row's loss in its score."""
    slope = partial(derivative, partial(model.loss, y=rows.y))
    scores = model.scores(theta, rows.a)
    return slope(scores), derivative(slope, scores)


def _jackknife(at: _Trained) -> np.ndarray:
    """The same with a penalty, to first order in the weights of a release's rows.

        theta + H^-1 sum_{i in release} w_i dG/dw_i

    G being the gradient and H the Hessian of the objective: the infinitesimal jackknife (Jaeckel
    1972; Koh and Liang 2017). A penalty of a client's own rows goes with its release, as a whole.
    """
    problem = at.pooled.problem
    with jax.enable_x64(True):
        hessian, by_weight, own = _sensitivities(
            jnp.asarray(at.theta),
            padded(problem.rows._replace(weight=at.weight)),  # type: ignore[arg-type]
            problem.lambda_theta,
            at.rho,
            model=at.model,
            penalty=problem.penalty,
            clients=problem.clients,
        )
    begins = [part.start for part in at.pooled.parts.values()]
    by_row = np.asarray(by_weight)[:, : len(at.weight)] * at.weight
    sums = np.add.reduceat(by_row, begins, axis=1)
    sums[:, np.isin([*at.pooled.parts], at.pooled.compared)] += at.rho * np.asarray(own).T
    return at.theta + _solution(np.asarray(hessian), sums).T


@partial(jax.jit, static_argnames=("model", "penalty", "clients"))
def _sensitivities(
    theta: jax.Array,
    rows: Rows,
    lambda_theta: float,
    rho: float,
    *,
    model: LinearModel,
    penalty: Penalty,
    clients: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """H [n, n], dG/dw [n, N], and the gradient [clients, n] of each client's own penalty."""

    def objective(theta: jax.Array, weight: jax.Array) -> jax.Array:
        weighted = rows._replace(weight=weight)
        loss = regularized_loss(model, theta, weighted, lambda_theta)
        return loss + rho * penalty(model.scores(theta, rows.a), weighted)

    def own(theta: jax.Array) -> jax.Array:
        gaps = cast(SumPenalty, penalty).gaps(model.scores(theta, rows.a), rows)
        return 0.5 * jnp.sum(gaps.reshape(clients + 1, -1)[1:] ** 2, axis=1)

    hessian = jax.hessian(objective)(theta, rows.weight)
    by_weight = jax.jacrev(jax.grad(objective), argnums=1)(theta, rows.weight)
    return hessian, by_weight, jax.jacfwd(own)(theta) if clients else jnp.zeros((0, len(theta)))


def _retrained(at: _Trained, k: int) -> tuple[np.ndarray, bool]:
    """Theta [n] without release k, and whether it is the optimum."""
    others, pooled = at.weight.copy(), at.pooled
    others[list(pooled.parts.values())[k]] = 0.0
    if pooled.penalty is None:
        dtype = pooled.rows.a.dtype
        rows = padded(pooled.rows._replace(weight=others.astype(dtype)))  # type: ignore[arg-type]
        start = jnp.asarray(at.theta, dtype)
        solution = _train(start, rows, pooled.lambda_theta, model=at.model)
        return np.asarray(solution.params, float), bool(solution.converged)
    problem = pooled.problem
    problem = replace(problem, rows=problem.rows._replace(weight=others))
    found = problem.point(at.rho, at.theta)
    if not np.isfinite(found.theta).all():  # without it some groups have no rows to be compared
        free = replace(problem, penalty=CovariancePenalty(pooled.n_groups))
        found = free.point(0.0, at.theta)
    return found.theta, found.converged


@partial(jax.jit, static_argnames="model")
def _train(
    start: jax.Array, rows: Rows, lambda_theta: float, *, model: LinearModel
) -> InnerSolution:
    loss = Function(
        lambda theta: regularized_loss(model, theta, rows, lambda_theta),
        lambda theta: regularized_hessian(model, theta, rows, lambda_theta),
    )
    return Newton(default_tolerance(), MAX_STEPS).minimise(loss, start)


def _change_of_scores(at: _Trained, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From theta [K, n] without each release: change of the scores [K], and the scores [K]."""
    a, parts = np.asarray(at.pooled.rows.a, float), list(at.pooled.parts.values())
    clipped, shares = np.clip(a, 0.0, 1.0), at.weight.copy()
    metric = np.zeros((a.shape[1], a.shape[1]))
    for part in parts:
        shares[part] /= max(shares[part].sum(), np.finfo(float).tiny)
        metric += clipped[part].T @ (shares[part, None] * clipped[part])

    def excess(change: np.ndarray, part: slice) -> float:
        """What a release's own rows add to the mean square, as they are not clipped for it."""
        own, within = a[part] @ change, clipped[part] @ change
        return float(shares[part] @ (own**2 - within**2))

    changes = without - at.theta
    moved = np.sum(changes @ metric * changes, axis=1)
    moved += list(map(excess, changes, parts))
    scores = np.sum(without @ metric * without, axis=1)
    return tuple(np.sqrt(np.maximum(squares, 0.0) / len(without)) for squares in (moved, scores))
