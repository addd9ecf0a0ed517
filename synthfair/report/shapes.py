"""The curve of each column of an additive model, and what values of the column there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.data.encode import encode_inputs, encode_records
from synthfair.data.schema import Categorical
from synthfair.errors import InputError
from synthfair.report.figures import COLORS, MISSING, STYLE, can_draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from synthfair.trained import TrainedModel

POINTS = 201
"""At which the curve of a number is drawn."""

ACROSS = 4
"""Panels in a row."""


class Shape(NamedTuple):
    """How a column moves the score of a linear model, all else equal.

    Attributes:
        places: [k] values of the column: numbers from bound to bound, or categories.
        score: [k] what each adds to the score of ``model.middle``, in log-odds of a logistic model;
            without the column's interactions.
    """

    places: np.ndarray
    score: np.ndarray


def shapes(model: TrainedModel) -> dict[str, Shape]:
    """The shape of each feature.

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
    features, found = schema.features, {}
    first = [0.0 if isinstance(c, Categorical) else c.lower for c in features.values()]
    for i, (name, column) in enumerate(features.items()):
        if isinstance(column, Categorical):
            values, entries = np.array(column.categories), np.arange(len(column.categories))
        else:
            values = entries = np.linspace(column.lower, column.upper, POINTS)
        records = np.tile(np.array(first), (len(values), 1))
        records[:, i] = entries
        x, s = encode_records(records, schema), np.zeros(len(values), int)
        found[name] = Shape(values, model.contributions(x, s)[1][name])
    return found


def plot_shapes(model: TrainedModel, table: pd.DataFrame | None = None) -> Figure:
    """Draws the shape of each feature, the most important first.

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
    if not can_draw():
        raise InputError(MISSING)
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    drawn = shapes(model)
    spread = {name: float(np.ptp(shape.score)) for name, shape in drawn.items()}
    if table is not None:
        parts = model.contributions(*encode_inputs(table, model.schema_))[1]
        spread = {name: float(np.std(parts[name])) for name in drawn}
    with matplotlib.style.context(["default", STYLE]):
        rows = -(-len(drawn) // ACROSS)
        figure = Canvas(figsize=(3 * ACROSS, 2.2 * rows), layout="constrained")
        panels = figure.subplots(rows, ACROSS, squeeze=False, sharey=True).ravel()
        for axes in panels[len(drawn) :]:
            axes.set_axis_off()
        order = sorted(drawn, key=lambda name: -spread[name])
        for axes, name in zip(panels, order, strict=False):
            shape, text = drawn[name], isinstance(model.schema_.columns[name], Categorical)
            places = np.arange(len(shape.places)) if text else shape.places
            if table is not None:
                behind = axes.twinx()
                behind.set_axis_off()
                values = table[name].astype("string") if text else table[name].astype(float)
                if text:
                    counts = values.value_counts().reindex(shape.places.astype(str), fill_value=0)
                    behind.bar(places, counts, color="0.85")
                else:
                    behind.hist(values.dropna().clip(places[0], places[-1]), 40, color="0.85")
                axes.set_zorder(behind.get_zorder() + 1)
                axes.patch.set_visible(False)
            axes.axhline(0, color="0.6", linewidth=0.8)
            if text:
                axes.plot(places, shape.score, "o", color=COLORS[0], markersize=4)
                axes.set_xticks(places, shape.places.astype(str), rotation=90, fontsize=6)
            else:
                axes.plot(places, shape.score, color=COLORS[0])
            axes.set_title(name)
        for axes in panels[::ACROSS]:
            axes.set_ylabel("adds to the score")
    return figure
