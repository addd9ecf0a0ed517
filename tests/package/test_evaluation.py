import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, some_model

import synthfair as sf
from synthfair.data.schema import Categorical
from synthfair.errors import InputError
from synthfair.evaluation import (
    encode_tests,
    evaluate_scores,
    read_tests,
    rows_within,
    small_group_warnings,
)
from synthfair.fairness.metrics import Scored


def test_evaluation_overall_is_over_all_rows():
    tables = {"a": make_table(seed=1), "b": make_table(seed=2, n=60)}
    found = sf.evaluate(some_model(), tables, sf.ServerConfig(resamples=5))
    weights = np.array([120, 60]) / 180
    parts = [found.per_client[name].accuracy.value for name in ("a", "b")]
    assert found.n_test == 180
    assert found.overall["accuracy"].value == pytest.approx(weights @ parts)
    other = sf.evaluate(some_model(), tables, sf.ServerConfig(resamples=5, seed=1))
    assert found.covariance.value == other.covariance.value
    assert (found.covariance.low, found.seed) != (other.covariance.low, other.seed)


def test_evaluation_of_names_with_control_characters_is_refused():
    """A no-break space and a zero-width joiner are ordinary in names of groups and files."""
    table = make_table()
    names = ["non\u00a0binary", "\u200dtwo", ""]
    assert list(sf.evaluate(some_model(), dict.fromkeys(names, table)).per_client) == names
    with pytest.raises(InputError, match="control"):
        sf.evaluate(some_model(), {"a\x1b[2J": table})


def test_evaluation_counts_labels_by_group():
    rng = np.random.default_rng(3)
    y, s = rng.choice([-1.0, 1.0], 400), rng.integers(3, size=400)
    scored = {"all": Scored(y, rng.normal(size=400), s, 3)}
    found = evaluate_scores(scored, sf.ServerConfig(resamples=1), schema=make_schema(3))
    for group, counts in enumerate(found.rows["all"].values()):
        mine = y[s == group]
        assert counts == (np.sum(mine < 0), np.sum(mine > 0))


def rows_of(*groups):
    """Rows of groups with so many that are not selected and selected; a fifth has the label +1."""
    score = np.concatenate([np.repeat([-1.0, 1.0], group) for group in groups])
    s = np.repeat(np.arange(len(groups)), [sum(group) for group in groups])
    return Scored(np.where(np.arange(len(s)) % 5 == 0, 1.0, -1.0), score, s, len(groups))


@pytest.mark.parametrize(("least", "gap"), [(0, 0.75), (40, 0.75), (41, 0.25)])
def test_evaluation_leaves_out_small_groups_where_asked_and_names_them(least, gap):
    scored = {
        "x": rows_of((100, 100), (120, 40), (0, 40)),
        "y": rows_of((100, 100), (120, 40), (0, 0)),
    }
    config, schema = sf.ServerConfig(resamples=1, min_group_rows=least), make_schema(3)
    found = evaluate_scores(scored, config, schema=schema)
    assert (abs(found.spd.value), abs(found.client_gaps["spd"]["x"].value)) == (gap, gap)
    assert found.small_groups == {"town=c": (40, 8, 32)}
    assert (
        "town=c (40 rows: 8 with label yes, 32 with no)" in small_group_warnings(found, schema)[0]
    )


def test_evaluation_of_a_client_is_by_the_groupings_asked_for():
    home = Categorical(categories=("own", "rent"))
    columns = make_schema().columns | {"home": home}
    schema = make_schema().model_copy(update={"columns": columns}).with_sensitive(("town", "home"))
    config = sf.ServerConfig(resamples=1, groups_by=("town", "home"))
    scored = {
        n: rows_of(*[(50 + k * i, 90 - k * i) for i in range(4)]) for n, k in (("x", 5), ("y", 9))
    }
    both, alone = (
        evaluate_scores(some, config, schema=schema) for some in (scored, {"x": scored["x"]})
    )
    assert both.per_client["x"].spd == alone.spd
    assert alone.spd.value == pytest.approx(10 / 140)


NEED_LABELS = ("accuracy", "equal_opportunity_difference", "equalized_odds_difference")


@pytest.mark.filterwarnings("ignore:.*no label")
def test_rows_within_a_column_are_compared_by_value():
    tables = {"a": make_table(seed=1), "b": make_table(seed=2, n=600)}
    tables["a"].loc[5, "paid"] = None  # is left out
    schema = some_model().schema_
    encoded = encode_tests(tables, schema)
    found = sf.evaluate(some_model(), rows_within(encoded, tables, schema, "home"))
    whole = pd.concat(tables.values())
    for value, rows in whole.groupby(whole["home"].fillna("missing")):
        alone = sf.evaluate(some_model(), rows)
        assert found.per_client[f"home = {value}"].spd == alone.spd
    assert list(found.per_client) == [f"home = {v}" for v in ("missing", "other", "own", "rent")]
    coded = {n: tables[n].assign(zone=zone) for n, zone in (("a", 4), ("b", 4.0))}
    assert [*rows_within(encoded, coded, schema, "zone")] == ["zone = 4"]
    for column, reason in (("age", "values"), ("house", "home")):
        with pytest.raises(InputError, match=reason):
            rows_within(encoded, tables, schema, column)


def test_evaluation_without_labels_has_the_same_rates():
    tables = {"a": make_table(seed=1), "b": make_table(seed=2, n=60)}
    bare = {name: table.drop(columns="paid") for name, table in tables.items()}
    config = sf.ServerConfig(resamples=5)
    known, found = (sf.evaluate(some_model(), some, config) for some in (tables, bare))
    assert (known.labelled, found.labelled) == (True, False)
    for metrics, same in ((found, known), (found.per_client["b"], known.per_client["b"])):
        assert (metrics.spd, metrics.covariance) == (same.spd, same.covariance)
        assert np.isnan([getattr(metrics, name) for name in NEED_LABELS]).all()
    rates = [(r.n, r.selection_rate) for r in found.by_group.values()]
    assert rates == [(r.n, r.selection_rate) for r in known.by_group.values()]
    assert np.isnan([r[2:] for r in found.by_group.values()]).all()


def test_evaluation_without_labels_writes_nothing_of_them():
    tables, schema = {"a": make_table().drop(columns="paid")}, some_model().schema_
    found = sf.evaluate(some_model(), tables, sf.ServerConfig(min_group_rows=100))
    document = found.model_dump(mode="json")
    assert all(document[name]["value"] is None for name in NEED_LABELS)
    assert not {"rows", "constant_classifier"} & set(document)
    (warning,) = small_group_warnings(found, schema)
    assert "label" not in warning
    found = sf.evaluate(some_model(), tables)
    assert not small_group_warnings(found, schema)  # of labels, 0 rows are few


def test_evaluation_of_labels_in_some_tables_alone_is_refused():
    tables = {"a": make_table(), "b": make_table().drop(columns="paid")}
    with pytest.raises(InputError, match="b: .*paid"):
        sf.evaluate(some_model(), tables)


def test_tables_to_test_of_one_name_keep_their_paths(tmp_path, schema):
    paths = [tmp_path / folder / "test.csv" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        make_table().to_csv(path, index=False)
    assert list(read_tests(paths, schema)) == [str(path) for path in paths]
    assert list(read_tests(paths[:1], schema)) == ["test"]
    with pytest.raises(InputError, match="test.csv"):
        read_tests([paths[0], tmp_path / "b" / ".." / "a" / "test.csv"], schema)
