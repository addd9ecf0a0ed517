"""``predict`` on files and folders, in parts, and with explanations."""

import io

import numpy as np
import pandas as pd
import pytest
from builders import CERTAIN, fair_model, make_table, some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.data import tables

NOTE = 'a "quoted"\nnote, of two lines'
TABLE = make_table(n=50).assign(note=[NOTE] * 25 + ["plain"] * 25, who=[f"0{i}" for i in range(50)])
IGNORED = some_model().schema_.model_copy(update={"ignored": ("note", "who")})
MODEL = some_model().model_copy(update={"schema_": IGNORED})
INPUTS = tuple(name for name in MODEL.inputs if name != "town=b")
BLIND = MODEL.model_copy(update={
    "group_input": False, "inputs": INPUTS, "theta": MODEL.theta[:-2] + MODEL.theta[-1:]
})  # fmt: skip


@pytest.fixture
def predicted(tmp_path, monkeypatch, capsys):
    """A function that predicts, in parts of 7 rows, and returns the table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    sf.write_model(MODEL, "model.json")
    TABLE.to_csv("new.csv", index=False)
    TABLE.to_parquet("new.parquet", row_group_size=9)

    def predict(words):
        assert main(f"predict --model model.json --data {words}".split()) == 0
        return pd.read_csv(io.StringIO(capsys.readouterr().out), dtype={"who": str})

    return predict


@pytest.mark.parametrize("data", ["new.csv", "new.parquet", "."])
def test_predict_in_parts_gives_what_the_whole_gives(predicted, data):
    whole = sf.predict(MODEL, TABLE)
    expected = pd.concat([whole] * (2 if data == "." else 1), ignore_index=True)
    pd.testing.assert_frame_equal(predicted(data), expected)
    assert set(whole["decision"]) == {"no", "yes"}


@pytest.mark.parametrize("data", ["new.csv", "new.parquet"])
def test_predict_draws_coins_by_ids_in_any_part(predicted, data):
    model = fair_model().model_copy(update={"schema_": IGNORED})
    sf.write_model(model, "model.json")
    expected = sf.predict(model, TABLE, id_column="who")["decision"]
    assert list(predicted(f"{data} --id who")["decision"]) == list(expected)


@pytest.mark.parametrize("data", ["none.csv", "none.parquet"])
def test_predict_needs_no_groups_where_the_model_reads_none(predicted, data):
    """What stands there, if it is there, changes nothing, however the table is given."""
    sf.write_model(BLIND, "model.json")
    none = TABLE.drop(columns="town")
    expected = sf.predict(BLIND, none)
    for town in ("a", "elsewhere", None):
        pd.testing.assert_frame_equal(sf.predict(BLIND, TABLE.assign(town=town)), expected)
    none.to_csv("none.csv", index=False)
    none.to_parquet("none.parquet")
    pd.testing.assert_frame_equal(predicted(data), expected)
    rule = fair_model(**CERTAIN).decision
    decided = BLIND.model_copy(update={"decision": rule})
    x, s, _ = sf.encode(TABLE, IGNORED)
    expected = np.where(rule.decide(BLIND.scores(x, s), s), "yes", "no")
    for found in (sf.predict(decided, TABLE)["decision"], decided.predict(TABLE)):
        assert list(found) == list(expected)
    for model in (MODEL, decided):
        with pytest.raises(sf.InputError, match="'town'"):
            sf.predict(model, none)


@pytest.mark.filterwarnings("ignore:.*does not know")
@pytest.mark.parametrize("data", ["new.csv", "new.parquet"])
def test_predict_keeps_columns_as_they_are(predicted, data):
    found = predicted(f"{data} --keep who age")
    assert list(found) == ["who", "age", "score", "probability", "decision"]
    assert found["who"].tolist() == TABLE["who"].tolist()
    np.testing.assert_allclose(found["probability"], 1 / (1 + np.exp(-found["score"])))


def test_explanation_sums_to_the_score_from_the_reference(predicted):
    found = predicted("new.csv --explain --reference new.parquet")
    columns = [*MODEL.schema_.features, "town"]
    assert list(found)[4:] == [f"contribution of {name}" for name in columns]
    np.testing.assert_allclose(found.iloc[:, 3:].sum(axis=1), found["score"], atol=1e-12)
    np.testing.assert_allclose(found["reference"], found["score"].mean())
    middle = predicted("new.csv --explain")
    np.testing.assert_allclose(middle.iloc[:, 3:].sum(axis=1), found["score"], atol=1e-12)
    assert len(middle["reference"].unique()) == 1


@pytest.mark.parametrize(("words", "named"), [
    ("bad.parquet", "bad.parquet: column 'town', row 31: 'z'"),
    ("bad.parquet --id who", "'who', row 33: missing"), ("bad.csv --id who", "'who', row 33: miss"),
    ("new.csv --reference new.csv", "--reference"),
    ("new.csv --explain --reference empty.csv", "empty.csv: "), ("new.csv --keep none", "'none'"),
])  # fmt: skip
def test_predict_refuses_and_leaves_no_output(predicted, tmp_path, capsys, words, named):
    bad = TABLE.assign(town=["a"] * 30 + ["z"] * 20, who=TABLE["who"].where(TABLE.index != 32))
    bad.to_parquet("bad.parquet", row_group_size=7)
    bad.to_csv("bad.csv", index=False)
    TABLE.head(0).to_csv("empty.csv", index=False)
    assert main(f"predict --model model.json --output out.csv --data {words}".split()) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_values_beyond_the_bounds_are_told_once_by_column(predicted, capsys, command):
    """Incomes of a year where those of a month are meant: every decision changes."""
    months = TABLE.assign(income=TABLE["income"] * 12)
    months.to_csv("months.csv", index=False)
    beyond = (months["income"] > MODEL.schema_.columns["income"].upper).mean()
    assert main([command, "--model", "model.json", "--data", "months.csv"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(f"months.csv: column 'income': {beyond:.1%}") == 1
