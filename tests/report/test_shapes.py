"""The curve of each column of an additive model."""

import numpy as np
import pytest
from builders import make_table
from exported import additive, linear, network

import synthfair as sf
from synthfair.errors import InputError


def test_a_shape_is_what_a_column_adds_to_the_middle():
    model = linear(additive())
    found = sf.shapes(model)
    assert list(found) == list(model.schema_.features)
    table = make_table(n=200, n_groups=3).assign(code=5, kind=2, age=18.0, home="own", income=0.0)
    ages = found["age"]
    for i in (0, 77, 200):
        row = table.head(1).assign(age=ages.places[i])
        scored = sf.predict(model, row, reference=model.middle)
        assert scored["contribution of age"][0] == pytest.approx(ages.score[i])
    assert found["home"].places.tolist() == ["own", "rent", "other"]
    assert found["income"].score.shape == (201,)
    steps = np.flatnonzero(np.diff(found["income"].score))
    assert found["income"].places[steps + 1].tolist() == [20.0, 50.0, 100.0]


def test_a_figure_has_a_panel_for_each_column_the_most_important_first():
    model = linear(additive())
    table = make_table(n=200, n_groups=3).assign(code=[5, 7] * 100, kind=[2, 3, 1.5, 3] * 50)
    parts = model.contributions(*sf.encode(table, model.schema_)[:2])[1]
    for rows in (None, table):
        figure = sf.plot_shapes(model, rows)
        titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
        assert sorted(titles) == sorted(model.schema_.features)
    assert titles[0] == max(model.schema_.features, key=lambda name: np.std(parts[name]))


def test_behind_a_shape_stand_the_rows_of_each_value():
    """Also where codes are text, or a column misses values and so holds numbers with a point."""
    model = linear(additive())
    kinds = model.schema_.columns["kind"].categories
    table = make_table(n=200, n_groups=3).assign(code=[5, 7] * 100, kind=[2, 3, 1.5, 3] * 50)
    figure = sf.plot_shapes(model, table)
    heights = [[patch.get_height() for patch in axes.patches] for axes in figure.axes]
    assert [float((table["kind"] == kind).sum()) for kind in kinds] in heights
    homes = table["home"].value_counts()
    assert [float(homes[home]) for home in ("own", "rent", "other")] in heights
    codes = model.schema_.columns["code"].categories
    as_text = table.assign(code=table["code"].astype(str))
    assert [float((table["code"] == code).sum()) for code in codes] in [
        [patch.get_height() for patch in axes.patches]
        for axes in sf.plot_shapes(model, as_text).axes
    ]


def test_networks_have_no_shapes():
    with pytest.raises(InputError, match="hidden layers"):
        sf.shapes(network())
