"""A trained model's metrics on test tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import synthfair
from synthfair.data.encode import (
    Clipping,
    Encoded,
    encode_inputs,
    encode_own,
    in_pandas,
    labelled,
    tidied,
)
from synthfair.data.schema import GroupNames, Schema, repeated
from synthfair.data.tables import read_table
from synthfair.errors import CONTROLS, InputError, named
from synthfair.fairness import intervals
from synthfair.fairness.intervals import MIN_RATE_ROWS, GroupSize, LabelCounts
from synthfair.fairness.metrics import Rates, Scored, group_rates
from synthfair.fairness.target import Target
from synthfair.metrics_file import (
    DecisionSettings,
    Evaluation,
    GroupingMetrics,
    Metrics,
    MetricsFile,
)
from synthfair.server.settings import ServerConfig
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd


PACKAGES = ("jax", "jaxlib", "numpy", "optax", "pandas")
"""Packages whose versions numbers may depend on."""

MAX_WITHIN_VALUES = 100
"""Values of a column within which gaps are measured."""


def read_tests(paths: Sequence[Path], schema: Schema) -> dict[str, pd.DataFrame]:
    """Return test tables by file name without ending, or by whole path where names repeat.

    Raises:
        InputError: a table is unreadable or given twice.
    """
    if twice := repeated(map(os.path.realpath, paths)):
        raise InputError(f"{twice[0]}: given more than once; give each test table once")
    tables = (read_table(path, schema) for path in paths)
    return dict(zip(file_names(paths), tables, strict=True))


def file_names(paths: Sequence[Path]) -> list[str]:
    """Return file names without ending, or whole paths where names repeat.

    Raises:
        InputError: a path has control characters, which no file of results may hold.
    """
    if odd := [path for path in map(str, paths) if CONTROLS.search(path)]:
        raise InputError(f"{odd[0]!r}: rename the file: control characters")
    times = Counter(path.stem for path in paths)
    return [path.stem if times[path.stem] == 1 else str(path) for path in paths]


def evaluate(
    model: TrainedModel,
    tables: pd.DataFrame | Encoded | Mapping[str, pd.DataFrame | Encoded],
    config: ServerConfig | None = None,
) -> Evaluation:
    """Return a model's accuracy and group gaps on test tables, overall and for each table.

    Where the model's decisions are drawn by coins, metrics are means over the coins: none is
    tossed, and the intervals speak of the rows alone. :mod:`synthfair.fairness.intervals` says what
    an interval guarantees. Without the label's column in any of the tables, there are selection
    rates, SPD and covariance; what compares decisions with labels is not-a-number.

    Args:
        model: its schema encodes the tables.
        tables: one, or several by name, which stands in ``per_client``; rows may be encoded, see
            :func:`encode_tests`.
        config: of intervals, and of the groups that count.

    Returns:
        Each metric with its 95 % interval; not-a-number where a group has no row that counts, or
        fewer than two have ``config.min_group_rows``.

    Raises:
        InputError: no table, one that does not fit the schema, or labels in some tables alone.

    Example:
        A model that says yes to everybody; 88 % of these applicants got their loan:

        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> inputs = (*schema.encoded_names, "(intercept)")
        >>> model = sf.TrainedModel(
        ...     schema=schema, version="0", loss="logistic", intercept=True, inputs=inputs,
        ...     theta=(0.0,) * 37 + (1.0,), gradient_norm=None, converged=None,
        ... )
        >>> overall = sf.evaluate(model, table, sf.ServerConfig(resamples=10)).overall
        >>> round(overall["accuracy"].value, 3), overall["spd"].value
        (0.877, 0.0)
    """
    if not isinstance(tables, Mapping):
        tables = {"table": tables}
    tables = {str(name): in_pandas(table) for name, table in tables.items()}
    return evaluate_scores(_scores(model, tables), config, schema=model.schema_)


def encode_tests(
    tables: Mapping[str, pd.DataFrame | Encoded], schema: Schema, *, paths: Sequence[Path] = ()
) -> dict[str, Encoded]:
    """Return test tables encoded, by name; those that are encoded already stay as they are.

    Without the label's column in any of the tables, y is not-a-number. A UserWarning names each
    column of which more than a twentieth lies outside the schema's bounds.

    Args:
        tables: by name.
        schema: of all of them.
        paths: of the tables, in their order, for errors; by their names if not given.

    Raises:
        InputError: a table does not fit the schema, or there are labels in some tables alone.
    """
    frames = {name: table for name, table in tables.items() if not isinstance(table, Encoded)}
    sources = dict(zip(tables, paths or tables, strict=True))
    without = [name for name, table in frames.items() if schema.label not in table.columns]
    if without and len(without) < len(tables):
        raise InputError(f"{sources[without[0]]}: no column {schema.label!r}, as other tables have")
    encoded = dict(tables)
    for name, table in frames.items():
        source = str(sources[name])
        if without:
            clipping = Clipping()
            x, s = encode_inputs(
                table, schema, source=source, extra_columns=False, clipping=clipping
            )
            clipping.warn(source)
            encoded[name] = Encoded(x, s, np.full(len(s), np.nan))
        else:
            encoded[name] = encode_own(table, schema, source=source)
    return cast("dict[str, Encoded]", encoded)


def rows_within(
    encoded: Mapping[str, Encoded], tables: Mapping[str, pd.DataFrame], schema: Schema, column: str
) -> dict[str, Encoded]:
    """Return the rows of all test tables by the values of a column, such as ``department = 4``.

    The gaps of these parts compare groups within one value alone: conditional statistical parity
    (Kamiran, Zliobaite and Calders 2013).

    Args:
        encoded: test tables, by name, see :func:`encode_tests`.
        tables: the same rows before they were encoded.
        schema: of all of them.
        column: of each table.

    Raises:
        InputError: a table lacks the column, or it has over :data:`MAX_WITHIN_VALUES` values.
    """
    for name, table in tables.items():
        if column not in table.columns:
            raise InputError(f"{name}: no column {column!r}; has {named([*table.columns])}")
    words, texts = schema.missing_values, []
    for table in tables.values():
        text = tidied(labelled(table, schema), words, [column])[column].astype("string")
        # 4 in one table is 4.0 in another, where some values are missing.
        text = text.str.replace(r"^([+-]?\d+)\.0+$", r"\1", regex=True)
        texts.append(text.fillna("missing").to_numpy(str))
    values = np.concatenate(texts)
    names, value = np.unique(values, return_inverse=True)
    if len(names) > MAX_WITHIN_VALUES:
        most = f"must have {MAX_WITHIN_VALUES} at most"
        raise InputError(f"column {column!r}: has {len(names):,} values; {most}")
    rows = [np.concatenate(part) for part in zip(*encoded.values(), strict=True)]
    return {
        f"{column} = {name}": Encoded(*(part[value == i] for part in rows))
        for i, name in enumerate(names)
    }


def at_cutoff(
    model: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    cutoff: float | None = None,
    *,
    most_selected: float = 1.0,
) -> tuple[float, Evaluation]:
    """Return a cutoff, and the metrics of the model that decides by it, on test tables.

    Args:
        model: not one that decides by group.
        tables: by name.
        cutoff: probability above which the decision is positive.
        most_selected: without a cutoff, the least one by which at most this share of the test rows
            is selected, 0 to 1.

    Raises:
        InputError: as :func:`evaluate` and :meth:`synthfair.TrainedModel.with_cutoff`; or the share
            is not above 0 and at most 1.
    """
    encoded = encode_tests(tables, model.schema_)
    if cutoff is None:
        if not 0 < most_selected <= 1:
            raise InputError(f"most_selected {most_selected:g}: must be above 0, at most 1")
        scores = np.sort(pooled_scores(model, encoded).score)
        n_selected = int(most_selected * len(scores) + 1e-9)  # 0.29 of 100 are 29
        refused = scores[-n_selected - 1] if n_selected < len(scores) else scores[0] - 1
        above = scores[scores > refused]
        middle = (refused + above[0]) / 2 if len(above) else refused + 1  # rounding moves no row
        cutoff = float((1 + np.tanh(middle / 2)) / 2)
    return cutoff, evaluate(model.with_cutoff(cutoff), encoded)


def pooled_scores(model: TrainedModel, tables: Mapping[str, pd.DataFrame | Encoded]) -> Scored:
    """Return the scored rows of all tables; arguments and errors as of :func:`evaluate`."""
    return _pool(_scores(model, tables))


def _scores(model: TrainedModel, tables: Mapping[str, pd.DataFrame | Encoded]) -> dict[str, Scored]:
    encoded = encode_tests(tables, model.schema_)
    return {name: score_rows(model, rows) for name, rows in encoded.items()}


def score_rows(model: TrainedModel, rows: Encoded) -> Scored:
    """Return rows with a model's scores and its probabilities of the decision +1."""
    x, s, y = rows
    score = model.scores(x, s)
    return Scored(y, score, s, len(model.schema_.groups), model.probabilities(score, s))


