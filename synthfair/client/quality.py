"""The quality of a release on the rows for which it stands, which stay in house."""

from __future__ import annotations

from math import nan
from typing import Any, NamedTuple

import numpy as np

from synthfair.data.encode import Encoded, encode_own, encode_records
from synthfair.data.schema import Categorical, Schema
from synthfair.evaluation import evaluate
from synthfair.release.format import Release, fitted, require_fit
from synthfair.server.pooling import pool_and_train, pool_table, train_pool
from synthfair.server.settings import ServerConfig
from synthfair.surrogate.fair import WeightedTable

N_BINS = 20
"""Bins of a number between its bounds, in which its distribution is compared."""


class Fit(NamedTuple):
    """A model's mean logistic loss, accuracy and gap (SPD) on the rows."""

    loss: float
    accuracy: float
    gap: float


class Quality(NamedTuple):
    """A release beside the rows for which it stands. Private: computed from the rows without noise.

    Attributes:
        columns: of a surrogate, by column, [2, k] shares of the rows and of the records: of each
            category, or of each of :data:`N_BINS` bins of a number; the last is of missing values
            where the column may miss some. None of a fair release, whose rows imitate no others.
        released: the fit of a model of the release alone.
        real: the fit of a model of the rows, without a penalty.
        constant: the loss of the share of the positive label, for every row.
    """

    columns: dict[str, np.ndarray]
    released: Fit
    real: Fit
    constant: float

    @property
    def learned(self) -> float:
        """Return the share of what a model of the rows learns that one of the release learns.

        Not-a-number where that of the rows learns nothing.
        """
        gain = self.constant - self.real.loss
        return (self.constant - self.released.loss) / gain if gain > 1e-6 else nan

    @property
    def distances(self) -> dict[str, float]:
        """Return by feature the share of rows that lie elsewhere: half the sum of differences."""
        return {name: float(np.abs(p - q).sum() / 2) for name, (p, q) in self.columns.items()}


def release_quality(release: Release, table: Any, schema: Schema) -> Quality:
    """Return how like a table a release is, by column, and how good on it is what it trains.

    Args:
        release: of this table, or of one like it.
        table: the rows; a DataFrame.
        schema: the release's.

    Raises:
        InputError: the release is of another schema, or the table does not fit it.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.client.quality import release_quality
        >>> table, schema = sf.load_dataset("loanapp")
        >>> release = sf.distill_table(table, schema, sf.SurrogateConfig(k_min=10)).release
        >>> quality = release_quality(release, table, schema)
        >>> max(quality.distances.values()) < 0.1, quality.released.loss < 1.1 * quality.real.loss
        (True, True)
    """
    require_fit(release, schema, "release")
    release = fitted(release, schema)  # of a schema that grew since
    rows, columns = encode_own(table, schema, source="table"), {}
    if release.weight is not None:
        plain = schema.plain
        real = encode_own(table, plain, source="table").x
        records = encode_records(release.x, plain)
        once, start = np.ones(len(real)), 0
        for name, names in plain.encoded_blocks.items():
            block = slice(start, start := start + len(names))
            parts = (real[:, block], once), (records[:, block], release.weight)
            column = plain.columns[name]
            columns[name] = np.array([_shares(x, w, column) for x, w in parts])
        groups = len(schema.groups), (rows.s, once), (release.s, release.weight)
        labels = 2, (rows.y > 0, once), (release.y > 0, release.weight)
        for name, (k, *codes) in {schema.sensitive_name: groups, schema.label: labels}.items():
            shares = (np.bincount(code, w, k) / w.sum() for code, w in codes)
            columns[name] = np.array([*shares])
    config = ServerConfig(rho=0.0)
    weighted = WeightedTable(rows.x, rows.s, rows.y, np.ones(len(rows.y)))
    own, _ = train_pool(pool_table(weighted, schema, config), schema)
    is_fair = release.weight is None  # its clients have set all that a server sets
    sent = pool_and_train({"release": release}, schema, None if is_fair else config)
    positive = np.mean(rows.y > 0)
    constant = float(-np.log([positive, 1 - positive]) @ [positive, 1 - positive])
    return Quality(columns, _fit(sent, rows), _fit(own, rows), constant)


def _shares(x: np.ndarray, weight: np.ndarray, column: Any) -> np.ndarray:
    """Return the shares of weighted encoded rows [N, c] of a column by category or bin."""
    missing = x[:, -1] if column.missing == "category" else np.zeros(len(x))
    if isinstance(column, Categorical):
        listed = x[:, : x.shape[1] - (column.missing == "category")]
        first = (
            (1 - listed.sum(axis=1) - missing)[:, None] if listed.shape[1] == 1 else listed[:, :0]
        )
        counts = weight @ np.hstack([first, listed])
    else:
        known = weight * (1 - missing)
        counts = np.histogram(x[:, 0], N_BINS, (0.0, 1.0), weights=known)[0]
    if column.missing == "category":
        counts = np.append(counts, weight @ missing)
    return counts / weight.sum()


def _fit(model: Any, rows: Encoded) -> Fit:
    scores = model.scores(rows.x, rows.s)
    metrics = evaluate(model, rows, ServerConfig(resamples=1))
    loss = float(np.logaddexp(0.0, -rows.y * scores).mean())
    return Fit(loss, metrics.accuracy.value, metrics.spd.value)
