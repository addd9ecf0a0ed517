"""``predict`` on files, folders and streams, and with explanations."""

import csv
import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import make_table
from test_decision import CERTAIN, fair_model
from test_trained import some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.data import tables
from synthfair.data.tables import read_stream
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


def streamed(monkeypatch, text, *flags):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    return predict("--data", "-", *flags)


class InPieces:
    """A pipe into which so many bytes are written at a time."""

    def __init__(self, text, size):
        self.pieces = [text[i : i + size] for i in range(0, len(text), size)]

    def read1(self, _size):
        return self.pieces.pop(0) if self.pieces else b""

    def readline(self):
        line = b""
        while self.pieces and not line.endswith(b"\n"):
            begin, end, rest = self.pieces.pop(0).partition(b"\n")
            line += begin + end
            self.pieces[:0] = [rest] if rest else []
        return line


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_stream_is_the_table_however_it_arrives(size, line, last):
    text = TABLE.to_csv(index=False, lineterminator=line).encode()
    text = text if last else text.removesuffix(line.encode())
    found = list(read_stream(InPieces(text, size), MODEL.schema_, text=["note"]))
    assert (len(found) <= 2) == (size == 10**6)
    whole = pd.concat(found, ignore_index=True)
    pd.testing.assert_frame_equal(sf.predict(MODEL, whole), sf.predict(MODEL, TABLE))
    assert list(whole["note"]) == list(TABLE["note"])


@pytest.mark.parametrize("field", ['5" pipe', 'so-called "own"', '"quoted, here"', '""""'])
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_quote_within_a_field_delays_no_row(field, separator):
    """It opens a field only as its first character; Arrow reads whole files so, too."""
    header, *rows = TABLE.drop(columns="note").to_csv(index=False, sep=separator).splitlines()
    lines = [f"{header}{separator}note", *(f"{row}{separator}{field}" for row in rows[:3])]
    arriving = InPieces(b"", 1)
    arriving.pieces = [f"{line}\n".encode() for line in lines]
    parts = read_stream(arriving, MODEL.schema_, text=["note"])
    told = [(part["note"].iloc[0], len(arriving.pieces)) for part in parts]
    said = next(csv.reader([field]))[0] if field.startswith('"') else field
    assert told == [(said, 2), (said, 1), (said, 0)]


def test_a_quote_that_is_never_closed_is_an_error_after_a_hundred_lines():
    lines = TABLE.drop(columns="note").to_csv(index=False).encode().splitlines(True)
    broken = b'1,20,"own,a,yes\n'
    arriving = InPieces(b"", 1)
    arriving.pieces = [lines[0], broken, *lines[1:] * 100]
    with pytest.raises(sf.InputError, match="a row has more than 100 lines; is a quote"):
        list(read_stream(arriving, MODEL.schema_))
    assert len(arriving.pieces) == 100 * (len(lines) - 1) - tables.MOST_LINES


def test_rows_are_scored_as_they_arrive():
    """The rows of a piece together, when its last one is whole."""
    header, *rows = TABLE.drop(columns="note").to_csv(index=False).encode().splitlines(True)
    arriving = InPieces(b"", 1)
    arriving.pieces = [header, rows[0], rows[1] + rows[2][:3], rows[2][3:]]
    parts = read_stream(arriving, MODEL.schema_)
    left = [(len(part), len(arriving.pieces)) for part in parts]
    assert left == [(1, 2), (2, 0)]


