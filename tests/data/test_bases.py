"""Basis functions and interactions of a schema: encoded, back, and in everything that reads rows."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.preprocessing import SplineTransformer

import synthfair as sf
from synthfair.cli import main
from synthfair.data.bases import Spline, Steps
from synthfair.data.datasets import dataset_schema
from synthfair.data.encode import encode, encode_own, encode_records, expand
from synthfair.data.schema import Categorical, Numeric, parse_schema
from synthfair.errors import InputError
from synthfair.release.format import Release

KNOTS = (18.0, 25.0, 40.0, 90.0)
Z = np.linspace(0, 1, 41)


def additive(**more):
    """Splines of the age, which may be missing, steps of the income, and a product of two."""
    schema = make_schema()
    columns = dict(schema.columns)
    columns["age"] = columns["age"].model_copy(update={"basis": Spline(knots=KNOTS)})
    columns["income"] = columns["income"].model_copy(update={"basis": Steps(edges=(20, 50, 100))})
    changes = {"columns": columns, "interactions": (("age", "home"),), **more}
    return type(schema).model_validate(schema.model_dump() | changes)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_are_scikit_learns_but_for_the_first(degree):
    spline = Spline(knots=KNOTS, degree=degree)
    lower, upper = KNOTS[0], KNOTS[-1]
    knots = (np.array(KNOTS)[:, None] - lower) / (upper - lower)
    # scikit-learn extends knots beyond the ends; these meet there, so that inside both are splines
    # of one space: each of ours is a combination of theirs.
    theirs = SplineTransformer(knots=knots, degree=degree).fit_transform(Z[:, None])
    ours = spline.functions(Z, lower, upper)
    assert ours.shape[1] == len(KNOTS) + degree - 2 == len(spline.names("age"))
    _, residual, rank, _ = np.linalg.lstsq(theirs, ours, rcond=None)
    assert residual == pytest.approx(0, abs=1e-20)
    assert rank == ours.shape[1] + 1
    assert ours.min() >= 0
    assert ours.sum(axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_number_is_the_sum_of_its_splines_by_their_names(degree):
    """The mean of its inner knots is where a function stands (Greville): lines stay lines."""
    spline = Spline(knots=KNOTS, degree=degree)
    at = np.array([float(name.removeprefix("age~")) for name in spline.names("age")])
    values = spline.functions(Z, KNOTS[0], KNOTS[-1]) @ (at - KNOTS[0])
    np.testing.assert_allclose(values, Z * (KNOTS[-1] - KNOTS[0]), rtol=1e-5, atol=1e-9)


def test_known_rows():
    rows = pd.DataFrame(
        {
            "income": ["250", "20", "19.99"],
            "age": [None, "18", "90"],
            "home": ["rent", "own", None],
            "town": ["b", "a", "a"],
            "paid": ["yes", "no", "no"],
        }
    )
    schema = additive()
    names = list(schema.encoded_names)
    x = pd.DataFrame(encode(rows, schema).x, columns=names)
    assert x[["income>=20", "income>=50", "income>=100"]].to_numpy().tolist() == [
        [1, 1, 1], [1, 0, 0], [0, 0, 0],
    ]  # fmt: skip
    ages = [name for name in names if name.startswith("age~") and " and " not in name]
    np.testing.assert_allclose(x[ages], [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], atol=1e-12)
    assert x["age is missing"].tolist() == [1, 0, 0]
    assert x["age is missing and home=rent"].tolist() == [1, 0, 0]
    assert x[f"{ages[-1]} and home is missing"].tolist() == pytest.approx([0, 0, 1])
    products = [name for name in names if " and " in name]
    assert len(products) == (len(ages) + 1) * 4
    assert schema.encoded_blocks["age and home"] == products == names[-len(products) :]


def test_plain_rows_and_records_are_expanded_to_the_same():
    schema, table = additive(), make_table(60)
    assert schema.plain == make_schema()
    wide, plain = encode(table, schema).x, encode(table, schema.plain).x
    np.testing.assert_array_equal(expand(plain, schema), wide)
    place = {"own": 0, "rent": 1, "other": 2}
    records = np.column_stack(
        [table["income"].clip(0, 100), table["age"], table["home"].map(place).fillna(3)]
    )
    np.testing.assert_array_equal(encode_records(records, schema), wide)
    with pytest.raises(InputError, match="plain schema"):
        expand(wide, schema)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"basis": {"kind": "spline", "knots": [0, 50]}}, "knots must begin with 18"),
        ({"basis": {"kind": "spline", "knots": [18, 50, 40, 90]}}, "must increase"),
        ({"basis": {"kind": "spline", "knots": [18, 90], "degree": 4}}, "degree"),
        ({"basis": {"kind": "steps", "edges": [18, 20]}}, "edges must be above 18"),
        ({"basis": {"kind": "steps", "edges": [20, 91]}}, "at most 90"),
        ({"basis": {"kind": "steps", "edges": []}}, "edges"),
        ({"basis": {"kind": "trees"}}, "basis"),
    ],
)
def test_bases_that_do_not_fit_are_refused_with_column_and_bound(column, words):
    document = make_schema().model_dump(mode="json", exclude_none=True)
    document["columns"]["age"] |= column
    with pytest.raises(InputError, match=words) as refused:
        parse_schema(json.dumps(document), source="s.json")
    assert "s.json" in str(refused.value)
    assert "age" in str(refused.value)


@pytest.mark.parametrize(
    "pairs", [[["age", "age"]], [["age", "town"]], [["age", "nothing"]], [["age", "home"], ["home", "age"]]]
)  # fmt: skip
def test_interactions_are_of_two_features_each_once(pairs):
    with pytest.raises(ValueError, match="interactions"):
        additive(interactions=pairs)


def test_names_of_interactions_are_no_columns_and_products_are_counted_before_they_are_named():
    schema = additive().model_dump()
    schema["columns"]["age and home"] = Numeric(lower=0, upper=1).model_dump()
    with pytest.raises(ValueError, match="names clash"):
        type(additive()).model_validate(schema)
    wide = Categorical(categories=tuple(range(4000)))
    columns = {**make_schema().columns, "u": wide, "v": wide}
    document = make_schema().model_dump() | {"columns": columns, "interactions": [("u", "v")]}
    with pytest.raises(ValueError, match="columns encode to 16008007 columns"):
        type(additive()).model_validate(document)


def test_a_schema_without_bases_has_the_hash_that_it_had():
    """Releases of today's schemas pool with those of yesterday."""
    assert "basis" not in make_schema().to_json()
    assert "interactions" not in make_schema().to_json()
    again = parse_schema(additive().to_json(), source="s.json")
    assert again == additive()
    assert again.hash != make_schema().hash


