from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table
from hypothesis import given
from hypothesis import strategies as st

from synthfair.data.bases import Spline, Steps
from synthfair.data.encode import encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.privacy.mechanism import feature_ball, input_ball

columns = st.one_of(
    st.builds(
        Numeric,
        lower=st.just(-3.0),
        upper=st.just(5.0),
        missing=st.sampled_from(["refuse", "category"]),
        basis=st.sampled_from(
            [
                None,
                Spline(knots=(-3, 0, 1, 5)),
                Spline(knots=(-3, 5), degree=3),
                Steps(edges=(-2, 5)),
            ]
        ),
    ),
    st.builds(
        Categorical,
        categories=st.integers(2, 5).map(lambda k: tuple("abcde"[:k])),
        missing=st.sampled_from(["refuse", "category"]),
        unknown=st.sampled_from([None, "ignore"]),
    ),
)


def values_of(column, draw):
    if isinstance(column, Numeric):
        allowed = st.floats(-3, 5)
    else:
        allowed = st.sampled_from([*column.categories, *["new"] * (column.unknown is not None)])
    return draw(st.none() | allowed if column.missing == "category" else allowed)


@st.composite
def rows(draw):
    features = {f"c{i}": column for i, column in enumerate(draw(st.lists(columns, min_size=1)))}
    groups = draw(st.integers(2, 4))
    roles = {
        "s": Categorical(categories=tuple("wxyz"[:groups])),
        "y": Categorical(categories=(0, 1)),
    }
    pairs = list(combinations(features, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3)) if pairs else []
    schema = Schema(
        name="any", label="y", positive=1, sensitive="s", columns=features | roles,
        interactions=tuple(chosen) or None,
    )  # fmt: skip
    values = {name: [values_of(column, draw)] for name, column in schema.columns.items()}
    return schema, pd.DataFrame(values)


@given(rows())
def test_every_row_that_a_schema_allows_is_in_the_ball(made):
    schema, table = made
    encoded = encode(table, schema)
    ball, both = feature_ball(schema), input_ball(schema, group_input=True)
    indicators = np.arange(1, len(schema.groups)) == encoded.s[0]
    assert np.linalg.norm(encoded.x[0] - ball.centre) <= ball.radius + 1e-12
    together = np.concatenate([encoded.x[0], indicators])
    assert np.linalg.norm(together - both.centre) <= both.radius + 1e-12


@pytest.mark.parametrize("n_groups", [2, 3, 4])
def test_the_ball_is_no_larger_than_it_must_be(n_groups):
    """Some row lies on its surface: a smaller radius would be a bug."""
    schema = make_schema(n_groups)
    x = encode(make_table(400, n_groups=n_groups), schema).x
    numeric = np.array([1, 1, 0, 0, 0, 0, 0], bool)
    corners = np.where(numeric, np.round(x), x)
    ball = feature_ball(schema)
    farthest = np.linalg.norm(corners - ball.centre, axis=1).max()
    assert farthest == pytest.approx(ball.radius)
