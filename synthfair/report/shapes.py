"""The curve of each column of an additive model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit, logit

from synthfair.data.encode import as_numbers, encode_records, find_categories
from synthfair.data.schema import Categorical, Numeric
from synthfair.report.figures import COLORS, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from synthfair.trained import TrainedModel

CURVE_POINTS = 201
"""At which the curve of a number is drawn."""

TAIL_SHARE = 1e-3
"""Share of contributions that may lie outside the scale, at each end."""

MIN_PROBABILITY = 1e-6
"""How near a probability may come to 0 and 1."""

MAX_PANELS, MAX_NAMED_CATEGORIES = 24, 60
"""Columns that are drawn, and categories of a column that are named; :func:`shapes` has all."""

PANELS_PER_ROW = 4
"""Panels in a row."""


class Shape(NamedTuple):
    """A curve of how a column moves the score of a linear model, all else equal.

    Attributes:
        places: [k] values of the column: numbers from bound to bound, or categories.
        score: [k] what each adds to the score of the reference, in log-odds of a logistic model;
            without the column's interactions.
    """

    places: np.ndarray
    score: np.ndarray


def shapes(model: TrainedModel, reference: np.ndarray | None = None) -> dict[str, Shape]:
    """Return the shape of each feature.

    Args:
        model: a linear model, additive where its schema has bases.
        reference: [n] inputs; ``model.middle`` if None. For the mean of rows:
            ``model.rows(x, s).mean(axis=0)``.

    Raises:
        InputError: the model has hidden layers.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp_additive")
        >>> surrogate = sf.distill_table(table, schema, sf.SurrogateConfig()).release
        >>> model = sf.pool_and_train({"a": surrogate}, schema)
        >>> loan = sf.shapes(model)["loanamt"]
        >>> loan.places[[0, -1]].tolist(), loan.score.shape
        ([0.0, 500.0], (201,))
    """
    schema = model.schema_
    features, curves = schema.features, {}
    first = [0.0 if isinstance(c, Categorical) else c.lower for c in features.values()]
    for i, (name, column) in enumerate(features.items()):
        if isinstance(column, Categorical):
            values, entries = np.array(column.categories), np.arange(len(column.categories))
        else:
            values = entries = np.linspace(column.lower, column.upper, CURVE_POINTS)
        records = np.tile(np.array(first), (len(values), 1))
        records[:, i] = entries
        x, s = encode_records(records, schema), np.zeros(len(values), int)
        curves[name] = Shape(values, model.contributions(x, s, reference)[1][name])
    return curves


def plot_shapes(model: TrainedModel, table: pd.DataFrame | None = None) -> Figure:
    """Draw the shape of each feature, the most important first, of 24 at most.

    At the left stands what a value adds to the score z of the mean of the rows, or without rows of
    ``model.middle``; at the right the change of the probability sigma(z) that comes of it.

    Args:
        model: a linear model, additive where its schema has bases.
        table: rows whose values are drawn behind as a histogram, such as test rows; by them, a
            feature is as important as the standard deviation of what it adds to the score. Without
            any, as the range of that.

    Returns:
        A figure of matplotlib, one panel a column.

    Raises:
        InputError: the model has hidden layers, the table does not fit its schema, or matplotlib is
            not installed.
    """
    # How much each column moves scores, and how far the scale reaches: to all but rare rows.
    if table is None:
        reference, drawn = model.middle, shapes(model)
        parts = {name: curve.score for name, curve in drawn.items()}
        spread, ends = np.ptp, (0.0, 1.0)
    else:
        x, s = model.encode(table)
        reference = model.rows(x, s).mean(axis=0)
        drawn, parts = shapes(model, reference), model.contributions(x, s, reference)[1]
        spread, ends = np.std, (TAIL_SHARE, 1 - TAIL_SHARE)
    order = sorted(drawn, key=lambda name: -spread(parts[name]))[:MAX_PANELS]
    low, high = np.quantile(np.concatenate([parts[name] for name in drawn]), ends)

    with styled():
        from matplotlib.figure import Figure as Canvas

        rows = -(-len(order) // PANELS_PER_ROW)
        figure = Canvas(figsize=(3 * PANELS_PER_ROW, 2.6 * rows), layout="constrained")
        panels = figure.subplots(rows, PANELS_PER_ROW, squeeze=False, sharey=True).ravel()
        for axes, name in zip(panels, order, strict=False):
            axes.set_title(name)
            values = None if table is None else table[name]
            _draw_shape(axes, drawn[name], model.schema_.columns[name], values)
        for axes in panels[len(order) :]:
            axes.set_axis_off()

        # The two scales stand at the ends of each row of panels.
        middle = float(reference @ np.asarray(model.theta))

        def change(score: np.ndarray) -> np.ndarray:
            """Return the change of the probability, by what is added to the score."""
            return expit(middle + score) - expit(middle)

        def score(change: np.ndarray) -> np.ndarray:
            chance = np.clip(expit(middle) + change, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
            return logit(chance) - middle

        margin = 0.1 * (high - low) or 1.0
        panels[0].set_ylim(low - margin, high + margin)
        for axes in panels[: len(order) : PANELS_PER_ROW]:
            axes.set_ylabel("adds to the score")
        for i in {*range(PANELS_PER_ROW - 1, len(order), PANELS_PER_ROW), len(order) - 1}:
            right = panels[i].secondary_yaxis("right", functions=(change, score))
            right.set_ylabel("changes P(+1) by")
    return figure


def _draw_shape(
    axes: Axes, shape: Shape, column: Numeric | Categorical, values: pd.Series | None = None
) -> None:
    """Draw a line, or points of categories, and behind it a histogram of a table's values."""
    is_number = isinstance(column, Numeric)
    places = shape.places if is_number else np.arange(len(shape.places))
    if values is not None:
        behind = axes.twinx()
        behind.set_axis_off()
        axes.set_zorder(behind.get_zorder() + 1)
        axes.patch.set_visible(False)
        if isinstance(column, Numeric):
            numbers = as_numbers(values)
            numbers = numbers[np.isfinite(numbers)].clip(column.lower, column.upper)
            behind.hist(numbers, 40, color="0.85")
        else:
            position = find_categories(values, column.categories)
            behind.bar(places, (position[:, None] == places).sum(axis=0), color="0.85")
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.plot(places, shape.score, "-" if is_number else "o", color=COLORS[0], markersize=4)
    if not is_number:
        named = slice(None, None, -(-len(places) // MAX_NAMED_CATEGORIES))
        axes.set_xticks(places[named], shape.places.astype(str)[named], rotation=90, fontsize=6)