# What is made of such rows


def curved_table(n, seed=0):
    """Who is paid back is a matter of middle age: no line in the age says so."""
    table, rng = make_table(n), np.random.default_rng(seed)
    age = table["age"].fillna(40)
    likely = expit(6 * (np.abs(age - 54) < 15) - 3)
    return table.assign(paid=np.where(rng.random(n) < likely, "yes", "no"))


def accuracy(model, table):
    return sf.evaluate(model, {"t": table}, sf.ServerConfig(resamples=1)).overall["accuracy"].value


def test_surrogates_of_an_additive_schema_are_the_same_records_and_train_a_curve():
    table, test, schema = curved_table(1500), curved_table(1000, 1), additive()
    config, server = sf.SurrogateConfig(k_min=20), sf.ServerConfig(rho=0.0)
    made = sf.distill_table(table, schema, config).release
    assert made.header.names == tuple(schema.features)
    pooled = sf.pool_and_train({"a": made}, schema, server)
    line = sf.distill_table(table, make_schema(), config).release
    straight = sf.pool_and_train({"a": line}, make_schema(), server)
    assert accuracy(pooled, test) > accuracy(straight, test) + 0.1


def test_surrogates_of_the_plain_schema_train_models_with_any_bases(tmp_path):
    """Interactions that the server thinks of later need no new upload; fair releases have inputs."""
    table, plain = curved_table(1500), make_schema()
    config = sf.SurrogateConfig(k_min=5, seed=1)
    sf.write_release(sf.distill_table(table, plain, config).release, tmp_path / "a.parquet")
    schema = additive()
    assert schema.plain.hash == plain.hash
    releases = sf.read_releases([tmp_path / "a.parquet"], schema)
    model = sf.pool_and_train(releases, schema, sf.ServerConfig(rho=0.0))
    assert len(model.theta) == len(schema.encoded_names) + 1
    # Nor do those of a schema with bases, whose levels end at steps.
    alone = schema.model_copy(update={"interactions": None})
    sf.write_release(sf.distill_table(table, alone, config).release, tmp_path / "c.parquet")
    assert sf.read_releases([tmp_path / "c.parquet"], schema)
    fair = sf.distill_table(table, plain, sf.DistillConfig(steps=2)).release
    sf.write_release(fair, tmp_path / "b.parquet")
    with pytest.raises(InputError, match="made with another schema"):
        sf.read_releases([tmp_path / "b.parquet"], schema)


