"""Basis functions and interactions: their values, and models of them that are curves."""

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, with_column
from sklearn.preprocessing import SplineTransformer

import synthfair as sf
from synthfair.data.bases import Spline, Steps
from synthfair.data.datasets import dataset_schema
from synthfair.data.encode import encode, encode_records, expand
from synthfair.data.schema import Categorical

PLAIN = make_schema()
KNOTS = (18.0, 25.0, 40.0, 90.0)
Z = np.linspace(0, 1, 41)
ADDITIVE = with_column(PLAIN, "income", basis=Steps(edges=(20.0, 50.0, 100.0)))
ADDITIVE = with_column(ADDITIVE, "age", basis=Spline(knots=KNOTS))
ADDITIVE = ADDITIVE.model_copy(update={"interactions": (("age", "home"),)})


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_are_scikit_learns_but_for_the_first(degree):
    spline = Spline(knots=KNOTS, degree=degree)
    knots = (np.array(KNOTS)[:, None] - 18) / (90 - 18)
    # scikit-learn extends knots beyond the ends; these meet there, so that inside both are splines
    # of one space: each of ours is a combination of theirs.
    theirs = SplineTransformer(knots=knots, degree=degree).fit_transform(Z[:, None])
    ours = spline.functions(Z, 18, 90)
    assert ours.shape[1] == len(KNOTS) + degree - 2 == len(spline.names("age"))
    _, residual, rank, _ = np.linalg.lstsq(theirs, ours, rcond=None)
    assert (residual.max() < 1e-20, rank) == (True, ours.shape[1] + 1)
    assert ours.min() >= 0
    assert ours.sum(axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_by_their_names_sum_to_the_number(degree):
    """The mean of its inner knots is where a function stands (Greville): lines stay lines."""
    spline = Spline(knots=KNOTS, degree=degree)
    at = np.array([float(name.removeprefix("age~")) for name in spline.names("age")])
    values = spline.functions(Z, 18, 90) @ (at - 18)
    np.testing.assert_allclose(values, Z * (90 - 18), rtol=1e-5, atol=1e-9)


def test_additive_rows_by_hand():
    rows = make_table(3).assign(
        income=["250", "20", "19.99"], age=[None, "18", "90"], home=["rent", "own", None]
    )
    names = list(ADDITIVE.encoded_names)
    x = pd.DataFrame(encode(rows, ADDITIVE).x, columns=names)
    steps = x[["income>=20", "income>=50", "income>=100"]]
    assert steps.to_numpy().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    ages, homes, products = (x[ADDITIVE.encoded_blocks[n]] for n in ("age", "home", "age and home"))
    wanted = [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]
    np.testing.assert_allclose(ages, wanted, atol=1e-12)
    assert [*products] == names[-5 * 4 :]
    both = ages.to_numpy()[:, :, None] * homes.to_numpy()[:, None]
    np.testing.assert_array_equal(products, both.reshape(3, -1))


def test_plain_rows_and_records_expand_to_the_additive_ones():
    table = make_table(60)
    assert ADDITIVE.plain == PLAIN
    wide, plain = encode(table, ADDITIVE).x, encode(table, PLAIN).x
    np.testing.assert_array_equal(expand(plain, ADDITIVE), wide)
    place = table["home"].map({"own": 0, "rent": 1, "other": 2}).fillna(3)
    records = np.column_stack([table["income"], table["age"], place])
    np.testing.assert_array_equal(encode_records(records, ADDITIVE), wide)
    with pytest.raises(sf.InputError, match="plain schema"):
        expand(wide, ADDITIVE)


@pytest.mark.parametrize("name", ["adult", "bank", "dutch", "law_school", "loanapp"])
def test_shipped_additive_schema_is_the_plain_one_with_bases(name):
    plain, wide = (dataset_schema(name + end) for end in ("", "_additive"))
    assert (plain.label, plain.positives, plain.groups) == (wide.label, wide.positives, wide.groups)
    assert list(wide.columns) == list(plain.columns)
    for column, other in zip(plain.columns.values(), wide.plain.columns.values(), strict=True):
        assert column == other or isinstance(other, Categorical)  # few numbers are codes


# What is made of such rows


@pytest.mark.parametrize("released", [PLAIN, ADDITIVE], ids=["plain", "additive"])
def test_surrogate_of_either_schema_trains_a_curve(released):
    """In the age, of which no line tells; bases that a server thinks of need no new upload."""
    table = make_table(1500)
    table = table.assign(paid=np.where(np.abs(table["age"].fillna(40) - 54) < 15, "yes", "no"))
    made = sf.distill_table(table, released, sf.SurrogateConfig(k_min=20)).release
    assert made.header.names == tuple(PLAIN.features)
    model = sf.pool_and_train([made], ADDITIVE, sf.ServerConfig(rho=0.0))
    assert (model.predict(table) == table["paid"]).mean() > 0.85


def test_estimator_has_splines_and_interactions():
    table = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (800, 2)), columns=["a", "b"])
    middle, same = np.abs(table["a"]) < 0.5, table["a"] * table["b"] > 0
    for y, settings in ((middle, {"basis": "spline"}), (same, {"interactions": [("a", "b")]})):
        line = sf.sklearn.FairLogisticRegression(rho=0).fit(table, y)
        curve = sf.sklearn.FairLogisticRegression(rho=0, C=1e3, **settings).fit(table, y)
        assert line.score(table, y) < 0.7
        assert curve.score(table, y) > 0.8
    with pytest.raises(sf.InputError, match="basis"):
        sf.sklearn.FairLogisticRegression(rho=0, basis="trees").fit(table, middle)
