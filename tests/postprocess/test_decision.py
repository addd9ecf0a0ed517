"""Decisions by group in model files, in metrics, and row by row."""

import json

import numpy as np
import pytest
from builders import CERTAIN, MIXED, SCHEMA, checksum, fair_model, make_table, some_model
from score_rows import histogram_of

import synthfair as sf
from synthfair.errors import InputError
from synthfair.postprocess import GroupDecision
from synthfair.trained import predict, read_model, write_model

TABLE = make_table()
ROWS = sf.encode(TABLE, SCHEMA)
SCORES = some_model().scores(ROWS.x, ROWS.s)
NAMED = TABLE.assign(who=[f"{i:03d}" for i in range(120)])


def decided(table, model=None, **ids):
    return predict(model or fair_model(), table, **ids)["decision"].to_numpy()


@pytest.mark.parametrize("model", [some_model(), fair_model(), fair_model(**CERTAIN)])
def test_model_file_holds_a_decision_and_its_checksum_or_nothing_of_it(tmp_path, model):
    write_model(model, tmp_path / "m.json")
    assert read_model(tmp_path / "m.json") == model
    body = json.loads((tmp_path / "m.json").read_text())
    assert ("decision" in body) == (body["sha256"] != some_model().sha256)
    assert body["sha256"] == model.sha256 == checksum(body)


@pytest.mark.parametrize(("changes", "key"), [
    ({"steps": [[[2, 0.25]]] * 3}, "steps must be those of 2 groups"),
    ({"key": "../../etc"}, "decision.key"),
])  # fmt: skip
def test_model_file_with_a_bad_decision_is_refused_whatever_its_checksum(tmp_path, changes, key):
    write_model(fair_model(), tmp_path / "m.json")
    body = json.loads((tmp_path / "m.json").read_text())
    body["decision"] |= changes
    (tmp_path / "m.json").write_text(json.dumps(body | {"sha256": checksum(body)}))
    with pytest.raises(InputError, match=key):
        read_model(tmp_path / "m.json")


def test_histogram_of_another_model_is_refused():
    own = {"schema_hash": SCHEMA.hash, "model": some_model().sha256, "groups": ("a", "b")}
    some_model().require_counted(histogram_of(SCORES, ROWS.s, ROWS.y, **own))
    for key, other in (("schema_hash", "2" * 64), ("model", "2" * 64), ("groups", ("b", "a"))):
        with pytest.raises(InputError, match=key):
            some_model().require_counted(histogram_of(SCORES, ROWS.s, ROWS.y, **own | {key: other}))


def test_evaluate_takes_the_mean_over_the_coins_of_the_decision():
    chance = GroupDecision(**MIXED).probabilities(SCORES, ROWS.s)
    found = sf.evaluate(fair_model(), {"a": TABLE, "b": TABLE}, sf.ServerConfig(resamples=5))
    expected = np.where(ROWS.y > 0, chance, 1 - chance).mean()
    assert found.overall["accuracy"].value == pytest.approx(expected)


def test_predict_draws_by_id_in_any_order_and_company():
    found = decided(NAMED, id_column="who")
    draws = GroupDecision(**MIXED).decide(SCORES, ROWS.s, NAMED["who"])
    np.testing.assert_array_equal(found, np.where(draws, "yes", "no"))
    order = np.random.default_rng(0).permutation(120)[:50]
    assert (decided(NAMED.iloc[order], id_column="who") == found[order]).all()


@pytest.mark.parametrize(("column", "said"), [
    ("income", "'income'"), ("nobody", "'nobody'"), ("who", "'who', row 3"), (None, "id"),
])  # fmt: skip
def test_predict_with_bad_ids_is_refused(column, said):
    table = make_table(n=4).assign(who=["a", "b", None, "d"])
    with pytest.raises(InputError, match=said):
        decided(table if column else table.drop(columns="who"), id_column=column)
