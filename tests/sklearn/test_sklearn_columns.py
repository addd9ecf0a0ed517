"""What the estimators read from tables of all dtypes, and how they refuse; nothing is trained."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from synthfair.errors import InputError
from synthfair.sklearn import Distiller, FairLogisticRegression
from synthfair.sklearn.estimator import (
    MAX_FEATURE_GROUPS,
    encoded,
    encoder_of,
    to_units,
)

N = 12
Y = np.tile(["no", "yes"], N // 2)
S = np.repeat(["a", "b"], N // 2)
INCOME = np.linspace(10.0, 90.0, N)


def column(*values, dtype=None):
    """[N] the values over and over."""
    return pd.Series([values[i % len(values)] for i in range(N)], dtype=dtype)


def frame(values, **others):
    """The column in question, in a table with a number and a text."""
    return pd.DataFrame({"it": values, "income": INCOME, "home": column("own", "rent")} | others)


def read(x, y=Y, s=S, weight=None, **settings):
    """The estimator that has read rows, these rows, and the labels of y = -1 and of y = +1."""
    model = FairLogisticRegression(rho=0, **settings)
    return model, *model._read_arrays(x, y, s, weight)


def in_units(x, **settings):
    """Names and values of what a model of X reads of X: by fit, and again by predict."""
    model, *_ = read(x, **settings)
    schema = model.schema_
    values = to_units(encoded(model._read_table(x, reset=False)[0], schema), schema)
    return dict(zip(schema.encoded_names, values.T.tolist(), strict=True))


HALF = [1.0, 0.0] * (N // 2)


@pytest.mark.parametrize(
    "values",
    [
        column(True, False),
        column(True, False, dtype="boolean"),
        column(True, False, dtype=object),
        column(True, False).astype("category"),
        column(True, False, dtype="bool[pyarrow]"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_booleans_are_two_categories(values):
    assert in_units(frame(values))["it=True"] == HALF
    assert in_units(frame(values)[["it", "income"]])["it=True"] == HALF
    assert in_units(frame(values), categories={"it": [False, True]})["it=True"] == HALF
    constant = pd.Series(True, range(N), dtype=values.dtype)
    assert values.dtype == object or in_units(frame(constant))["it=True"] == [1.0] * N


def test_fit_and_predict_may_have_booleans_of_two_dtypes():
    model = FairLogisticRegression(rho=0)
    model._read_arrays(frame(column(True, False)), Y, S)
    schema = model.schema_
    for dtype in ("category", "boolean", object, float):
        table, _ = model._read_table(frame(column(True, False).astype(dtype)), reset=False)
        assert encoded(table, schema)[:, 0].tolist() == HALF


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (column(1, 2, 3, dtype="Int64"), {"it": [1.0, 2.0, 3.0]}),
        (column(1.5, 2.5, dtype="Float64"), {"it": [1.5, 2.5]}),
        (column(1, 2.5, dtype=object), {"it": [1.0, 2.5]}),
        (column(1, 2, dtype="int64[pyarrow]"), {"it": [1.0, 2.0]}),
        (column(1, 2, 3).astype("category"), {"it=1": [1.0, 0.0], "it=3": [0.0, 0.0, 1.0]}),
        (column("u", "v", dtype="string"), {"it=v": [0.0, 1.0]}),
        (column("u", "v").astype("category"), {"it=v": [0.0, 1.0]}),
        (column("u", "v", dtype=object), {"it=v": [0.0, 1.0]}),
        (column(7, "v", dtype=object), {"it=v": [0.0, 1.0]}),
        (column(True, "v", dtype=object), {"it=v": [0.0, 1.0]}),
    ],
)
def test_columns_of_other_dtypes(values, expected):
    found = in_units(frame(values))
    for name, start in expected.items():
        assert found[name][: len(start)] == start


def test_an_array_of_objects_that_are_numbers():
    x = np.column_stack([INCOME, np.tile([0, 1], N // 2)]).astype(object)
    np.testing.assert_allclose(in_units(x)["x0"], INCOME)
    assert in_units(x, categories={1: [False, True]})["x1=True"] == [0.0, 1.0] * (N // 2)


def test_names_that_are_no_text():
    x = frame(column(1, 2)).set_axis([10, 20, 30], axis=1)
    assert set(in_units(x, bounds={20: (0, 100)})) == {"x10", "x20", "x30=rent"}


REFUSED = [
    (frame(np.nan), "X: column 'it': holds no number; drop it"),
    (frame(column(1.0, np.inf)), "X: column 'it', row 2: inf is not allowed .* must be a finite"),
    (frame(column(1.0, -np.inf))[["it"]], "X: column 'it', row 2: -inf is not allowed"),
    (
        frame(pd.date_range("2020", periods=N)),
        "X: column 'it': 12 dates, times or durations; drop it",
    ),
    (frame([[1], [2]] * (N // 2)), "X: column 'it': holds lists, and no number or text; drop it"),
    (frame(1.0).set_axis(["a", "b", "a"], axis=1), "column 'a' appears more than once; rename it"),
    (frame(1.0)[["it", "it"]], "column 'it' appears more than once; rename it"),
    (frame(1.0)[[]], r"X: of shape \(12, 0\); must have a row and a column"),
    (frame(1.0).to_numpy(), "could not convert string to float"),
    (frame(1.0).to_numpy().tolist(), "could not convert string to float"),
    (frame(1.0, **{"home=rent": 1.0}), "names clash: .'home=rent'.; rename a column"),
]


@pytest.mark.parametrize(("x", "complaint"), REFUSED)
def test_tables_are_refused_in_words_of_the_user(x, complaint):
    with pytest.raises(ValueError, match=complaint) as refused:
        read(x)
    assert "schema" not in str(refused.value)
    assert "Input should be" not in str(refused.value)  # pydantic's


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"categories": {"home": ["own"]}},
            "'home': categories: .* at least 2 items .*; got .'own'.",
        ),
        ({"categories": {"home": "own"}}, "column 'home': categories: .* at least 2 items"),
        ({"categories": {"home": ["own", None]}}, "column 'home': categories.1"),
        ({"categories": {"home": ["own", "own"]}}, "column 'home': categories: must not repeat"),
        ({"categories": ["home"]}, "categories: .'home'.; must be lists of values by column"),
        (
            {"bounds": {"income": (0, None)}},
            "column 'income': upper: .* a finite number; got nan",
        ),
        (
            {"bounds": {"income": (0, np.inf)}},
            "column 'income': upper: .* a finite number; got inf",
        ),
        ({"bounds": {"income": 5}}, "bounds: column 'income': 5; must be a pair"),
        ({"bounds": 5}, "bounds: 5; must be a pair"),
    ],
)
def test_settings_are_refused_in_words_of_the_user(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        read(frame(1.0), **settings)


def test_ids_are_no_categories():
    n = 10_001
    x = pd.DataFrame({"id": [f"n{i}" for i in range(n)]})
    with pytest.raises(
        InputError, match="X: column 'id': 10001 values in 10001 rows: identifiers, or"
    ):
        read(x, np.arange(n) % 2, np.arange(n) % 2)


def test_a_setting_is_named():
    with pytest.raises(InputError, match="^steps: .*; got 0"):
        Distiller(steps=0).fit_resample(frame(1.0), Y, sensitive_features=S)


@pytest.mark.parametrize("name", [None, "age"])
def test_a_continuous_sensitive_feature_is_refused(name):
    n = 8 * MAX_FEATURE_GROUPS
    x, y = pd.DataFrame({"income": np.arange(n) / n}), np.arange(n) % 2
    age = pd.Series(np.random.default_rng(0).normal(size=n), name=name)
    called = " 'age'" if name else ""
    said = f"sensitive_features{called}: 800 different values in 800 rows; at most 100 groups"
    with pytest.raises(InputError, match=f"^{said} .* bin numbers, such as by pandas.cut"):
        read(x, y, age)
    with pytest.raises(InputError, match="90 different values in 90 rows; .* bin numbers"):
        read(x[:90], y[:90], age[:90])
    assert len(read(x, y, pd.cut(age, 3))[0].groups_) == 3
    model, *_ = read(x, y, np.arange(n) % MAX_FEATURE_GROUPS)
    assert len(model.groups_) == MAX_FEATURE_GROUPS


@pytest.mark.parametrize(
    "dtype", ["boolean", "bool", object, "category", "Int64", "int64[pyarrow]"]
)
def test_labels_and_groups_of_all_dtypes(dtype):
    values = column(False, True) if "b" in str(dtype) else column(0, 1)
    model, rows, labels = read(frame(1.0), values.astype(dtype), values.astype(dtype))
    assert labels.tolist() == model.groups_.tolist() == values.tolist()[:2]
    assert rows.y.tolist() == [-1.0, 1.0] * (N // 2)


@pytest.mark.parametrize("argument", ["y", "s", "weight"])
@pytest.mark.parametrize("index", [range(1, N + 1), range(N)[::-1]], ids=["other", "permuted"])
def test_an_index_that_is_not_that_of_x_is_warned_of_and_rows_go_by_position(argument, index):
    name = {"s": "sensitive_features", "weight": "sample_weight"}.get(argument, argument)
    values = {"y": Y, "s": S, "weight": np.arange(1.0, N + 1)}
    given = values | {argument: pd.Series(values[argument], index=index)}
    with pytest.warns(UserWarning, match=f"^{name}: its index .* by position.*{name}.loc.X.index"):
        _, rows, _ = read(frame(1.0), **given)
    _, same, _ = read(frame(1.0), **values)
    for field, wanted in zip(rows, same, strict=True):
        np.testing.assert_array_equal(field, wanted)


@pytest.mark.parametrize("argument", ["y", "sensitive_features", "sample_weight"])
def test_the_warning_of_an_index_names_the_line_of_the_user(argument):
    given = {"y": Y, "sensitive_features": S, argument: pd.Series(range(N + 1))}  # one too many
    public = {"bounds": {"income": (0, 100)}, "categories": {"home": ["own", "rent"]}}
    x = frame(1.0).drop(columns="it")
    with (
        pytest.warns(UserWarning, match="its index") as found,
        pytest.raises(ValueError, match=argument),
    ):
        FairLogisticRegression(**public).fit(x, **given)
    (said,) = found
    assert said.filename == __file__


def test_the_same_index_and_none_are_no_warning():
    x = frame(1.0).set_index(pd.Index(range(5, 5 + N)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(x, pd.Series(Y, index=x.index), pd.Series(S, index=x.index), np.ones(N))
        read(x, Y.tolist(), pd.DataFrame({"s": S}, index=x.index))
        read(x[["income"]].to_numpy(), pd.Series(Y, index=x.index), S)


def test_clipped_values_are_warned_of_without_a_schema():
    with pytest.warns(
        UserWarning,
        match="^X: column 'income': 50.0% .* Are unit and bounds right. Correct bounds=$",
    ):
        read(frame(1.0), bounds={"income": (0, 50)})


def test_the_encoder_wants_the_columns_of_fit():
    table = frame(1.0, it=INCOME)
    encoder = encoder_of(table, read(table)[0].schema_)
    assert encoder.transform(table.iloc[:, ::-1]).shape == (N, 3)
    with pytest.raises(InputError, match="X: column 'home' is missing"):
        encoder.transform(table.drop(columns="home"))
    with pytest.raises(ValueError, match=r"Shape of passed values is \(3, 2\)"):
        encoder.transform(np.ones((3, 2)))


@pytest.mark.parametrize(
    ("bounds", "learned"),
    [
        ({"income": (0, 100), "it": (0, 10)}, ["home"]),
        ((0, 100), ["it", "home"]),
        ({}, ["it", "income", "home"]),
    ],
)
def test_what_is_learned_from_the_rows_is_what_no_argument_says(bounds, learned):
    """A column with bounds of its own is numbers, though these are written as text."""
    distiller = Distiller(bounds=bounds)
    with pytest.warns(UserWarning, match=re.escape(f"X: columns {learned}: bounds or categories")):
        distiller._read_arrays(frame(column("1", "2", "3"), sure=column(True, False)), Y, S)
    assert hasattr(distiller.schema_.columns["it"], "lower") == ("it" not in learned)
