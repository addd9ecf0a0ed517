"""What comes from outside: regular files alone, plain JSON, and models that take it literally."""

import importlib
import json
import os
import pkgutil
import signal
import socket
from pathlib import Path

import pytest
from annotated_types import MaxLen
from builders import make_schema, make_table, some_model
from pydantic import BaseModel, ValidationError

import synthfair as sf
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.files import MAX_JSON_DIGITS, MAX_JSON_LEVELS, open_file, parse_json, read_document
from synthfair.secure.task import make_aggregator_keys


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_socket])
def test_only_regular_files_are_opened(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    make("odd")
    with pytest.raises(OSError, match="regular file|No such device"):
        open_file(tmp_path / "odd")
    with pytest.raises(InputError, match="odd: cannot read"):
        read_document(tmp_path / "odd")


def test_devices_are_not_opened_and_links_to_files_are(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="zero: cannot read: it must be a regular file"):
        read_document(tmp_path / "zero")
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link").symlink_to("real.json")
    assert read_document(tmp_path / "link") == {}


def test_files_are_read_where_the_system_cannot_open_without_waiting(tmp_path, monkeypatch):
    """As on Windows, which has no such flag."""
    monkeypatch.delattr(os, "O_NONBLOCK")
    (tmp_path / "real.json").write_text("{}")
    assert read_document(tmp_path / "real.json") == {}


COMMANDS = """\
server PIPE --schema s.json --test t.csv --output o
server r.parquet --schema PIPE --test t.csv --output o
server r.parquet --schema s.json --test t.csv --keys PIPE --output o
client --data PIPE --schema s.json --output o.parquet
client --data t.csv --schema s.json --config PIPE --output o.parquet
client --data t.csv --schema s.json --sign PIPE.key --output o.parquet
client --data t.csv --schema s.json --ledger PIPE --output o.parquet
inspect PIPE
predict --model PIPE --data t.csv
predict --model m.json --data PIPE
evaluate --model PIPE --data t.csv
evaluate --model m.json --data PIPE
thresholds PIPE --notion equalized_odds --model m.json --output o.json
thresholds PIPE --weights published --output w.json
train PIPE --schema s.json --method fedavg --output o
compare PIPE --schema s.json --sensitive town --output o
split PIPE --schema s.json --output o
schema PIPE --label paid --positive yes --sensitive town --output s2.json
report runs
ledger PIPE
gap aggregate PIPE t.csv
gap perturb PIPE --group a --value 1
answer PIPE --data t.csv --schema s.json --output o.json
secure add t.csv --task PIPE --key PIPE.key --most-epsilon 1 --output o
secure open t.csv --task PIPE --output o.json
deploy job PIPE --output o
"""
"""In which PIPE is one, and so is runs/metrics.json."""


@pytest.fixture
def no_waiting():
    """Stops a test that waits for a pipe, as it would for ever."""

    def stop(*_):
        raise TimeoutError("waits for a pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_no_command_waits_for_a_pipe(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for name in ("PIPE", "PIPE.key", "runs/metrics.json"):
        os.mkfifo(name)
    (tmp_path / "s.json").write_text(make_schema().to_json())
    make_table(60).to_csv("t.csv", index=False)
    (tmp_path / "r.parquet").write_bytes(b"")
    sf.write_model(some_model(), "m.json")
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert "PIPE" in said or "runs/metrics.json" in said
    assert "regular file" in said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * (MAX_JSON_LEVELS + 1) + "]" * (MAX_JSON_LEVELS + 1), "more than 100 levels"),
        ("[" * 900 + "]" * 900, "more than 100 levels"),
        ('{"a":' * 100_000, "recursion"),
        ('{"a": 1, "a": 2}', "key 'a' appears more than once"),
        ("[NaN]", "NaN is not a finite number"),
        ("[-Infinity]", "-Infinity is not a finite number"),
        ("[1e999]", "1e999 is not a finite number"),
        ("[1" + "0" * MAX_JSON_DIGITS + "]", "more than 40 digits"),
        ("[1" + "0" * 100_000 + "]", "more than 40 digits"),
        (b"\xff", "codec"),
    ],
)
def test_what_is_no_plain_json_is_refused(text, complaint):
    with pytest.raises(InputError, match=f"^file: not JSON: .*{complaint}"):
        parse_json(text, "file")


def test_plain_json_is_read():
    deep = "[" * MAX_JSON_LEVELS + "]" * MAX_JSON_LEVELS
    assert json.loads(deep) == parse_json(deep, "file")
    assert parse_json(b'{"a": [1e308, -1, null, true, "x"]}', "f") == {
        "a": [1e308, -1, None, True, "x"]
    }
    assert parse_json("5", "f") == 5


def below(model):
    """All that derive from a model."""
    for child in model.__subclasses__():
        yield child
        yield from below(child)


def models():
    """All models of the package."""
    for module in pkgutil.walk_packages(sf.__path__, "synthfair."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed
                continue
    return [model for model in below(BaseModel) if model.__module__.startswith("synthfair.")]


def wrong_keys(model, document):
    """The keys of a document that a model refuses."""
    try:
        model.model_validate_json(json.dumps(document))
    except ValidationError as error:
        return {problem["loc"][0] for problem in error.errors() if problem["loc"]}
    return set()


def test_no_model_takes_true_or_a_text_for_a_number():
    numbers = 0
    for model in models():
        assert model.model_config["strict"], model
        fields = model.model_json_schema()["properties"]
        reads = getattr(model, "reads", lambda key: True)  # settings of a method may be fewer
        for key, schema in fields.items():
            if not reads(key):
                continue
            kinds = {kind.get("type") for kind in (schema, *schema.get("anyOf", ()))}
            if kinds & {"number", "integer"} and not kinds & {"boolean", "string"}:
                numbers += 1
                assert key in wrong_keys(model, {key: True}), (model, key)
                assert key in wrong_keys(model, {key: "1"}), (model, key)
    assert numbers > 100


def test_every_bound_of_a_text_holds():
    """The smallest: a type's own would hide one that the field adds by a default."""
    bounded = 0
    for model in models():
        for name, field in model.model_fields.items():
            bounds = [part.max_length for part in field.metadata if isinstance(part, MaxLen)]
            if field.annotation is str and bounds:
                bounded += 1
                key = field.alias or name
                assert key in wrong_keys(model, {key: "a" * (min(bounds) + 1)}), (model, key)
    assert bounded > 5


def test_what_an_aggregator_keeps_is_its_own(tmp_path):
    before = os.umask(0)
    try:
        make_aggregator_keys(tmp_path / "a.key")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*.*") if path.is_file()]
    modes = {path.name: path.stat().st_mode & 0o777 for path in files}
    assert modes == {"a.key": 0o600, "a.pub": 0o666, "owner.id": 0o600}
