"""The curve of each column of an additive model."""

import numpy as np
import pytest
from builders import make_table
from exported import additive, linear

import synthfair as sf

MODEL = linear(additive())
TABLE = make_table(n=200, n_groups=3).assign(code=[5, 7] * 100, kind=[2, 3, 1.5, 3] * 50)


def test_shape_is_what_a_column_adds_to_the_middle():
    found = sf.shapes(MODEL)
    assert list(found) == list(MODEL.schema_.features)
    row, ages = TABLE.head(1).assign(code=5, kind=2, home="own", income=0.0), found["age"]
    for i in (0, 77, 200):
        scored = sf.predict(MODEL, row.assign(age=ages.places[i]), reference=MODEL.middle)
        assert scored["contribution of age"][0] == pytest.approx(ages.score[i])
    assert found["home"].places.tolist() == ["own", "rent", "other"]
    steps = np.flatnonzero(np.diff(found["income"].score))
    assert found["income"].places[steps + 1].tolist() == [20.0, 50.0, 100.0]


def test_shapes_drawn_are_of_all_columns_the_most_important_first():
    figure = sf.plot_shapes(MODEL, TABLE)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    parts = MODEL.contributions(*sf.encode(TABLE, MODEL.schema_)[:2])[1]
    ranked = sorted(MODEL.schema_.features, key=lambda name: -np.std(parts[name]))
    assert titles == ranked


@pytest.mark.parametrize("column", ["kind", "home", "code"])
def test_shapes_stand_before_the_rows_of_each_value(column):
    """Also where codes are text, or a column misses values and so holds numbers with a point."""
    table = TABLE.assign(code=TABLE["code"].astype(str))
    figure = sf.plot_shapes(MODEL, table)
    heights = [[patch.get_height() for patch in axes.patches] for axes in figure.axes]
    categories = MODEL.schema_.columns[column].categories
    assert [float((TABLE[column] == value).sum()) for value in categories] in heights