def _pool(scored: Mapping[str, Scored]) -> Scored:
    if not scored:
        raise InputError("no test tables")
    parts = list(scored.values())
    together = zip(*((rows.y, rows.score, rows.s, rows.selected) for rows in parts), strict=True)
    y, score, s, selected = map(np.concatenate, together)
    return Scored(y, score, s, parts[0].n_groups, selected)


def evaluate_scores(
    scored: Mapping[str, Scored], config: ServerConfig | None = None, *, schema: Schema
) -> Evaluation:
    """Return what :func:`evaluate` does, of rows of a schema that are scored already, by name.

    Raises:
        InputError: no rows, or ``config.groups_by`` names what is no grouping of the schema.
    """
    everything, config = _pool(scored), config or ServerConfig()

    # Of several attributes, gaps are the largest of the groupings that are asked for.
    several, least = len(schema.attributes) > 1, config.min_group_rows
    enough = max(MIN_RATE_ROWS, least)
    rows_of = np.bincount(everything.s, minlength=everything.n_groups)
    compared = partial(schema.compared, rows=rows_of, least=enough)
    chosen = compared(config.groups_by) if several else {}
    by = [groups.grouping for groups in chosen.values()]
    together = compared(None)[schema.sensitive_name]
    positive = float(np.mean((1 + everything.y) / 2))  # of labels that are not known, not-a-number
    has_labels = not np.isnan(positive)
    metrics_of = partial(
        intervals.metrics_with_intervals,
        resamples=config.resamples,
        seed=config.seed,
        min_group_rows=enough if several else least,
    )

    def sizes_of(rows: Scored) -> dict[str, GroupSize]:
        sizes = intervals.group_sizes(rows.grouped(together.grouping))
        return dict(zip(together.names, sizes, strict=True))

    def rates_of(groups: GroupNames) -> dict[str, Rates]:
        rates = group_rates(everything.grouped(groups.grouping))
        return dict(zip(groups.names, rates, strict=True))

    def counts_of(rows: Scored) -> dict[str, LabelCounts]:
        return {g: LabelCounts(n.negative, n.positive) for g, n in sizes_of(rows).items()}

    overall, groupings = metrics_of(everything, by=by), {}
    parts = {
        n: metrics_of(rows, by=by) if len(scored) > 1 else overall for n, rows in scored.items()
    }
    for name, groups in compared([*schema.groupings]).items() if several else ():
        metrics = metrics_of(everything, by=[groups.grouping])
        groupings[name] = GroupingMetrics(**metrics, rates=rates_of(groups))
    return Evaluation(
        **overall,
        per_client={name: Metrics(**metrics) for name, metrics in parts.items()},
        client_gaps=intervals.client_gaps(scored, min_group_rows=config.min_group_rows, by=by),
        by_group=rates_of(together),
        small_groups={
            name: size
            for name, size in sizes_of(everything).items()
            if (min(size) if has_labels else size.n) < enough
        },
        n_test=len(everything.y),
        schema_hash=schema.hash,
        version=synthfair.__version__,
        packages={"python": python_version(), **{name: version(name) for name in PACKAGES}},
        resamples=config.resamples,
        min_group_rows=config.min_group_rows,
        seed=config.seed,
        rows={name: counts_of(rows) for name, rows in scored.items()} if has_labels else None,
        constant_classifier={"accuracy": max(positive, 1 - positive)} if has_labels else None,
        groupings=groupings,
        groups_by=(*chosen,),
    )


