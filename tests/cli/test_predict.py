"""``predict`` on files and folders, and with explanations."""

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from builders import CERTAIN, fair_model, make_table, some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.data import tables
from synthfair.postprocess import GroupDecision

TABLE = make_table(n=50).assign(note=['a "quoted"\nnote, of two lines'] * 25 + ["plain"] * 25)
MODEL = some_model().model_copy(
    update={"schema_": some_model().schema_.model_copy(update={"ignored": ("note",)})}
)

BLIND = MODEL.model_copy(
    update={
        "group_input": False,
        "inputs": tuple(name for name in MODEL.inputs if name != "town=b"),
        "theta": MODEL.theta[:-2] + MODEL.theta[-1:],
    }
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sf.write_model(MODEL, tmp_path / "model.json")
    TABLE.to_csv("new.csv", index=False)
    TABLE.to_parquet("new.parquet")
    return tmp_path


def predict(*flags):
    return main(["predict", "--model", "model.json", *flags])


@pytest.mark.parametrize("data", ["new.csv", "new.parquet", "."])
def test_parts_give_what_the_whole_gives(folder, monkeypatch, capsys, data):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    assert predict("--data", data) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    once = sf.predict(MODEL, TABLE)
    expected = pd.concat([once] * (2 if data == "." else 1), ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)


def test_ids_may_be_ignored_columns_in_any_part(folder, monkeypatch, capsys):
    sf.write_model(fair_model(), folder / "model.json")
    table = make_table(n=40).assign(who=[f"{i:03d}" for i in range(40)])
    schema = fair_model().schema_.model_copy(update={"ignored": ("who",)})
    sf.write_model(fair_model().model_copy(update={"schema_": schema}), folder / "model.json")
    expected = sf.predict(fair_model(), table, id_column="who")["decision"]
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    table.to_csv("who.csv", index=False)
    table.to_parquet("who.parquet", row_group_size=9)
    for data in ("who.csv", "who.parquet"):
        assert predict("--data", data, "--id", "who") == 0
        found = pd.read_csv(io.StringIO(capsys.readouterr().out))
        assert list(found["decision"]) == list(expected)


def test_rows_are_counted_over_parts(folder, monkeypatch, capsys):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    bad = TABLE.drop(columns="note").assign(town=["a"] * 30 + ["z"] + ["b"] * 19)
    bad.to_parquet("bad.parquet", row_group_size=7)
    assert predict("--data", "bad.parquet", "--output", "out.csv") == 2
    assert "bad.parquet: column 'town', row 31: 'z' is not" in capsys.readouterr().err
    assert not (folder / "out.csv").exists()


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    pd.concat([TABLE.drop(columns="note")] * 2000).to_csv("long.csv", index=False)
    command = f"{sys.executable} -m synthfair predict --model model.json --data"
    pipe = f"set -o pipefail; {command} long.csv | head -n 2"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("data", ["none.csv", "none.parquet"])
def test_a_model_that_does_not_read_the_group_needs_no_column_of_it(folder, capsys, data):
    """What stands there, if it is there, changes nothing, however the table is given."""
    sf.write_model(BLIND, "model.json")
    expected, none = sf.predict(BLIND, TABLE, reference=BLIND.middle), TABLE.drop(columns="town")
    for town in ("a", "b", "elsewhere", None):
        for table in (none, TABLE.assign(town=town)):
            found = sf.predict(BLIND, table, reference=BLIND.middle)
            pd.testing.assert_frame_equal(found, expected)
            assert (BLIND.predict(table) == expected["decision"]).all()
    none.to_csv("none.csv", index=False)
    none.to_parquet("none.parquet")
    assert predict("--data", data, "--explain", "--reference", "none.csv") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(found["score"], expected["score"])
    assert "contribution of town" not in found


def test_a_model_that_needs_the_group_says_so():
    none = TABLE.drop(columns="town")
    for model in (MODEL, BLIND.model_copy(update={"decision": GroupDecision(**CERTAIN)})):
        for ask in (model.predict, lambda table, model=model: sf.predict(model, table)):
            with pytest.raises(sf.InputError, match="^table: column 'town' is missing"):
                ask(none)
    assert ("reads town" in repr(MODEL), "reads town" in repr(BLIND)) == (True, False)


class TestExplain:
    def test_columns_and_reference_sum_to_the_score(self, folder, capsys):
        assert predict("--data", "new.csv", "--explain") == 0
        found = pd.read_csv(io.StringIO(capsys.readouterr().out))
        columns = ["income", "age", "home", "town"]
        assert list(found)[3:] == ["reference", *(f"contribution of {name}" for name in columns)]
        np.testing.assert_allclose(found.iloc[:, 3:].sum(axis=1), found["score"], atol=1e-12)
        assert (found["reference"] == found["reference"][0]).all()

    def test_the_mean_of_a_table_can_be_the_reference(self, folder, monkeypatch, capsys):
        monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
        TABLE.drop(columns="paid").to_parquet("past.parquet", row_group_size=9)
        assert predict("--data", "new.csv", "--explain", "--reference", "past.parquet") == 0
        found = pd.read_csv(io.StringIO(capsys.readouterr().out))
        assert found["reference"][0] == pytest.approx(found["score"].mean())
        assert found["contribution of home"].mean() == pytest.approx(0)
        assert found["contribution of home"].std() > 0

    def test_a_reference_needs_explain(self, folder, capsys):
        assert predict("--data", "new.csv", "--reference", "new.csv") == 2
        assert "--reference: is for --explain" in capsys.readouterr().err

    def test_a_reference_without_rows(self, folder, capsys):
        TABLE.head(0).to_csv("none.csv", index=False)
        assert predict("--data", "new.csv", "--explain", "--reference", "none.csv") == 2
        assert "none.csv: has no rows" in capsys.readouterr().err


# Tables of people


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("chunk", [7, 1000])
def test_values_beyond_the_bounds_are_told_by_column(folder, monkeypatch, capsys, chunk):
    """Incomes of a year where those of a month are meant: every decision changes."""
    monkeypatch.setattr(tables, "CHUNK_ROWS", chunk)
    months = TABLE.assign(income=TABLE["income"] * 12)
    months.to_csv("months.csv", index=False)
    beyond = (months["income"] > MODEL.schema_.columns["income"].upper).mean()
    for command in ("predict", "evaluate"):
        argv = [command, "--model", "model.json", "--data", "months.csv"]
        assert main(argv) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert said.count("were clipped to them") == 1
        assert (
            f"warning: months.csv: column 'income': {beyond:.1%} of the values lie outside" in said
        )
    with pytest.warns(UserWarning, match="table: column 'income'"):
        sf.predict(MODEL, months)
    with pytest.warns(UserWarning, match="column 'income'"):
        sf.evaluate(MODEL, months.drop(columns="paid"), sf.ServerConfig(resamples=5))


@pytest.mark.filterwarnings("always")
def test_columns_of_tomorrow_are_left_alone_and_some_carried_over(folder, capsys):
    more = TABLE.assign(case=[f"0{i}" for i in range(50)], score=1)
    more.to_csv("more.csv", index=False)
    more.to_parquet("more.parquet")
    for name in ("more.csv", "more.parquet"):
        argv = "--data", name, "--keep", "case", "age"
        assert predict(*argv) == 0
        said = capsys.readouterr()
        assert "the schema does not know are left alone: score" in " ".join(said.err.split())
        found = pd.read_csv(io.StringIO(said.out), dtype={"case": str})
        assert list(found) == ["case", "age", "score", "probability", "decision"]
        assert found["case"].tolist() == more["case"].tolist()
        np.testing.assert_allclose(found["probability"], 1 / (1 + np.exp(-found["score"])))
        assert predict("--data", name, "--keep", "score") == 2
        assert "column to keep 'score': is written already" in capsys.readouterr().err
        assert predict("--data", name, "--keep", "none") == 2
        assert "column to keep 'none': the table has no such column" in capsys.readouterr().err


def test_a_decision_is_a_label_or_positive_or_negative():
    schema = MODEL.schema_
    paid = schema.columns["paid"].model_copy(update={"categories": ("no", "later", "yes")})
    several = schema.model_copy(update={"columns": {**schema.columns, "paid": paid}})
    found = sf.predict(MODEL.model_copy(update={"schema_": several}), TABLE)
    assert set(found["decision"]) == {"negative", "yes"}
    assert set(sf.predict(MODEL, TABLE)["decision"]) == {"no", "yes"}
