"""The influence of each release on the pooled model.

How far a release moves the model is found by the infinitesimal jackknife. With the objective F of
the pool, its Hessian H at the optimum theta, and weights w_i of the rows, of which release k holds
the share p, the model without k is, to first order,

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

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError, named
from synthfair.evaluation import encode_tests, small_group_warnings
from synthfair.fairness.intervals import MIN_RATE_ROWS, unfair_clients
from synthfair.fairness.metrics import NOTION_METRICS
from synthfair.fairness.target import Target
from synthfair.metrics_file import Evaluation, Influence, Influences
from synthfair.model import LinearModel
from synthfair.release.format import Release
from synthfair.release.settings import DistillConfig
from synthfair.server.pooling import Pool, concatenated
from synthfair.server.settings import ServerConfig
from synthfair.server.trust import MIN_TRUST
from synthfair.settings import Notion
from synthfair.surrogate.fair import FrontierPoint, Price
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

OUTLIER_DEVIATIONS, OUTLIER_MEDIANS = 5.0, 5.0
"""An outlier's change of scores is more than so many robust standard deviations above the median,
and more than so many medians."""


def measure_influence(
    pooled: Pool,
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    price: Price | None = None,
    model: LinearModel | None = None,
) -> Influences:
    """Return the influence of each release on the model that was trained on them all.

    Args:
        pooled: by :func:`synthfair.server.make_pool`.
        trained: by :func:`synthfair.server.train_pool`, on this pool.
        tables: test tables, by name; without any, the change of SPD is of surrogates on the rows of
            the others, by their weights, and of fair releases not-a-number.
        price: of the model, where a gap was searched for; else that of the settings.
        model: as given to :func:`synthfair.server.train_pool`.

    Returns:
        By the names of the releases; none for a single release, which nothing can be compared with.

    Raises:
        InputError: a table that does not fit the schema.
    """
    if len(pooled.parts) < 2:
        return Influences({}, np.nan)
    schema, rows, owner, n_releases = trained.schema_, pooled.rows, pooled.owner, len(pooled.parts)
    weight, theta = pooled.weight, np.array(trained.theta)
    without = _without(pooled, theta, price or Price(pooled.config.rho), model or LinearModel())

    # Root mean squares of scores over the pooled rows, each release counting alike.
    totals = np.maximum(np.bincount(owner, weight), np.finfo(float).tiny)
    share = weight / totals[owner]
    a = np.asarray(rows.a, float)
    clipped = a.clip(0, 1)
    metric = (clipped.T * share) @ clipped / n_releases
    scores, before = (
        np.sqrt(np.maximum(np.sum(change @ metric * change, axis=1), 0.0))
        for change in (without - theta, without)
    )
    bound = outlier_bound(scores)

    # SPD on test rows, or on those of the other releases.
    x, s, counts = a, np.asarray(rows.s), weight
    if tables:
        x, s, _ = concatenated(encode_tests(tables, schema).values())
        x, counts = trained.rows(x, s), np.ones(len(s))
    sizes = np.bincount(s, counts, pooled.n_groups)
    grouping = np.array(schema.compared(None, sizes, MIN_RATE_ROWS)[schema.sensitive_name].grouping)
    spd, n_groups = np.full(n_releases, np.nan), max(grouping) + 1
    for k in range(n_releases) if tables or pooled.penalty is not None else ():
        kept = counts if tables else counts * (owner != k)
        tested = x, grouping[s], kept, n_groups
        spd[k] = _spd(theta, *tested) - _spd(without[k], *tested)

    alone = _alone(pooled, weight, schema)
    by_name = {
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
    return Influences(by_name, bound)


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
    return float(max(median + OUTLIER_DEVIATIONS * spread, OUTLIER_MEDIANS * median))


HONEST_CAUSE = (
    "An honest client that is unlike the others can do this, too; surrogates suit unlike clients."
    " See what it holds (python -m synthfair inspect), leave it out"
)


def refuse_influence(influences: Influences, most: float, most_spd: float = 2.0) -> None:
    """Refuse a pool in which one release moves the scores, or SPD, further than is allowed.

    A release that alone has some pair of group and label must move the model, and is let pass.

    Args:
        influences: of all releases.
        most: change of the scores, relative to those without the release.
        most_spd: change of SPD.

    Raises:
        InputError: naming that release, the furthest of all.
    """
    compared = {n: moved for n, moved in influences.releases.items() if not moved.alone}
    if unlike := [(abs(m.spd), n) for n, m in compared.items() if abs(m.spd) > most_spd]:
        change, name = max(unlike)
        raise InputError(
            f"{name}: changes SPD by {change:.3f}; at most {most_spd:g} is allowed. Are its groups"
            f" the right way round? {HONEST_CAUSE}, or raise max_spd_influence"
        )
    beyond = [(n, moved) for n, moved in compared.items() if not moved.relative <= most]
    if beyond:
        # By the scores: next to a hostile release, an honest one may be relatively further.
        name, worst = max(beyond, key=lambda item: item[1].scores)
        raise InputError(
            f"{name}: moves the scores of the pooled model by {worst.scores:.3g} (root mean square)"
            f", {worst.relative:.3g} times those of the model without it; at most {most:g} times is"
            f" allowed. {HONEST_CAUSE}, or raise max_influence"
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
    sums = [np.bincount(groups + 1, each, n_groups + 1)[1:] for each in (selected, weight)]
    with np.errstate(invalid="ignore"):  # a group without rows
        rates = np.divide(*sums)
    return rates[1] - rates[0] if n_groups == 2 else np.nanmax(rates) - np.nanmin(rates)


def _alone(pooled: Pool, weight: np.ndarray, schema: Schema) -> np.ndarray:
    """Return [K] whether a release has a pair of group and label that no other has.

    Groups are those of each attribute. Releases that hardly count, given trusted rows, have none.
    """
    alone = np.zeros(len(pooled.parts), bool)
    trusted = np.array([pooled.trust.get(name, 1.0) >= MIN_TRUST for name in pooled.parts])
    counts = (weight > 0) & trusted[pooled.owner]
    for attribute in schema.attributes:
        s = np.array(schema.groupings[attribute])[np.asarray(pooled.rows.s)]
        pair = 2 * s + (np.asarray(pooled.rows.y) > 0)
        held = np.zeros((len(alone), pair.max() + 1), bool)
        held[pooled.owner[counts], pair[counts]] = True
        alone |= (held & (held.sum(axis=0) == 1)).any(axis=1)
    return alone


def asked_of(releases: Mapping[str, Release], config: ServerConfig) -> tuple[Target, Notion]:
    """Return the fairness that is asked of a model, and the notion by which it is measured.

    Of surrogates the server asks for it. Of fair releases their clients have; the strictest wish
    says which rows are compared, and without one that of the first client.
    """
    configs = [release.header.config for release in releases.values()]
    wishes = [config for config in configs if isinstance(config, DistillConfig)]
    if not wishes:
        return config.asked, config.notion
    strictest = min(wishes, key=lambda wish: wish.max_gap or np.inf)
    return Target.of(wish.asked for wish in wishes), strictest.notion


def evaluation_warnings(
    evaluation: Evaluation, schema: Schema, target: Target, notion: Notion
) -> tuple[str, ...]:
    """Return warnings of clients that are treated unfairly, and of groups with few test rows."""
    metric = NOTION_METRICS[notion]
    gap, clients = evaluation.overall[metric], evaluation.client_gaps[metric]
    unfair = unfair_clients(gap, clients, target.client_limit)
    small = small_group_warnings(evaluation, schema)
    return (f"{unfair}. Of surrogates a server takes max_client_gap", *small) if unfair else small


def _missed_limits(point: FrontierPoint, config: ServerConfig) -> list[str]:
    """Return a warning of each limit on the pooled rows that no model met."""
    tried = "no model that was tried brings the"
    sentences = [
        f"{tried} {rows} to {most:g}; this one has {gap:.3f}"
        for gap, most, rows in (
            (point.gap, config.max_gap, "gap on the pooled rows"),
            (point.client_gap, config.max_client_gap, "largest gap of a client on its pooled rows"),
        )
        if most is not None and gap > most
    ]
    if config.min_ratio is not None and point.ratio < config.min_ratio:
        ratio = f"ratio of selection rates on the pooled rows to {config.min_ratio:g}"
        sentences.append(f"{tried} {ratio}; this one has {point.ratio:.3f}")
    return sentences


def pool_warnings(
    pooled: Pool, point: FrontierPoint | None, schema: Schema, free: TrainedModel | None
) -> tuple[str, ...]:
    """Return what is wrong with a pool, its model and that without a penalty, in sentences.

    Args:
        pooled: the releases.
        point: of the model, of surrogates; None of fair releases.
        schema: of both.
        free: the model without a penalty, if there is one.
    """
    config, sentences = pooled.config, []
    trust = pooled.trust.items()
    if few := [f"{name} ({weight:.2g})" for name, weight in trust if weight < MIN_TRUST]:
        sentences.append(
            f"{named(few)}: a row counts for less than {MIN_TRUST:g} rows, as the model does better"
            " on the trusted rows without. Ask the sites whether groups, labels and units are"
            " right, whose rows these are, and whether pairs are made up (`inspect` says so)"
        )
    if not point:
        return tuple(sentences)
    sentences += [
        f"{name}: claims {claim:,.0f} rows, and counts as {pooled.max_rows:,.0f}; ask its site how"
        " many it has, and set max_rows"
        for name, claim in pooled.capped.items()
    ]
    if pooled.left_out:
        sentences.append(
            f"too few rows to be compared, of all releases together: {named(pooled.left_out)}"
        )
    if times := Counter(pair for pairs in pooled.estimated.values() for pair in pairs):
        each = [f"{schema.pair(*pair)} (of {n} releases)" for pair, n in times.items()]
        sentences.append(
            f"estimated, not reported: {named(each)}; where there are no such people, the model"
            " decides less well for that group"
        )
    if pooled.unpaired:
        sentences.append(
            f"{named(pooled.unpaired)}: some pair of group and label has fewer rows than k_min, and"
            f" pairs are made up: these rows are not compared by {config.notion}. Ask for a lower"
            " k_min, or for statistical_parity"
        )
    sentences += _missed_limits(point, config)
    if free and point.price.rho and not free.converged:
        sentences.append(
            "the training without a penalty, which says what fairness costs, did not converge;"
            f" gradient norm {free.gradient_norm:.1e}"
        )
    trusted = [name for name in pooled.parts if pooled.trust.get(name, 1.0) >= MIN_TRUST]
    few = [n for n in trusted if n not in pooled.compared and n not in pooled.unpaired]
    if few and config.max_client_gap is not None:
        sentences.append(
            f"max_client_gap leaves out {named(few)}, which stand for fewer"
            f" than {max(MIN_RATE_ROWS, config.min_group_rows)} rows of a group that is compared"
        )
    return tuple(sentences)