def small_group_warnings(evaluation: Evaluation, schema: Schema) -> tuple[str, ...]:
    """Return warnings of groups with too few test rows to measure; empty if there are none."""
    small, least = evaluation.small_groups, evaluation.min_group_rows
    if not small:
        return ()
    negative, positive = schema.decisions

    def rows(size: GroupSize) -> str:
        labels = f": {size.positive} with label {positive}, {size.negative} with {negative}"
        return f"{size.n} rows{labels if evaluation.labelled else ''}"

    names = [f"{name} ({rows(size)})" for name, size in small.items()]
    enough = max(MIN_RATE_ROWS, least)
    of_label = ", overall or of one label" if evaluation.labelled else ""
    remedy = (
        f"gaps leave out groups with fewer than {enough if evaluation.groupings else least} rows"
        if least or evaluation.groupings
        else f"see the intervals, or leave such groups out by min_group_rows = {MIN_RATE_ROWS}"
    )
    return (
        f"fewer than {enough} test rows{of_label}, so that rates are hardly known:"
        f" {named(names)}; {remedy}",
    )


def decision_metrics(
    model: TrainedModel, evaluation: Evaluation, **fields: Any
) -> Evaluation | MetricsFile:
    """Return the metrics.json of a model with decisions by group; else the evaluation alone."""
    if (decision := model.decision) is None:
        return evaluation
    return MetricsFile.of(
        evaluation,
        method=decision.method,
        config={},
        decision=DecisionSettings(notion=decision.notion, alpha=decision.alpha),
        asked=Target(by="tolerance", amounts=(decision.alpha,)),
        converged=model.converged,
        counts=decision.origin,
        **fields,
    )
