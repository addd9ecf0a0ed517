"""What a model's decisions owe to each release: accuracy, SPD and rates with and without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.evaluation import encode_tests
from synthfair.fairness.penalties import Grouping
from synthfair.model import Rows
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 4_000_000
"""Scores of test rows that are held at a time."""


LEAST_SPREAD = 1e-3
"""Of scores, in units of the usual one; a smaller one counts as this."""


class Decisions(NamedTuple):
    """Of K models: what they decide.

    Attributes:
        accuracy: [K] share of right decisions; or its change.
        spd: [K] SPD, or its change; not-a-number where a group has no row.
        rates: [G, K] each group's selection rate, or its change; the same.
    """

    accuracy: np.ndarray
    spd: np.ndarray
    rates: np.ndarray

    def minus(self, others: Decisions) -> Decisions:
        """The change from others."""
        return Decisions(*(a - b for a, b in zip(self, others, strict=True)))


class Changes(NamedTuple):
    """Of the trained model, minus the one without each of K releases, on the same rows.

    Attributes:
        of: the changes.
        error: standard errors of the trained model's own accuracy, SPD and rates on those rows, [1]
            and [G, 1]: changes that are as small say nothing.
        spd: [K] or [1] SPD of the trained model on those rows.
    """

    of: Decisions
    error: Decisions
    spd: np.ndarray


def _measured(
    selected: np.ndarray, positive: np.ndarray, groups: np.ndarray, weight: np.ndarray
) -> Decisions:
    """Of decisions [N, K]; rows weighted, their groups as [G, N]."""
    member = groups * weight
    right = weight @ (selected == positive[:, None]) / weight.sum()
    with np.errstate(invalid="ignore"):  # a group without rows
        rates = member @ selected / member.sum(axis=1)[:, None]
    return Decisions(right, _spd(rates), rates)


def _spd(rates: np.ndarray) -> np.ndarray:
    """[K] of rates [G, K]; of more than two groups, those without rows do not count."""
    if len(rates) == 2:
        return rates[1] - rates[0]
    known = np.where(np.isnan(rates).all(axis=0), 0.0, rates)
    return np.nanmax(known, axis=0) - np.nanmin(known, axis=0)


def _error(now: Decisions, groups: np.ndarray, weight: np.ndarray) -> Decisions:
    """Of shares of rows drawn at random, as many as the weights say."""
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.maximum(now.rates * (1 - now.rates), 0) / (groups @ weight)[:, None]
        right = np.maximum(now.accuracy * (1 - now.accuracy), 0) / weight.sum()
    return Decisions(right**0.5, squares.sum(axis=0) ** 0.5, squares**0.5)


def _joined(parts: Iterable[Decisions]) -> Decisions:
    return Decisions(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def change_on_tables(
    thetas: np.ndarray,
    tables: Mapping[str, pd.DataFrame | Encoded],
    trained: TrainedModel,
    grouping: Grouping,
) -> Changes:
    """On test rows, theta [K, n] being those without each release; unknown without a table.

    Raises InputError: tables that do not fit the schema, or have no labels.
    """
    schema = trained.schema_
    every = np.arange(max(grouping) + 1)[:, None]
    if not tables:
        unknown = np.full(len(thetas), np.nan)
        none = Decisions(unknown, unknown, np.full((len(every), len(thetas)), np.nan))
        return Changes(none, none, unknown)
    encoded = encode_tests(tables, schema).values()
    x, s, y = (np.concatenate(part) for part in zip(*encoded, strict=True))
    if np.isnan(y).any():
        raise InputError(
            f"{next(iter(tables))}: has no column {schema.label!r} of labels, which show how far"
            " each release moves the accuracy"
        )
    a, ones, groups = trained.rows(x, s), np.ones(len(y)), np.array(grouping)[s] == every

    def measured(thetas: np.ndarray) -> Decisions:
        return _measured(a @ thetas.T > 0, y > 0, groups, ones)

    n_blocks = 1 + len(thetas) * len(a) // BLOCK
    without = _joined(measured(block) for block in np.array_split(thetas, n_blocks))
    now = measured(np.array(trained.theta)[None])
    return Changes(now.minus(without), _error(now, groups, ones), now.spd)


def change_on_others(
    thetas: np.ndarray,
    theta: np.ndarray,
    rows: Rows,
    parts: Mapping[str, slice],
    grouping: Grouping,
) -> Changes:
    """The same on the pooled rows of surrogates, by their weights, but for each release's own."""
    a, positive, groups, weight = _arrays(rows, grouping)
    changes, spd = [], []
    for part, without in zip(parts.values(), thetas, strict=True):
        others = weight.copy()
        others[part] = 0.0
        both = _measured(a @ np.stack([theta, without]).T > 0, positive, groups, others)
        now, then = (Decisions(*(found[..., k : k + 1] for found in both)) for k in (0, 1))
        changes.append(now.minus(then))
        spd.append(now.spd)
    now = _measured(a @ theta[:, None] > 0, positive, groups, weight)
    return Changes(_joined(changes), _error(now, groups, weight), np.concatenate(spd))


class OnOwn(NamedTuple):
    """Of the model without each of K releases, on that release's own rows.

    Attributes:
        decisions: what it decides.
        mean: [K] mean of its scores, in units of their usual spread: the median release's.
        spread: [K] natural logarithm of their standard deviation, in the same units.
        labels: [K] SPD of the labels themselves; 0 in fair releases whose labels are balanced.
    """

    decisions: Decisions
    mean: np.ndarray
    spread: np.ndarray
    labels: np.ndarray


def measured_on_own(
    thetas: np.ndarray, rows: Rows, parts: Mapping[str, slice], grouping: Grouping
) -> OnOwn:
    """What the others' model makes of each release's rows.

    Where units are wrong, or a client's rows all alike, it scores them as nobody else's, however
    little its decisions owe to them.
    """
    a, positive, groups, weight = _arrays(rows, grouping)
    found, moments, labels = [], [], []
    for part, theta in zip(parts.values(), thetas, strict=True):
        scores, own = a[part] @ theta, weight[part]
        mean = np.average(scores, weights=own)
        moments.append((mean, np.average((scores - mean) ** 2, weights=own) ** 0.5))
        mine = positive[part], groups[:, part], own
        found.append(_measured(scores[:, None] > 0, *mine))
        labels.append(_measured(positive[part, None], *mine).spd[0])
    mean, spread = np.transpose(moments)
    usual = max(float(np.median(spread)), np.finfo(float).tiny)
    logs = np.log(np.maximum(spread / usual, LEAST_SPREAD))
    return OnOwn(_joined(found), mean / usual, logs, np.array(labels))


def _arrays(
    rows: Rows, grouping: Grouping
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, whether the label is positive, groups as [G, N], and weights."""
    positive, s = np.asarray(rows.y) > 0, np.array(grouping)[np.asarray(rows.s)]
    weight = np.ones(len(s)) if rows.weight is None else np.asarray(rows.weight, float)
    return np.asarray(rows.a, float), positive, s == np.arange(max(grouping) + 1)[:, None], weight
