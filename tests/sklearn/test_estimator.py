"""What the estimators read of arrays and tables of all dtypes, and what they refuse."""

import numpy as np
import pandas as pd
import pytest

from synthfair.errors import InputError
from synthfair.server.settings import ServerConfig
from synthfair.sklearn import FairLogisticRegression
from synthfair.sklearn.estimator import MAX_FEATURE_GROUPS, encoder_of

N = 12
Y = np.tile(["no", "yes"], N // 2)
S = np.repeat(["a", "b"], N // 2)
INCOME = np.linspace(10.0, 90.0, N)


def column(*values, dtype=None):
    """[N] the values over and over."""
    return pd.Series([values[i % len(values)] for i in range(N)], dtype=dtype)


def frame(values=1.0, **others):
    """The column in question, in a table with a number and a text."""
    return pd.DataFrame({"it": values, "income": INCOME, "home": column("own", "rent")} | others)


def fitted(x, y=Y, s=S, weight=None, **settings):
    model = FairLogisticRegression(**{"rho": 0} | settings)
    return model.fit(x, y, sensitive_features=s, sample_weight=weight)


def in_units(x, **settings):
    """Names and values of what a model of X reads of X."""
    schema = fitted(x, **settings).schema_
    values = np.asarray(encoder_of(x, schema).transform(x))
    return dict(zip(schema.encoded_names, values.T.tolist(), strict=True))


@pytest.mark.parametrize("dtype", ["bool", "boolean", object, "category", "bool[pyarrow]"])
def test_booleans_are_two_categories_of_any_dtype(dtype):
    values, half = column(True, False).astype(dtype), [1.0, 0.0] * (N // 2)
    assert in_units(frame(values))["it=True"] == half
    assert in_units(frame(values), categories={"it": [False, True]})["it=True"] == half
    model = fitted(frame(column(True, False)))
    expected = model.decision_function(frame(column(True, False)))
    for later in (values, values.astype(float)):
        np.testing.assert_array_equal(model.decision_function(frame(later)), expected)


@pytest.mark.parametrize(("values", "name", "start"), [
    (column(1, 2, 3, dtype="Int64"), "it", [1.0, 2.0, 3.0]),
    (column(1, 2.5, dtype=object), "it", [1.0, 2.5]),
    (column(1, 2, dtype="int64[pyarrow]"), "it", [1.0, 2.0]),
    (column(1, 2, 3).astype("category"), "it=3", [0.0, 0.0, 1.0]),
    (column("u", "v", dtype="string"), "it=v", [0.0, 1.0]),
    (column("u", "v").astype("category"), "it=v", [0.0, 1.0]),
    (column(7, "v", dtype=object), "it=v", [0.0, 1.0]),
])  # fmt: skip
def test_columns_of_other_dtypes_are_numbers_or_categories(values, name, start):
    assert in_units(frame(values))[name][: len(start)] == start


def test_columns_without_text_names_are_called_as_by_scikit_learn():
    x = frame(column(1, 2)).set_axis([10, 20, 30], axis=1)
    assert set(in_units(x, bounds={20: (0, 100)})) == {"x10", "x20", "x30=rent"}
    codes = np.column_stack([INCOME, np.arange(N) % 3]).astype(object)
    assert set(in_units(codes, categories={1: [0, 1, 2]})) == {"x0", "x1=0", "x1=1", "x1=2"}


@pytest.mark.parametrize("dtype", ["boolean", object, "category", "int64[pyarrow]"])
def test_labels_and_groups_may_have_any_dtype(dtype):
    values = column(False, True) if "b" in str(dtype) else column(0, 1)
    model = fitted(frame(), values.astype(dtype), values.astype(dtype))
    assert model.classes_.tolist() == model.groups_.tolist() == values.tolist()[:2]


ROUND = np.tile(["a", "b"], N // 2)

REFUSED = [
    ("no number", {"x": frame(np.nan)}, "'it'"),
    ("infinite", {"x": frame(column(1.0, -np.inf))}, "'it', row 2: -inf"),
    ("constant text", {"x": frame("own")}, "'it': holds only 'own'"),
    ("name twice", {"x": frame().set_axis(["a", "b", "a"], axis=1)}, "'a'"),
    ("name of a category", {"x": frame(**{"home=rent": 1.0})}, "'home=rent'"),
    ("negative weight", {"weight": np.arange(N) - 1.0}, "[Nn]egative"),
    ("missing label", {"y": np.where(np.arange(N) == 3, None, Y)}, "y, row 4"),
    ("no groups", {"s": None, "rho": 1.0}, "sensitive_features: None"),
    ("name of the label", {"x": frame(y=1.0)}, "'y'"),
    ("few groups", {"s": S[:5]}, r"sensitive_features: of shape \(5,\)"),
    ("missing group", {"s": np.where(S == "a", None, S)}, "sensitive_features, row 1"),
    ("one group", {"s": np.full(N, "a")}, "one group, 'a'"),
    ("nothing compared", {"s": ROUND, "rho": 1.0, "notion": "equal_opportunity",
                          "pos_label": "yes"}, "equal_opportunity"),
    ("pos_label", {"pos_label": "granted"}, "pos_label: 'granted'"),
    ("bounds of none", {"bounds": {"age": (0, 1)}}, "bounds: .*'age'"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "given", "named"), REFUSED)
def test_estimator_refuses_by_argument_column_or_row(case, given, named):
    with pytest.raises(ValueError, match=named):
        fitted(**{"x": frame()} | given)


def test_settings_of_fairness_are_all_asked_for():
    given = {"max_gap": 0.1, "notion": "equal_opportunity", "penalty": "selection_rate",
             "temperature": 2.0}  # fmt: skip
    asked = FairLogisticRegression(**given, groups_by=[1, "b x c"])._fairness(C=2.0)
    by = "sensitive_features: 1", "sensitive_features: b x sensitive_features: c"
    assert asked == ServerConfig(**given, groups_by=by, C=2.0)


def test_groups_are_at_most_100_of_two_rows_or_more():
    n = 2 * MAX_FEATURE_GROUPS
    x, y = pd.DataFrame({"income": np.arange(n + 2) / n}), np.arange(n + 2) % 2
    assert len(fitted(x[:n], y[:n], np.arange(n) // 2).groups_) == MAX_FEATURE_GROUPS
    with pytest.raises(InputError, match="sensitive_features: 101 different values in 202 rows"):
        fitted(x, y, np.arange(n + 2) // 2)
    with pytest.raises(InputError, match="'age': 90 different values in 90 rows"):
        fitted(x[:90], y[:90], pd.Series(np.arange(90.0), name="age"))


@pytest.mark.parametrize("argument", ["y", "s", "weight"])
def test_index_unlike_that_of_x_warns_at_the_users_line_and_rows_go_by_position(argument):
    values = {"y": Y, "s": S, "weight": np.arange(1.0, N + 1)}
    given = values | {argument: pd.Series(values[argument], index=range(N)[::-1])}
    name = {"s": "sensitive_features", "weight": "sample_weight"}.get(argument, argument)
    with pytest.warns(UserWarning, match=f"^{name}: its index") as warned:
        model = fitted(frame(), rho=1.0, **given)
    assert warned[0].filename == __file__
    np.testing.assert_array_equal(model.coef_, fitted(frame(), rho=1.0, **values).coef_)


def test_index_that_is_that_of_x_or_none_is_silent():
    x = frame().set_index(pd.Index(range(5, 5 + N)))
    y, s = (pd.DataFrame({"it": values}, index=x.index) for values in (Y, S))
    assert (fitted(x, y, s).coef_ == fitted(x, Y.tolist(), s, np.ones(N)).coef_).all()


def test_values_beyond_the_bounds_are_warned_of_by_column():
    with pytest.warns(UserWarning, match="^X: column 'income': 50.0%"):
        fitted(frame(), bounds={"income": (0, 50)})