def test_a_fair_release_of_an_additive_schema_is_of_its_inputs():
    table, schema = curved_table(600), additive()
    config = sf.DistillConfig(n_synthetic=60, steps=200, rho_o=0.0, lambda_theta=1e-2)
    release = sf.distill_table(table, schema, config).release
    assert isinstance(release, Release)
    assert release.header.names == schema.encoded_names
    model = sf.pool_and_train({"a": release}, schema)
    assert accuracy(model, curved_table(1000, 1)) > 0.85


def test_estimators_have_splines_and_interactions():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(-1, 1, 800), "b": rng.uniform(-1, 1, 800)})
    middle, same = np.abs(table["a"]) < 0.5, table["a"] * table["b"] > 0
    plain = sf.sklearn.FairLogisticRegression(rho=0, C=1e3)
    for y, settings in ((middle, {"basis": "spline"}), (same, {"interactions": [("a", "b")]})):
        fitted = plain.set_params(basis=None, interactions=()).fit(table, y)
        assert fitted.score(table, y) < 0.7
        better = plain.set_params(**{"basis": None, "interactions": (), **settings}).fit(table, y)
        assert better.score(table, y) > 0.8
        assert better.coef_.shape[1] == len(better.encoded_names_)
    with pytest.raises(InputError, match="basis"):
        plain.set_params(basis="trees").fit(table, middle)


def test_estimators_take_unseen_categories_and_missing_values():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(0, 1, 300), "home": rng.choice(["x", "y", "z"], 300)})
    y = (table["a"] > 0.5) | (table["home"] == "x")
    some = table.mask(rng.random((300, 2)) < 0.1)
    model = sf.sklearn.FairLogisticRegression(rho=0).fit(some, y)
    assert {"a is missing", "home is missing"} <= set(model.encoded_names_)
    new = pd.DataFrame({"a": [0.2, np.nan], "home": ["never seen", None]})
    coefficients = dict(zip(model.encoded_names_, model.coef_[0], strict=True))
    expected = [
        0.2 * coefficients["a"] + coefficients["home is missing"],
        coefficients["a is missing"] + coefficients["home is missing"],
    ]
    with pytest.warns(UserWarning, match="'home': 1 of 2 values are none of its categories"):
        np.testing.assert_allclose(model.decision_function(new), expected + model.intercept_)
    # One row of missing values alone is a row, too; but fit learns from what is listed.
    assert model.predict(new.tail(1).assign(a=np.nan)).shape == (1,)
    with pytest.raises(InputError, match="'home'.*must be one of x, y"):
        model.set_params(categories={"home": ["x", "y"]}).fit(some, y)


@pytest.mark.parametrize(
    ("categories", "shares", "expected"),
    [(("ill", "well"), None, [0.5]), (("ill", "well"), (0.2, 0.8), [0.8]),
     (("a", "b", "c"), None, [1 / 3] * 3), (("a", "b", "c"), (0.5, 0.25, 0.25), [0.5, 0.25, 0.25])],
)  # fmt: skip
def test_an_unknown_category_counts_as_all_by_their_shares(categories, shares, expected):
    """And never as the first, which of two categories has no indicator."""
    columns = {**make_schema().columns, "home": Categorical(
        categories=categories, unknown="ignore", shares=shares)}  # fmt: skip
    schema = make_schema().model_copy(update={"columns": columns})
    table = make_table(2).assign(home=["castle", categories[0]])
    with pytest.warns(UserWarning, match="'home': 1 of 2 values are none of its categories"):
        x = pd.DataFrame(encode_own(table, schema, source="t").x, columns=schema.encoded_names)
    assert x.filter(like="home").iloc[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("shares", [(0.5,), (0.5, 0.5, 0.0), (2.0, 0.0)])
def test_shares_are_of_the_categories(shares):
    with pytest.raises(ValueError, match="shares"):
        Categorical(categories=("a", "b"), unknown="ignore", shares=shares)
    with pytest.raises(ValueError, match="shares"):
        Categorical(categories=("a", "b"), shares=(0.5, 0.5))


def test_an_unknown_category_counts_as_missing():
    columns = dict(make_schema().columns)
    columns["home"] = Categorical(
        categories=("own", "rent", "other"), unknown="ignore", missing="category"
    )
    schema = make_schema().model_copy(update={"columns": columns})
    table = make_table(4).assign(home=["castle", "own", None, "rent"])
    x = pd.DataFrame(encode(table, schema).x, columns=list(schema.encoded_names))
    assert x.filter(like="home").sum(axis=1).tolist() == [1, 1, 1, 1]
    assert x["home is missing"].tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="unlisted"):
        Categorical(categories=("a", "b"), unknown="ignore", unlisted="a")
    # A surrogate's records have no such value: it would count as another.
    with pytest.raises(InputError, match="'castle'.*must be one of"):
        sf.distill_table(table, schema, sf.SurrogateConfig())


