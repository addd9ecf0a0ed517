"""A trained model's metrics on test tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import synthfair
from synthfair.config.server_settings import ServerConfig
from synthfair.config.target import Target
from synthfair.data.encode import Clipping, Encoded, encode_inputs, encode_own, in_pandas
from synthfair.data.schema import GroupNames, Schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError
from synthfair.fairness.intervals import (
    FEW_ROWS,
    MOST_NAMED,
    GroupSize,
    client_gaps,
    group_sizes,
    metrics_with_intervals,
)
from synthfair.fairness.metrics import Metric, Rates, Scored, group_rates
from synthfair.postprocess.histogram import LabelCounts
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd


PACKAGES = ("jax", "jaxlib", "numpy", "optax", "pandas")
"""Packages whose versions numbers may depend on."""


class GroupingMetrics(NamedTuple):
    """Metrics of the groups of one sensitive attribute, or of several together.

    Attributes:
        metrics: with intervals, over all test rows.
        rates: of each group, by name.
    """

    metrics: dict[str, Metric]
    rates: dict[str, Rates]


class Evaluation(NamedTuple):
    """A model's metrics, with intervals.

    Attributes:
        overall: over all test rows.
        per_client: the same, for the rows of each table by itself.
        group_names: of the groups; small combinations of several attributes are merged, see
            :meth:`synthfair.data.schema.Schema.compared`.
        by_group: rates of each group, over all test rows.
        group_sizes: numbers of each group's test rows.
        n_test: number of test rows.
        constant_accuracy: of the more frequent label for everybody, over all test rows;
            not-a-number where the tables have no labels.
        rows: number of rows by label, of each table and group; empty without labels.
        groupings: metrics by each attribute, and by all of them together, where there are several.
        by: groupings then of which gaps are the largest.
        client_gaps: by metric, gaps of the tables with rows enough, whose intervals hold together,
            see :func:`synthfair.fairness.intervals.client_gaps`.
    """

    overall: dict[str, Metric]
    per_client: dict[str, dict[str, Metric]]
    group_names: tuple[str, ...]
    by_group: list[Rates]
    group_sizes: list[GroupSize]
    n_test: int
    constant_accuracy: float
    rows: dict[str, list[LabelCounts]]
    groupings: dict[str, GroupingMetrics]
    client_gaps: Mapping[str, Mapping[str, Metric]] = {}
    by: Sequence[tuple[int, ...]] = ()

    def __repr__(self) -> str:
        """The metrics over all rows with their intervals, in a line."""
        found = [(name, m) for name, m in self.overall.items() if np.isfinite(m.value)]
        said = (f"{name} {m.value:.3f} [{m.low:.3f}, {m.high:.3f}]" for name, m in found)
        return f"Evaluation({self.n_test:,} rows: {', '.join(said)})"

    @property
    def labelled(self) -> bool:
        """Whether the test rows have labels."""
        return not np.isnan(self.constant_accuracy)


def read_tests(paths: Sequence[Path], schema: Schema) -> dict[str, pd.DataFrame]:
    """Test tables by file name without ending, or by whole path where names repeat.

    Raises:
        InputError: a table is unreadable or given twice.
    """
    places = [os.path.realpath(path) for path in paths]
    times = Counter(places)
    for path, place in zip(paths, places, strict=True):
        if times[place] > 1:
            raise InputError(f"{path}: given more than once; give each test table once")
    return {
        name: read_table(path, schema) for name, path in zip(file_names(paths), paths, strict=True)
    }


def file_names(paths: Sequence[Path]) -> list[str]:
    """File names without ending, or whole paths where names repeat."""
    times = Counter(path.stem for path in paths)
    return [path.stem if times[path.stem] == 1 else str(path) for path in paths]


def evaluate(
    model: TrainedModel,
    tables: pd.DataFrame | Encoded | Mapping[str, pd.DataFrame | Encoded],
    config: ServerConfig | None = None,
    *,
    sources: Sequence[Path] | None = None,
) -> Evaluation:
    """Accuracy and group gaps of a model on test tables, overall and for each table.

    Where the model's decisions are drawn by coins, metrics are means over the coins: none is
    tossed, and the intervals speak of the rows alone. :mod:`synthfair.fairness.intervals` says what
    an interval guarantees. Without the label's column in any of the tables, there are selection
    rates, SPD and covariance; what compares decisions with labels is not-a-number.

    Args:
        model: its schema encodes the tables.
        tables: one, or several by name, which stands in ``per_client``; rows may be encoded, see
            :func:`encode_tests`.
        config: of intervals, and of the groups that count.
        sources: files of the tables, for errors; their names if not given.

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
    tables = {name: in_pandas(table) for name, table in tables.items()}
    return evaluate_scores(_scores(model, tables, sources), config, schema=model.schema_)


