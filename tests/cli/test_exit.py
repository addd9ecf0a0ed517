"""How commands end: exit codes, one line for each end, and early where an input is bad."""

import ast
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_schema, make_table

import synthfair.cli.releases
from synthfair.cli import DONE, EXIT_CODES, FAILED, INTERRUPTED, REFUSED, main
from synthfair.errors import InputError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, DONE, ""),
        (OSError(28, "No space left on device", "r.parquet"), FAILED,
         "error: r.parquet: No space left on device\n"),
        (InputError("schema.json: label: missing"), REFUSED,
         "error: schema.json: label: missing\n"),
        (InputError("r.parquet: exists; force = true overwrites it", "force", "k_min"), REFUSED,
         "error: r.parquet: exists; force = true overwrites it (--force) (--k-min)\n"),
        (EOFError(), REFUSED, "error: no release is made\n"),
        (KeyboardInterrupt(), INTERRUPTED, "interrupted\n"),
        (KeyboardInterrupt("the checkpoint holds step 5"), INTERRUPTED,
         "interrupted: the checkpoint holds step 5\n"),
    ],
)  # fmt: skip
def test_each_end_has_its_code_and_one_line(error, code, said, capsys, monkeypatch):
    def keygen():
        if error:
            raise error

    monkeypatch.setattr(synthfair.cli.releases, "keygen", keygen)
    assert main(["keygen"]) == code
    assert capsys.readouterr().err == said
    assert code in EXIT_CODES


CLIENT = "client --data d --schema s --output o"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "name a command"),
        ("clint", 'Unknown command "clint". Did you mean "client"'),
        ("split loanapp", "--output requires an argument"),
        ("split --output o", "TABLE requires an argument"),
        (f"{CLIENT} --steps many", "--steps: 'many' is not a whole number"),
        (f"{CLIENT} --steps 2.7", "--steps: '2.7' is not a whole number"),
        (f"{CLIENT} --stepps 3", "Unknown option: --stepps. Did you mean --steps?"),
        (f"{CLIENT} --penalty equal", '"equal" for --penalty. Choose from: "covariance"'),
        ("server --test", "--test requires at least 1"),
        ("gap", "name a command"),
        ("gap guess", 'Unknown command "guess"'),
    ],
)
def test_a_command_line_that_does_not_parse_is_refused(words, complaint, capsys):
    assert main(words.split()) == REFUSED
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert complaint in said


@pytest.mark.parametrize("module", ["synthfair", "synthfair.client", "synthfair.server"])
def test_ctrl_c_is_one_line_while_the_command_line_is_imported(module, monkeypatch, capsys):
    class Press:
        def find_spec(self, name, *_):
            if name == "synthfair.cli":
                signal.raise_signal(signal.SIGINT)

    for name in ("synthfair.cli", f"{module}.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Press(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name="__main__")
    assert (end.value.code, capsys.readouterr().err) == (INTERRUPTED, "interrupted\n")


PRESS = """
import os, signal
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGINT)
from synthfair.__main__ import script
script("split", "loanapp", "--output", "o")
"""


def test_ctrl_c_in_a_command_is_one_line_and_leaves_nothing_half_written(tmp_path):
    """It is pressed when a temporary file has its content."""
    done = subprocess.run(
        [sys.executable, "-c", PRESS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "interrupted\n")
    assert not [*tmp_path.rglob("*")]


EARLY = """
import sys
from synthfair.cli import main
for argv in {cases!r}:
    assert main(argv) == 2, argv
    heavy = {{'jax', 'jaxlib'}} & set(sys.modules)
    assert not heavy, argv
"""


def test_bad_inputs_are_refused_before_jax_is_imported(tmp_path, schema):
    (tmp_path / "schema.json").write_text(schema.to_json())
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.toml").write_text("stepps = 3")
    (tmp_path / "table.csv").write_text("town,paid\n")
    good, there = ["--schema", "schema.json"], ["--data", "table.csv"]
    to = ["--output", "new/r.parquet"]
    cases = {
        "bad.json: label: missing": ["client", *there, "--schema", "bad.json", *to],
        "no.json: cannot read": ["client", *there, "--schema", "no.json", *to],
        "no.csv: cannot read": ["client", "--data", "no.csv", *good, *to],
        "bad.toml: stepps: unknown": ["client", *there, *good, "--config", "bad.toml", *to],
        "no.key: cannot read": ["client", *there, *good, "--sign", "no.key", *to],
        "no.parquet: not a readable": ["server", "no.parquet", *good, *to],
        "needs --test": ["server", "--report", *good, *to],
        "'other': must be": ["compare", "other", *to],
    }
    done = subprocess.run(
        [sys.executable, "-c", EARLY.format(cases=list(cases.values()))],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for complaint in cases:
        assert complaint in done.stderr
    assert not (tmp_path / "new").exists()


def test_messages_name_arguments_and_not_flags():
    """They reach Python and the engine, too; what is only shown or run on a command line may."""
    package, found = Path(synthfair.__file__).parent, []
    command_lines = {"cli", "report", "deploy/check.py", "deploy/kit.py"}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if command_lines & {place.parts[0], str(place)}:
            continue
        tree = ast.parse(path.read_text())
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in texts and re.search(r"(^|[ (])--[a-z]", node.value):
                found.append(f"{place}:{node.lineno}: {node.value}")
    assert not found


@pytest.mark.parametrize(
    "words",
    [
        "client --data {0}/rows.csv --schema {0}/schema.json --output {0}/new/a/out.parquet",
        "server {0}/rows.csv --schema {0}/schema.json --output {0}/new/a",
        "train {0}/rows.csv --schema {0}/schema.json --output {0}/new/a --clients 900",
        "split {0}/rows.csv --schema {0}/schema.json --output {0}/new/a --clients 900",
        "evaluate --model {0}/rows.csv --data {0}/rows.csv --output {0}/new/a/m.json",
        "predict --model {0}/rows.csv --data {0}/rows.csv --output {0}/new/a/p.csv",
    ],
)
def test_a_refused_command_makes_no_folder(words, tmp_path, capsys):
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    make_table(20)[["age", "home"]].to_csv(tmp_path / "rows.csv", index=False)
    assert main(words.format(tmp_path).split()) == REFUSED
    assert "error:" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
