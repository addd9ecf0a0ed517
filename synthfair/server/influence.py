"""How far each release moves the pooled model, by the infinitesimal jackknife.

With the objective F of the pool, its Hessian H at the optimum theta, and weights w_i of the rows,
of which release k holds the share p, the model without k is, to first order,

    theta_k = theta + H^-1 sum_{i in k} w_i d(grad F)/dw_i / (1 - p)

(Jaeckel 1972; Koh and Liang 2017): nothing is trained anew. Where the others' rows are few, or far
from those of the release, the model without it may be further away than that.

A change of theta means little by itself. What counts is the change of the scores: its root mean
square over the pooled rows, clipped to the range of real rows, 0 to 1, where each release has the
same weight however many rows it has; and the change of SPD.

It finds the crude cases: a release that reverses the others or outweighs them. Which release is
right it cannot know; clients whose groups are exchanged, whose labels are partly false or who are
many are left to trusted rows, see :mod:`synthfair.server.trust`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import encode_tests
from synthfair.fairness.intervals import FEW_ROWS
from synthfair.fairness.penalties import Penalty
from synthfair.metrics_file import Influence, Influences
from synthfair.model import LinearModel
from synthfair.release.format import Release
from synthfair.server.pooling import Pool, make_pool, train_pool
from synthfair.server.trust import MIN_TRUST
from synthfair.settings import ServerConfig
from synthfair.surrogate.fair import Price
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

SPREADS, TIMES = 5.0, 5.0
"""An outlier's change of scores is more than so many robust standard deviations above the median,
and more than so many medians."""


def measure_influence(
    releases: Mapping[str, Release],
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    config: ServerConfig | None = None,
    model: LinearModel | None = None,
    penalty: Penalty | None = None,
    trusted: pd.DataFrame | Encoded | None = None,
) -> Influences:
    """Return the influence of each release on the model that was trained on them all.

    Args:
        releases: by name.
        trained: by :func:`synthfair.pool_and_train`, on these releases.
        tables: test tables, by name; without any, the change of SPD is of surrogates on the rows of
            the others, by their weights, and of fair releases not-a-number.
        config: as given to :func:`synthfair.pool_and_train`; a search for a gap is made again.
        model: as given to :func:`synthfair.pool_and_train`.
        penalty: as given to :func:`synthfair.pool_and_train`.
        trusted: as given to :func:`synthfair.pool_and_train`.

    Returns:
        By the same names; none for a single release, which nothing can be compared with.

    Raises:
        InputError: no release, or a table that does not fit the schema.
    """
    pooled = make_pool(releases, trained.schema_, config, penalty=penalty, trusted=trusted)
    searched = config is not None and config.searches
    point = train_pool(pooled, trained.schema_, model=model)[1] if searched else None
    return influence_in(pooled, trained, tables, price=point and point.price, model=model)


def influence_in(
    pooled: Pool,
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    price: Price | None = None,
    model: LinearModel | None = None,
) -> Influences:
    """Return what :func:`measure_influence` does, of the releases of a pool."""
    if len(pooled.parts) < 2:
        return Influences({}, np.nan)
    schema, rows, parts = trained.schema_, pooled.rows, [*pooled.parts.values()]
    weight, theta = pooled.weight, np.array(trained.theta)
    without = _without(pooled, theta, price or Price(pooled.rho), model or LinearModel())

    # Root mean squares of scores over the pooled rows, each release counting alike.
    totals = [max(weight[part].sum(), np.finfo(float).tiny) for part in parts]
    share = weight / np.repeat(totals, [part.stop - part.start for part in parts])
    a = np.asarray(rows.a, float)
    clipped = a.clip(0, 1)
    metric = (clipped.T * share) @ clipped / len(parts)
    scores, before = (
        np.sqrt(np.maximum(np.sum(change @ metric * change, axis=1), 0.0))
        for change in (without - theta, without)
    )
    bound = outlier_bound(scores)

    # SPD on test rows, or on those of the other releases.
    x, s, counts = a, np.asarray(rows.s), weight
    if tables:
        x, s, _ = map(np.concatenate, zip(*encode_tests(tables, schema).values(), strict=True))
        x, counts = trained.rows(x, s), np.ones(len(s))
    sizes = np.bincount(s, counts, pooled.n_groups)
    grouping = np.array(schema.compared(None, sizes, FEW_ROWS)[schema.sensitive_name].grouping)
    spd, n_groups = np.full(len(parts), np.nan), max(grouping) + 1
    for k, part in enumerate(parts) if tables or pooled.penalty is not None else ():
        others = counts.copy()
        if not tables:
            others[part] = 0.0
        tested = x, grouping[s], others, n_groups
        spd[k] = _spd(theta, *tested) - _spd(without[k], *tested)

    alone = _alone(pooled, weight, schema)
    found = {
        name: Influence(
            float(scores[k]),
            float(scores[k] / max(before[k], np.finfo(float).tiny)),
            float(spd[k]),
            outlier=bool(scores[k] > bound),
            alone=bool(alone[k]),
            weight=float(f"{pooled.trust.get(name, np.nan):.2g}"),
        )
        for k, name in enumerate(pooled.parts)
    }
    return Influences(found, bound)


def outlier_bound(change: np.ndarray) -> float:
    """Return the change of scores above which a release is an outlier.

    The larger of the median plus five robust standard deviations (1.4826 times the median absolute
    deviation from the median) and five medians. The first alone would flag honest releases where
    most are nearly alike. Half of the releases can hide behind each other: it finds a few.

    Args:
        change: [K] of each release.

    Returns:
        The bound; not-a-number, which nothing is above, for fewer than three releases.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> sf.server.outlier_bound(np.array([1.0, 1.1, 0.9, 7.0]))
        5.25
    """
    if len(change) < 3:
        return np.nan
    median = np.median(change)
    spread = 1.4826 * np.median(np.abs(change - median))
    return float(max(median + SPREADS * spread, TIMES * median))


UNLIKE = "An honest client that is unlike the others can do this, too"


def refuse_influence(
    influences: Influences, most: float, most_spd: float = 2.0, *, remedy: str = ""
) -> None:
    """Refuse a pool in which one release moves the scores, or SPD, further than is allowed.

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
            f" inspect, leave it out, or raise max_spd_influence{remedy and '. ' + remedy}"
        )
    beyond = [(n, moved) for n, moved in compared.items() if not moved.relative <= most]
    if beyond:
        # By the scores: next to a hostile release, an honest one may be relatively further.
        name, worst = max(beyond, key=lambda item: item[1].scores)
        raise InputError(
            f"{name}: moves the scores of the pooled model by {worst.scores:.3g} (root mean square)"
            f", which is {worst.relative:.3g} times those of the model without it; at most {most:g}"
            f" times is allowed. {UNLIKE}: see what it holds with python -m synthfair inspect,"
            f" leave it out, or raise max_influence{remedy and '. ' + remedy}"
        )


