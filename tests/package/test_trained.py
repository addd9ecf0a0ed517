import json

import jax.numpy as jnp
import numpy as np
import pytest
from builders import checksum, make_table, some_model

from synthfair import trained
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.trained import Layer, read_model, write_model


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_model_scores_as_its_jax_model(n_groups, intercept):
    model = some_model(n_groups, intercept)
    rows = encode(make_table(n_groups=n_groups), model.schema_)
    others = [rows.s == group for group in range(1, n_groups)] + [np.ones(120)] * intercept
    expected = LinearModel().scores(jnp.array(model.theta), np.column_stack([rows.x, *others]))
    np.testing.assert_allclose(model.scores(rows.x, rows.s), expected)


def test_model_read_again_is_the_same(tmp_path):
    write_model(some_model(), tmp_path / "m.json")
    assert read_model(tmp_path / "m.json") == some_model()


def altered(tmp_path, renewed=False, **changes):
    path = tmp_path / "m.json"
    write_model(some_model(), path)
    body = json.loads(path.read_text()) | changes
    if renewed:
        body["sha256"] = checksum(body)
    path.write_text(json.dumps(body))
    return path


@pytest.mark.parametrize(("renewed", "changes", "word"), [
    (False, {"theta": [0.0] * 9}, "altered"), (False, {"extra": 1}, "altered"),
    (False, {"sha256": None}, "altered"), (True, {"theta": [0.0]}, "theta"),
    (True, {"inputs": ["a"]}, "inputs"), (True, {"theta": ["x"]}, "theta.0"),
    (True, {"format": "synthfair-model/9"}, "format"), (True, {"extra": 1}, "extra"),
    (True, {"schema": {}}, "schema.name"),
])  # fmt: skip
def test_model_file_that_was_altered_is_refused(tmp_path, renewed, changes, word):
    """A renewed checksum does not help it."""
    with pytest.raises(InputError, match=f"m.json: .*{word}"):
        read_model(altered(tmp_path, renewed, **changes))


@pytest.mark.parametrize("size", [1e308, -1e12])
def test_model_of_unbounded_scores_is_refused_by_commands(tmp_path, size, capsys):
    make_table(5).to_csv(tmp_path / "t.csv", index=False)
    path = altered(tmp_path, renewed=True, theta=[size] * len(some_model().theta))
    argv = ["--data", f"{tmp_path}/t.csv", "--model", str(path), "--output", f"{tmp_path}/out"]
    for command in ("predict", "evaluate"):
        assert main([command, *argv]) == 2
        assert "theta: scores could be" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_model_of_a_network_has_bounded_scores(tmp_path):
    """2 units of 3e5 and 4 inputs of 1e6 each: 2.4e12, the intercept not counted."""
    layer = Layer(weight=((1e6, 1e6, 1e6, 1e6, 0, 0, 0, 0),) * 2, bias=(0.0, 0.0))
    model = some_model()
    network = model.model_copy(
        update={"inputs": model.inputs[:-1], "hidden": (layer,), "theta": (3e5, -3e5, 0.0)}
    )
    write_model(network, tmp_path / "m.json")
    with pytest.raises(InputError, match="2.4e.12"):
        read_model(tmp_path / "m.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"\x80\x04N.", b"{}", b"[" * 100_000, None])
def test_model_file_that_is_none_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(InputError, match="m.json"):
        read_model(tmp_path / "m.json")


def test_model_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "MAX_MODEL_BYTES", 1000)
    (path := tmp_path / "model.json").write_bytes(b" " * 1001)
    with pytest.raises(InputError, match="model.json: .*1000"):
        read_model(path)


def test_model_that_reads_groups_refuses_a_table_without():
    table = make_table(20).drop(columns=["town", "paid"])
    with pytest.raises(InputError, match="rows.csv: .*town"):
        some_model().encode(table, source="rows.csv")