def test_a_stream_answers_before_more_is_sent(folder):
    """As another program would use it: a row in, its score out."""
    argv = [sys.executable, "-m", "synthfair", "predict", "--model", "model.json", "--data", "-"]
    header, *rows = TABLE.drop(columns="note").to_csv(index=False).splitlines(True)
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(header)
        expected = sf.predict(MODEL, TABLE)
        for row, score in zip(rows[:3], expected["score"], strict=False):
            process.stdin.write(row)
            said = process.stdout.readline()
            if said.startswith("score"):
                said = process.stdout.readline()
            assert float(said.split(",")[0]) == pytest.approx(score)
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("data", ["new.csv", "new.parquet", ".", "-"])
def test_parts_give_what_the_whole_gives(folder, monkeypatch, capsys, data):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    piped = io.TextIOWrapper(io.BytesIO((folder / "new.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
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
    assert streamed(monkeypatch, table.to_csv(index=False).encode(), "--id", "who") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(found["decision"]) == list(expected)


def test_rows_are_counted_over_parts(folder, monkeypatch, capsys):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    bad = TABLE.drop(columns="note").assign(town=["a"] * 30 + ["z"] + ["b"] * 19)
    bad.to_parquet("bad.parquet", row_group_size=7)
    assert predict("--data", "bad.parquet", "--output", "out.csv") == 2
    assert "bad.parquet: column 'town', row 31: 'z' is not" in capsys.readouterr().err
    assert not (folder / "out.csv").exists()
    pieces = InPieces(bad.to_csv(index=False).encode(), 100)
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": pieces}))
    assert predict("--data", "-") == 2
    said = capsys.readouterr()
    assert "standard input: column 'town', row 31: 'z'" in said.err
    assert 20 <= len(said.out.splitlines()) - 1 <= 30  # what came before is written
    pieces = InPieces(TABLE.to_csv(index=False).encode() + b"1,2\n", 100)
    with pytest.raises(sf.InputError, match=f"row {len(TABLE) + 1}: Expected 6 columns, got 2"):
        list(read_stream(pieces, MODEL.schema_))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "standard input: has no rows"),
        (b"income,age,home,town\n", "standard input: has no rows"),
        (b"income,age,town\n1,2,a\n", "column 'home' is missing"),
        (b"income,age,home\n1,20,own\n", "column 'town' is missing; the model reads it to decide"),
        (b"income,age,home,town\n\n2,20\n", "row 1: Expected 4 columns, got 2"),
        (b"income,income\n1,2\n", "column 'income' appears more than once"),
        (b"income,age,home,town\n1,20,\xff\xfe,a\n", "cannot read as CSV"),
        (b"PAR1\x00\x15\n", "cannot read as CSV or Parquet: its header"),
        ("income,age\n1,2\n".encode("utf-16"), "cannot read as CSV"),
        (b'income,age\n1,"' + b"x" * 3000, "is a quote not closed"),
    ],
)  # fmt: skip
def test_streams_that_are_refused(folder, monkeypatch, capsys, text, complaint):
    assert streamed(monkeypatch, text) == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert not said.out


def test_standard_input_that_is_closed(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert predict("--data", "-") == 2
    assert "standard input: is closed" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    pd.concat([TABLE.drop(columns="note")] * 2000).to_csv("long.csv", index=False)
    command = f"{sys.executable} -m synthfair predict --model model.json --data"
    for data in ("long.csv", "- < long.csv"):
        pipe = f"set -o pipefail; {command} {data} | head -n 2"
        done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("data", ["none.csv", "none.parquet", "-"])
def test_a_model_that_does_not_read_the_group_needs_no_column_of_it(
    folder, monkeypatch, capsys, data
):
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
    piped = io.TextIOWrapper(io.BytesIO((folder / "none.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert predict("--data", data, "--explain", "--reference", "none.csv") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(found["score"], expected["score"])
    assert "contribution of town" not in found


def test_a_model_that_needs_the_group_says_why():
    none = TABLE.drop(columns="town")
    decision = GroupDecision(**CERTAIN)
    for model, why in (
        (MODEL, "reads it to decide"),
        (BLIND.model_copy(update={"decision": decision}), "decides by group"),
    ):
        for ask in (model.predict, lambda table, model=model: sf.predict(model, table)):
            with pytest.raises(
                sf.InputError, match=f"^table: column 'town' is missing; the model {why}$"
            ):
                ask(none)
    assert ("reads town" in repr(MODEL), "reads town" in repr(BLIND)) == (True, False)


class TestExplain:
    def test_columns_and_reference_sum_to_the_score(self, folder, capsys):
        assert predict("--data", "new.csv", "--explain", "--output", "-") == 0
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
    for command in (["predict"], ["evaluate"]):
        argv = [*command, "--model", "model.json", "--data", "months.csv"]
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