def _without(pooled: Pool, theta: np.ndarray, price: Price, model: LinearModel) -> np.ndarray:
    """Return theta [K, n] without each release, to first order in the weights of its rows.

    The penalty of a client's own rows goes with its release, as a whole.
    """
    problem: Any = pooled.problem(model)
    compared = [[*pooled.parts].index(name) for name in pooled.compared]
    gradients = problem.gradients_without(theta, price, pooled.owner, compared)
    if pooled.penalty is not None:  # the ridge of surrogates is that of C and the rows there are
        share = np.bincount(pooled.owner, pooled.weight) / pooled.weight.sum()
        gradients += (share / np.maximum(1 - share, np.finfo(float).tiny))[:, None] * (
            pooled.ridge * theta
        )
    try:
        return theta - np.linalg.solve(problem.hessian(theta, price)[1], gradients.T).T
    except np.linalg.LinAlgError:  # of rows that are all alike, and large
        return np.full(gradients.shape, np.nan)


def _spd(
    theta: np.ndarray, a: np.ndarray, groups: np.ndarray, weight: np.ndarray, n_groups: int
) -> float:
    """Return the SPD of a model's decisions on weighted rows; of many groups the widest gap."""
    selected = weight * (a @ theta > 0)
    # A combination of attributes that no release has is -1, and does not count.
    sums = [np.bincount(groups + 1, one, n_groups + 1)[1:] for one in (selected, weight)]
    with np.errstate(invalid="ignore"):  # a group without rows
        rates = np.divide(*sums)
    return rates[1] - rates[0] if n_groups == 2 else np.nanmax(rates) - np.nanmin(rates)


def _alone(pooled: Pool, weight: np.ndarray, schema: Schema) -> np.ndarray:
    """Return [K] whether a release has a pair of group and label that no other has.

    Groups are those of each attribute. Releases that hardly count, given trusted rows, have none.
    """
    alone = np.zeros(len(pooled.parts), bool)
    for attribute in schema.attributes:
        s = np.array(schema.groupings[attribute])[np.asarray(pooled.rows.s)]
        pair = 2 * s + (np.asarray(pooled.rows.y) > 0)
        has = [
            np.unique(pair[part][(weight[part] > 0) & (pooled.trust.get(name, 1.0) >= MIN_TRUST)])
            for name, part in pooled.parts.items()
        ]
        owners = np.bincount(np.concatenate(has))
        alone |= np.array([(owners[pairs] == 1).any() for pairs in has])
    return alone
