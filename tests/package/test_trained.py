import json

import jax.numpy as jnp
import numpy as np
import pytest
from builders import checksum, make_table, some_model
from small_problem import make_rows

import synthfair as sf
from synthfair import trained
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.trained import Layer, read_model, write_model


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_scores_are_those_of_the_jax_model(n_groups, intercept):
    model = some_model(n_groups, intercept)
    rows = encode(make_table(n_groups=n_groups), model.schema_)
    real = make_rows(rows, n_groups=n_groups, intercept=intercept)
    expected = LinearModel().scores(jnp.array(model.theta), real.a)
    np.testing.assert_allclose(model.scores(rows.x, rows.s), expected)


def test_round_trip(tmp_path):
    write_model(some_model(), tmp_path / "m.json")
    assert read_model(tmp_path / "m.json") == some_model()


def altered(tmp_path, fix_checksum=False, **changes):
    path = tmp_path / "m.json"
    write_model(some_model(), path)
    body = json.loads(path.read_text()) | changes
    if fix_checksum:
        body["sha256"] = checksum(body)
    path.write_text(json.dumps(body))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"theta": [0.0] * 9},
        {"intercept": False},
        {"sha256": "0" * 64},
        {"extra": 1},
        {"sha256": None},
    ],
)
def test_a_model_that_was_tampered_with_is_refused(tmp_path, changes):
    with pytest.raises(InputError, match="m.json: not a model file, or altered"):
        read_model(altered(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"theta": [0.0]}, "theta must have 9 entries"),
        ({"inputs": ["a"]}, "inputs must be the 9"),
        ({"theta": ["x"]}, "theta.0"),
        ({"format": "synthfair-model/9"}, "format"),
        ({"extra": 1}, "extra: unknown key"),
        ({"schema": {}}, "schema.name: missing"),
    ],
)
def test_a_renewed_checksum_does_not_help_a_bad_model(tmp_path, changes, complaint):
    with pytest.raises(InputError, match=complaint):
        read_model(altered(tmp_path, fix_checksum=True, **changes))


@pytest.mark.parametrize("size", [1e308, -1e12])
def test_scores_without_bound_are_refused_before_anything_is_written(tmp_path, size, capsys):
    make_table(5).to_csv(tmp_path / "t.csv", index=False)
    path = altered(tmp_path, fix_checksum=True, theta=[size] * len(some_model().theta))
    argv = ["--data", f"{tmp_path}/t.csv", "--model", str(path), "--output", f"{tmp_path}/out"]
    for command in ("predict", "evaluate"):
        assert main([command, *argv]) == 2
        assert "theta: scores could be" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_largest_score_of_a_network_is_bounded(tmp_path):
    """2 units of 3e5 and 4 inputs of 1e6 each: 2.4e12, the intercept not counted."""
    layer = Layer(weight=((1e6, 1e6, 1e6, 1e6, 0, 0, 0, 0),) * 2, bias=(0.0, 0.0))
    model = some_model()
    network = model.model_copy(
        update={"inputs": model.inputs[:-1], "hidden": (layer,), "theta": (3e5, -3e5, 0.0)}
    )
    write_model(network, tmp_path / "m.json")
    with pytest.raises(InputError, match="could be 2.4e.12, above 1e.12"):
        read_model(tmp_path / "m.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"\x80\x04N.", b"{}", b"[" * 100_000])
def test_foreign_files(tmp_path, content):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(InputError, match="not a model file|not JSON|must hold a JSON object"):
        read_model(tmp_path / "m.json")


def test_no_such_model(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        sf.read_model(tmp_path / "m.json")


def test_a_file_without_end_is_no_model(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "MAX_MODEL_BYTES", 1000)
    (path := tmp_path / "model.json").write_bytes(b" " * 1001)
    with pytest.raises(InputError, match="model.json: larger than the 1000 bytes"):
        read_model(path)


def test_a_table_without_groups_is_refused_by_a_model_that_reads_them():
    table = make_table(20).drop(columns=["town", "paid"])
    with pytest.raises(InputError, match="rows.csv: column 'town' is missing; the model reads it"):
        some_model().encode(table, source="rows.csv")
