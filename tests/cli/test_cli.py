"""How commands end: exit codes, one line for each end, early where an input is bad."""

import os
import subprocess
import sys

import pytest
from builders import SCHEMA, make_table, some_model, some_release
from report_runs import write_run

import synthfair as sf
import synthfair.cli.releases
from synthfair.cli import DONE, FAILED, INTERRUPTED, REFUSED, main
from synthfair.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rows, a schema, a model, a release, a run: inputs of every command."""
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("rows.csv", index=False)
    make_table().assign(town="z").to_csv("bad.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "bad.toml").write_text("stepps = 3")
    sf.write_model(some_model(), "model.json")
    sf.write_release(some_release(), "r.parquet")
    write_run(tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize(("error", "code", "said"), [
    (None, DONE, ""),
    (OSError(28, "No space left on device", "r.parquet"), FAILED, "error: r.parquet: No space"),
    (InputError("schema.json: label: missing"), REFUSED, "error: schema.json: label: missing"),
    (InputError("r: exists", "force", "k_min"), REFUSED, "error: r: exists (--force) (--k-min)"),
    (EOFError(), REFUSED, "error: no release"), (KeyboardInterrupt(), INTERRUPTED, "interrupted"),
    (KeyboardInterrupt("at step 5"), INTERRUPTED, "interrupted: at step 5"),
])  # fmt: skip
def test_end_has_its_code_and_one_line(error, code, said, capsys, monkeypatch):
    def keygen():
        if error:
            raise error

    monkeypatch.setattr(synthfair.cli.releases, "keygen", keygen)
    assert main(["keygen"]) == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert len(told.splitlines()) == bool(error)


CLIENT = "client --data d --schema s --output o"


@pytest.mark.parametrize(("words", "named"), [
    ("", "name a command"), ("clint", '"clint"'), ("split loanapp", "--output"),
    (f"{CLIENT} --steps 2.7", "--steps: '2.7'"), (f"{CLIENT} --stepps 3", "--stepps"),
    (f"{CLIENT} --penalty equal", '"equal" for --penalty'),
])  # fmt: skip
def test_words_that_do_not_parse_are_refused_in_a_line(words, named, capsys):
    assert main(words.split()) == REFUSED
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("error: ")
    assert named in told


def python(code, folder):
    """What a process of its own does with this code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


PRESS = """
import os, signal
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGINT)
from synthfair.__main__ import script
script("split", "loanapp", "--output", "o")
"""


def test_ctrl_c_in_a_command_leaves_nothing_half_written(tmp_path):
    """It is pressed when a temporary file has its content."""
    done = python(PRESS, tmp_path)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "interrupted\n")
    assert not [*tmp_path.rglob("*")]


RELEASE = "client --data rows.csv --schema schema.json --release surrogate --output new/r.parquet"
SERVER = "server r.parquet --schema schema.json --output new"
TRAIN = "train rows.csv --schema schema.json --output new"


@pytest.mark.parametrize(("words", "named"), [
    (RELEASE.replace("rows", "bad"), "bad.csv: column 'town', row 1"),
    (f"{SERVER} --test bad.csv", "bad.csv: column 'town', row 1"),
    (RELEASE.replace("schema.json", "rows.csv"), "rows.csv: not JSON"),
    (f"{RELEASE} --config bad.toml", "bad.toml: stepps"), (f"{RELEASE} --sign no.key", "no.key: "),
    (f"{SERVER} --report", "--report: needs --test"), (f"{RELEASE} --k-min -1", "flags: k_min"),
    (SERVER.replace("r.parquet", ""), "pool is empty"), (f"{TRAIN} --clients 900", "clients"),
])  # fmt: skip
def test_refusal_of_rows_or_numbers_makes_no_folder(words, named, folder, capsys):
    assert main(words.split()) == REFUSED
    assert named in capsys.readouterr().err
    assert not (folder / "new").exists()


@pytest.mark.parametrize(("words", "file"), [
    (RELEASE, "r.parquet"), (f"{SERVER} --test rows.csv", "model.json"),
    (f"{SERVER} --test rows.csv --report", "report.html"),
    (f"{SERVER} --test rows.csv --report", "report_plots/new-groups.svg"),
    (f"{TRAIN} --rounds 2", "model.json"),
    ("split rows.csv --schema schema.json --output new", "schema.json"),
    ("schema rows.csv --label paid --positive yes --sensitive town --output new/s", "s"),
    ("predict --model model.json --data rows.csv --output new/p", "p"),
    ("evaluate --model model.json --data rows.csv --output new/e", "e"),
    ("report run --output new/r.html", "r.html"), ("keygen --output new/north.key", "north.key"),
    ("gap plan --groups a b --epsilon 1 --clients 1000 --output new/gap.json", "gap.json"),
])  # fmt: skip
def test_output_that_exists_needs_force(words, file, folder, capsys):
    there = folder / "new" / file
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    before = sorted(folder.rglob("*"))
    assert main(words.split()) == REFUSED
    assert "--force" in capsys.readouterr().err
    assert there.read_text() == "mine"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["rows.csv", "schema.json", "settings.toml"])
def test_output_is_never_an_input_even_by_force(name, folder, capsys):
    (folder / "settings.toml").write_text("k_min = 20")
    before = (folder / name).read_bytes()
    words = RELEASE.replace("new/r.parquet", name) + " --config settings.toml --force"
    assert main(words.split()) == REFUSED
    assert "named twice" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize("stream", ["pipe", "stdout", "stderr"])
def test_files_are_written_whoever_reads_the_output(folder, monkeypatch, stream):
    """A pipe's reader may have ended; a stream may be closed, and is None then."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe, monkeypatch.context() as patch:
        name, value = ("stdout", pipe) if stream == "pipe" else (stream, None)
        patch.setattr(sys, name, value)
        assert (
            main(["evaluate", "--model", "model.json", "--data", "rows.csv", "--output", "e.json"])
            == 0
        )
    # Closing the pipe wrote what was left, as the end of a process does.
    assert (folder / "e.json").exists()