def test_commands_take_additive_tables_by_name(tmp_path, capsys):
    argv = ["split", "loanapp_additive", "--clients", "2", "--output", str(tmp_path / "a")]
    assert main(argv) == 0
    schema = sf.read_schema(tmp_path / "a" / "schema.json")
    assert schema == dataset_schema("loanapp_additive")
    assert main([*argv[:1], "nursery_additive", *argv[2:]]) == 2
    assert "loanapp_additive, law_school_additive" in " ".join(capsys.readouterr().err.split())


def test_shipped_schemas_are_of_the_same_columns():
    for name in ("adult", "bank", "dutch", "law_school", "loanapp"):
        plain, wide = (dataset_schema(name + end) for end in ("", "_additive"))
        assert list(plain.columns) == list(wide.columns)
        assert (plain.label, plain.positive, plain.sensitive) == (
            wide.label,
            wide.positive,
            wide.sensitive,
        )
        for column, other in zip(plain.columns.values(), wide.columns.values(), strict=True):
            if isinstance(other, Numeric):
                assert (column.lower, column.upper) == (other.lower, other.upper)


@pytest.fixture(scope="module")
def fitted_and_saved(tmp_path_factory):
    """An estimator, and its model as a file has it."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("saved") / "model.json"
    table = pd.DataFrame({"a": rng.uniform(0, 1, 200), "b": rng.normal(size=200)})
    table = table.assign(ill=rng.choice(["ill", "well"], 200), home=rng.choice([*"xyz"], 200))
    table.loc[::9, "home"] = None
    y = np.where(table["a"] + (table["ill"] == "ill") + rng.normal(size=200) > 1, "yes", "no")
    s = rng.choice(["f", "m"], 200)
    model = sf.sklearn.FairLogisticRegression(rho=1.0, pos_label="no")
    model.fit(table, y, sensitive_features=s)
    sf.write_model(model.model_, path)
    return model, sf.read_model(path)


@pytest.mark.filterwarnings("ignore:(X|table)")
@given(
    rows=st.lists(
        st.tuples(
            st.floats(-5, 5), st.floats(-50, 50), st.sampled_from(["ill", "well", "WELL "]),
            st.sampled_from(["x", "y", "z", "castle", None]),
        ),
        min_size=1, max_size=5,
    ),
)  # fmt: skip
def test_an_estimator_decides_as_the_model_that_it_saves(fitted_and_saved, rows):
    """On every row: beyond the bounds, unseen, missing."""
    model, saved = fitted_and_saved
    table = pd.DataFrame(rows, columns=["a", "b", "ill", "home"])
    scored = sf.predict(saved, table.assign(sensitive_features="f"))
    decided = model.decision_function(table)
    np.testing.assert_allclose(decided, -scored["score"], atol=1e-9)  # of "yes", and of "no"
    certain = abs(decided) > 1e-9
    assert (model.predict(table) == scored["decision"])[certain].all()
    np.testing.assert_allclose(model.predict_proba(table)[:, 0], scored["probability"], atol=1e-9)
    pipeline = saved.to_sklearn()
    np.testing.assert_allclose(
        pipeline.predict_proba(table.assign(sensitive_features="f"))[:, 0],
        scored["probability"], atol=1e-9,
    )  # fmt: skip