def encode_tests(
    tables: Mapping[str, pd.DataFrame | Encoded],
    schema: Schema,
    *,
    sources: Sequence[Path] | None = None,
) -> dict[str, Encoded]:
    """Test tables encoded, by name; those that are encoded already stay as they are.

    Without the label's column in any of the tables, y is not-a-number. A UserWarning names each
    column of which more than a twentieth lies outside the schema's bounds. Arguments and errors as
    of :func:`evaluate`.
    """
    without = [
        str(source)
        for table, source in zip(tables.values(), sources or tables, strict=True)
        if not isinstance(table, Encoded) and schema.label not in table.columns
    ]
    if without and len(without) < len(tables):
        raise InputError(
            f"{without[0]}: has no column {schema.label!r} of labels, and other test tables have"
            " one; evaluate tables with and without labels apart"
        )
    encoded = {}
    for (name, table), source in zip(tables.items(), sources or tables, strict=True):
        if isinstance(table, Encoded):
            encoded[name] = table
        elif without:
            clipping, own = Clipping(), {"source": str(source), "others": False}
            x, s = encode_inputs(table, schema, clipping=clipping, **own)
            clipping.warn(str(source))
            encoded[name] = Encoded(x, s, np.full(len(s), np.nan))
        else:
            encoded[name] = encode_own(table, schema, source=str(source))
    return encoded


def pooled_scores(
    model: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    sources: Sequence[Path] | None = None,
) -> Scored:
    """The rows of all tables together, scored; arguments and errors as of :func:`evaluate`."""
    return _pool(_scores(model, tables, sources))


def _scores(
    model: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    sources: Sequence[Path] | None,
) -> dict[str, Scored]:
    scored = {}
    for name, (x, s, y) in encode_tests(tables, model.schema_, sources=sources).items():
        score = model.scores(x, s)
        chance = model.probabilities(score, s)
        scored[name] = Scored(y, score, s, len(model.schema_.groups), chance)
    return scored


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
    """:func:`evaluate` for rows of a schema that are scored already, by name.

    Raises:
        InputError: no rows, or ``config.groups_by`` names what is no grouping of the schema.
    """
    everything, config = _pool(scored), config or ServerConfig()

    # Of several attributes, gaps are the largest of the groupings that are asked for.
    several, least = len(schema.attributes) > 1, config.min_group_rows
    sizes = np.bincount(everything.s, minlength=everything.n_groups)
    compared = partial(schema.compared, rows=sizes, least=max(FEW_ROWS, least))
    asked, least = compared(config.groups_by), max(FEW_ROWS, least) if several else least
    by = [groups.grouping for groups in asked.values()] if several else []
    together = compared(None)[schema.sensitive_name]
    by_group = everything.grouped(together.grouping)
    positive = float(np.mean((1 + everything.y) / 2))  # of labels that are not known, not-a-number
    labelled = not np.isnan(positive)

    def metrics_of(rows: Scored, by: Sequence[tuple[int, ...]] = by) -> dict[str, Metric]:
        return metrics_with_intervals(
            rows,
            resamples=config.resamples,
            seed=config.seed,
            min_group_rows=least,
            by=by,
        )

    def of_grouping(groups: GroupNames) -> GroupingMetrics:
        rates = group_rates(everything.grouped(groups.grouping))
        return GroupingMetrics(
            metrics_of(everything, [groups.grouping]), dict(zip(groups.names, rates, strict=True))
        )

    def labels(rows: Scored) -> list[LabelCounts]:
        sizes = group_sizes(rows.grouped(together.grouping))
        return [LabelCounts(size.negative, size.positive) for size in sizes]

    overall = metrics_of(everything)
    return Evaluation(
        overall=overall,
        per_client={
            name: metrics_of(rows) if len(scored) > 1 else overall for name, rows in scored.items()
        },
        group_names=together.names,
        by_group=group_rates(by_group),
        group_sizes=group_sizes(by_group),
        n_test=len(everything.y),
        constant_accuracy=max(positive, 1 - positive),
        rows={name: labels(rows) for name, rows in scored.items()} if labelled else {},
        groupings={name: of_grouping(one) for name, one in compared([*schema.groupings]).items()}
        if several
        else {},
        client_gaps=client_gaps(scored, min_group_rows=config.min_group_rows, by=by),
        by=by,
    )


