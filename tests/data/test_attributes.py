"""Several sensitive attributes: groups are their combinations, or those of each by itself."""

import json

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, with_column

import synthfair as sf
from synthfair.cli import main
from synthfair.data.draft import draft_document
from synthfair.data.encode import encode, records_table
from synthfair.data.schema import parse_schema
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.metrics import Scored
from synthfair.server.pooling import compared_groupings
from synthfair.surrogate.fair import WeightedTable

BOTH = ["town", "home"]
SCHEMA = with_column(make_schema(), "home", missing="refuse").with_sensitive(BOTH)
TABLE = make_table(600).assign(home=lambda t: t["home"].fillna("rent"))
ROWS = encode(TABLE, SCHEMA)
COLUMNS = {"town": ["town"], "home": ["home"], "town x home": BOTH}
X, Y = TABLE[["income", "age"]], TABLE["paid"] == "yes"


def gap_of(decided, columns):
    """The largest difference of the shares of yes, as fairlearn has it."""
    return fl.demographic_parity_difference(Y, decided, sensitive_features=TABLE[columns])


def test_groups_are_combinations_in_the_order_of_the_columns():
    town, home = (0, 0, 0, 1, 1, 1), (0, 1, 2, 0, 1, 2)
    assert SCHEMA.groupings == {"town": town, "home": home, "town x home": (*range(6),)}
    expected = [f"{town} x {home}" for town, home in TABLE[BOTH].to_numpy()]
    assert np.array(SCHEMA.groups)[ROWS.s].tolist() == expected
    assert json.loads(SCHEMA.to_json())["sensitive"] == BOTH
    assert parse_schema(SCHEMA.to_json(), source="s") == SCHEMA
    roles = {"label": "paid", "positive": "yes", "sensitive": BOTH}
    assert draft_document(TABLE, "t", **roles)["sensitive"] == BOTH


def test_groups_with_few_rows_are_merged_by_the_first_attribute():
    rows = np.array([40, 10, 25, 9, 30, 8])
    groups = SCHEMA.compared(("town x home",), rows, least=30)["town x home"]
    assert groups.grouping == (0, 2, 2, 3, 1, 3)
    by_town = SCHEMA.compared(("town",), rows, least=30)["town"]
    assert by_town == ((0, 0, 0, 1, 1, 1), ("town=a", "town=b"))
    large = groups.with_rows(rows, 30)
    assert large.grouping == (0, 2, 2, -1, 1, -1)
    assert large.names == ("town x home=a x own", "town x home=b x rent", "town=a x other")
    assert groups.names == (*large.names, "town=b x other")
    with pytest.raises(sf.InputError, match="groups_by: 'age'"):
        SCHEMA.compared(("age",), [1] * 6, least=0)


def test_records_have_a_column_of_each_attribute():
    again = records_table(X.to_numpy(), ROWS.s, ROWS.y, SCHEMA)
    pd.testing.assert_frame_equal(again[list(TABLE)], TABLE, check_dtype=False)


@pytest.mark.parametrize("by", [None, ("town",), ("town", "home"), ("home", "town x home")])
def test_gap_that_is_reported_is_the_largest_of_those_asked_for(by):
    score = np.random.default_rng(0).normal(size=600) + 0.3 * ROWS.s
    scored, config = Scored(ROWS.y, score, ROWS.s, 6), sf.ServerConfig(resamples=2, groups_by=by)
    found = evaluate_scores({"all": scored}, config, schema=SCHEMA)
    gaps = {name: gap_of(score > 0, columns) for name, columns in COLUMNS.items()}
    wanted = max(gaps[name] for name in by or ("town x home",))
    assert abs(found.overall["spd"].value) == pytest.approx(wanted)
    assert abs(found.client_gaps["spd"]["all"].value) == pytest.approx(wanted)
    for name, gap in gaps.items():
        assert abs(found.groupings[name].spd.value) == pytest.approx(gap)
        assert sum(rates.n for rates in found.groupings[name].rates.values()) == 600


def test_gap_that_is_reported_leaves_out_combinations_with_few_rows():
    few = np.delete(np.arange(600), np.flatnonzero(ROWS.s == 5)[7:])
    y, s, score = ROWS.y[few], ROWS.s[few], np.random.default_rng(0).normal(size=len(few))
    score[s == 5] = 9.0
    rows, config = {"all": Scored(y, score, s, 6)}, sf.ServerConfig(resamples=2)
    found = evaluate_scores(rows, config, schema=SCHEMA).overall["spd"]
    assert found.value == pytest.approx(np.ptp([(score[s == g] > 0).mean() for g in range(5)]))


@pytest.mark.parametrize("by", [BOTH, None])
def test_gap_that_is_asked_for_is_met_by_the_server(by):
    config = sf.SurrogateConfig(k_min=5)
    releases = [sf.distill_table(TABLE.iloc[i::2], SCHEMA, config) for i in range(2)]
    model = sf.pool_and_train(releases, SCHEMA, sf.ServerConfig(max_gap=0.1, groups_by=by))
    table, weight = sf.pool_records(releases, SCHEMA)
    rows = encode(table, SCHEMA)
    selected = model.scores(rows.x, rows.s) > 0
    for name in by or ("town x home",):
        s = np.array(SCHEMA.groupings[name])[rows.s]
        rates = [np.average(selected[s == g], weights=weight[s == g]) for g in np.unique(s)]
        assert np.ptp(rates) <= 0.1 + 1e-9
    pipeline = model.to_sklearn()
    assert pipeline.predict(TABLE[["income", "age", *BOTH]]).tolist() == [*model.predict(TABLE)]


def test_groups_with_few_rows_are_not_compared_by_the_server():
    table = WeightedTable(*ROWS, np.where(ROWS.s == 4, 0.1, 1.0))
    found = compared_groupings(table, SCHEMA, sf.ServerConfig())
    assert found == (((0, 1, 2, 3, -1, 4),), ("town=b x other",))
    alone = WeightedTable(*ROWS, np.where(ROWS.s < 3, 0.0, 1.0))
    with pytest.raises(sf.InputError, match="'town': fewer than two have the 30 rows"):
        compared_groupings(alone, SCHEMA, sf.ServerConfig(groups_by=("town",)))


def test_commands_split_train_and_report_by_several(tmp_path):
    table, schema = str(tmp_path / "t.csv"), str(tmp_path / "schema.json")
    TABLE.to_csv(table, index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.with_sensitive("town").to_json())
    given = ["--schema", schema, "--force", "--output", str(tmp_path)]
    assert main(["split", table, *given, "--sensitive", *BOTH]) == 0
    assert sf.read_schema(schema) == SCHEMA
    surrogate = sf.distill_table(TABLE, SCHEMA, sf.SurrogateConfig(k_min=5)).release
    sf.write_release(surrogate, path := tmp_path / "r.parquet")
    assert main(["server", str(path), *given, "--test", table, "--groups-by", *BOTH]) == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["groups_by"] == BOTH


@pytest.mark.parametrize(("given", "by"), [
    (TABLE[BOTH], None), (TABLE[BOTH], BOTH), (TABLE[BOTH].to_numpy(), [0, 1]),
])  # fmt: skip
def test_estimator_compares_combinations_or_each_by_itself(given, by):
    model = sf.sklearn.FairLogisticRegression(max_gap=0.08, groups_by=by)
    model.fit(X, Y, sensitive_features=given)
    gaps = [gap_of(model.predict(X), columns) for columns in (BOTH if by else [BOTH])]
    assert model.gap_ == pytest.approx(max(gaps))
    assert max(gaps) <= 0.08
    assert len(model.groups_) == 6
