"""What comes from outside: regular files alone, plain JSON, and models that take it literally."""

import importlib
import json
import os
import pkgutil
import re
import signal
from pathlib import Path

import pytest
from annotated_types import MaxLen
from builders import make_schema, make_table
from pydantic import BaseModel, ValidationError

import synthfair as sf
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.files import MAX_JSON_DIGITS, MAX_JSON_LEVELS, parse_json, read_document


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_file_that_is_not_regular_is_not_opened(tmp_path, make):
    make(tmp_path / "odd")
    with pytest.raises(InputError, match="odd: cannot read"):
        read_document(tmp_path / "odd")


COMMANDS = """\
server PIPE --schema s.json --test t.csv --output o
client --data PIPE --schema s.json --output o.parquet
client --data t.csv --schema s.json --sign PIPE.key --output o.parquet
report runs
answer PIPE --data t.csv --schema s.json --output o.json
secure add t.csv --task PIPE --key PIPE.key --most-epsilon 1 --output o
"""
"""In which PIPE is one, and so is runs/metrics.json."""


@pytest.fixture
def no_waiting():
    """Ends a test that waits for a pipe, as it would for ever."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_file_that_is_a_pipe_is_waited_for_by_no_command(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for name in ("PIPE", "PIPE.key", "runs/metrics.json"):
        os.mkfifo(name)
    (tmp_path / "s.json").write_text(make_schema().to_json())
    make_table(60).to_csv("t.csv", index=False)
    (tmp_path / "r.parquet").write_bytes(b"")
    assert main(command.split()) == 2
    assert re.search("(PIPE|metrics.json).*regular file", capsys.readouterr().err, re.DOTALL)


DEEP = "[" * MAX_JSON_LEVELS + "]" * MAX_JSON_LEVELS
LONG = "[1" + "0" * MAX_JSON_DIGITS + "]"
NOT_PLAIN = f"[{DEEP}]", '{"a":' * 100_000, '{"a": 1, "a": 2}', "[NaN]", "[1e999]", LONG, b"\xff"


@pytest.mark.parametrize("text", NOT_PLAIN, ids=range(len(NOT_PLAIN)))
def test_json_that_is_not_plain_is_refused(text):
    with pytest.raises(InputError, match="^file: not JSON: "):
        parse_json(text, "file")


def below(model):
    """All that derive from a model."""
    for child in model.__subclasses__():
        yield child
        yield from below(child)


@pytest.fixture(scope="module")
def models():
    """All models of the package."""
    for module in pkgutil.walk_packages(sf.__path__, "synthfair."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed
                continue
    return [model for model in below(BaseModel) if model.__module__.startswith("synthfair.")]


def test_models_are_strict_and_take_no_longer_text(models):
    """The smallest bound of a text: a type's own would hide one that the field adds."""
    texts = 0
    for model in models:
        assert model.model_config["strict"], model
        for name, field in model.model_fields.items():
            bounds = [part.max_length for part in field.metadata if isinstance(part, MaxLen)]
            if field.annotation is str and bounds:
                texts += 1
                too_long = "a" * (min(bounds) + 1)
                with pytest.raises(ValidationError, match=f"(?m)^{field.alias or name}\n"):
                    model.model_validate_json(json.dumps({field.alias or name: too_long}))
    assert texts > 5