def evaluation_document(
    evaluation: Evaluation, schema: Schema, config: ServerConfig
) -> dict[str, Any]:
    """The metrics as they stand in metrics.json; not-a-number is null there.

    Without labels, the counts of rows by label and the constant classifier are left out.
    """

    def of_groups(parts: Sequence[Any]) -> dict[str, Any]:
        return as_numbers(dict(zip(evaluation.group_names, parts, strict=True)))

    small = small_groups(evaluation, config.min_group_rows)
    groupings = {
        name: {**as_numbers(part.metrics), "rates": as_numbers(part.rates)}
        for name, part in evaluation.groupings.items()
    }
    asked = config.groups_by or (schema.sensitive_name,)
    by_label: dict[str, Any] = {}
    if evaluation.labelled:
        by_label = {
            "rows": {name: of_groups(counts) for name, counts in evaluation.rows.items()},
            "constant_classifier": {"accuracy": evaluation.constant_accuracy},
        }
    return {
        **as_numbers(evaluation.overall),
        "per_client": {name: as_numbers(part) for name, part in evaluation.per_client.items()},
        "client_gaps": {name: as_numbers(gaps) for name, gaps in evaluation.client_gaps.items()},
        "by_group": of_groups(evaluation.by_group),
        "small_groups": {name: size._asdict() for name, size in small.items()},
        **by_label,
        **({"groupings": groupings, "groups_by": asked} if groupings else {}),
        "n_test": evaluation.n_test,
        "schema_hash": schema.hash,
        "version": synthfair.__version__,
        "packages": {"python": python_version(), **{name: version(name) for name in PACKAGES}},
        "resamples": config.resamples,
        "min_group_rows": config.min_group_rows,
        "seed": config.seed,
    }


def small_groups(evaluation: Evaluation, min_group_rows: int = 0) -> dict[str, GroupSize]:
    """The groups with too few test rows to measure, overall or of one label if known, by name.

    Too few are fewer than :data:`~synthfair.fairness.intervals.FEW_ROWS`, or than
    ``min_group_rows`` if that is more.
    """
    enough = max(FEW_ROWS, min_group_rows)
    return {
        name: size
        for name, size in zip(evaluation.group_names, evaluation.group_sizes, strict=True)
        if min(size if evaluation.labelled else size[:1]) < enough
    }


def small_group_warnings(
    evaluation: Evaluation, schema: Schema, config: ServerConfig
) -> tuple[str, ...]:
    """Warns of groups with too few test rows to measure; empty if there are none."""
    small = small_groups(evaluation, config.min_group_rows)
    if not small:
        return ()
    negative, positive = schema.decisions

    def rows(size: GroupSize) -> str:
        labels = f": {size.positive} with label {positive}, {size.negative} with {negative}"
        return f"{size.n} rows{labels if evaluation.labelled else ''}"

    names = [f"{name} ({rows(size)})" for name, size in list(small.items())[:MOST_NAMED]]
    names += [f"{len(small) - MOST_NAMED} more"] if len(small) > MOST_NAMED else []
    enough = max(FEW_ROWS, config.min_group_rows)
    one = ", overall or of one label" if evaluation.labelled else ""
    least = enough if evaluation.groupings else config.min_group_rows
    remedy = (
        f"gaps leave out groups with fewer than {least} rows"
        if config.min_group_rows or evaluation.groupings
        else f"see the intervals, or leave such groups out by min_group_rows = {FEW_ROWS}"
    )
    return (
        f"fewer than {enough} test rows{one}, so that rates are hardly known:"
        f" {', '.join(names)}; {remedy}",
    )


def decision_document(model: TrainedModel) -> dict[str, Any]:
    """The part of metrics.json about decisions by group, for ``report``; empty without them."""
    if model.decision is None:
        return {}
    return {
        "method": model.decision.method,
        "config": {},
        "decision": {"notion": model.decision.notion, "alpha": model.decision.alpha},
        "asked": Target(by="tolerance", amounts=(model.decision.alpha,)).model_dump(mode="json"),
        "converged": model.converged,
        **({"counts": statement} if (statement := model.decision.statement) else {}),
    }


def as_numbers(parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return named tuples of numbers, by name, as they stand in a JSON file."""
    return {
        name: {key: number(value) for key, value in part._asdict().items()}
        for name, part in parts.items()
    }


def number(value: float) -> float | None:
    """Returns the number, or None for not-a-number, which JSON does not have."""
    return None if np.isnan(value) else value
