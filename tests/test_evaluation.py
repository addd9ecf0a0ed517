import numpy as np
import pytest
from conftest import make_table
from test_trained import some_model

import synthfair as sf
from synthfair.errors import InputError
from synthfair.evaluation import evaluation_document, read_tests
from synthfair.scoring import predict


def test_decisions_are_label_values():
    model, table = some_model(), make_table()
    scored = predict(model, table.drop(columns="paid"))
    assert list(scored["decision"]) == ["yes" if score > 0 else "no" for score in scored["score"]]


def test_a_bad_row_is_named():
    with pytest.raises(InputError, match="new.csv: column 'town', row 1: 'z'"):
        predict(some_model(), make_table().assign(town="z"), source="new.csv")


def test_overall_is_over_all_rows_of_all_tables():
    tables = {"a": make_table(seed=1), "b": make_table(seed=2, n=60)}
    found = sf.evaluate(some_model(), tables, sf.ServerConfig(resamples=5))
    weights = np.array([120, 60]) / 180
    parts = [found.per_client[name]["accuracy"].value for name in ("a", "b")]
    assert found.n_test == 180
    assert found.overall["accuracy"].value == pytest.approx(weights @ parts)


def test_undefined_metrics_are_null():
    found = sf.evaluate(some_model(), {"a": make_table().assign(town="a")})
    document = evaluation_document(found, some_model().schema_, sf.ServerConfig())
    assert document["spd"] == {"value": None, "low": None, "high": None}


def test_no_tables():
    with pytest.raises(InputError, match="no test tables"):
        sf.evaluate(some_model(), {})


def test_tables_of_one_name_keep_their_paths(tmp_path, schema):
    paths = [tmp_path / folder / "test.csv" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        make_table().to_csv(path, index=False)
    assert list(read_tests(paths, schema)) == [str(path) for path in paths]
    assert list(read_tests(paths[:1], schema)) == ["test"]
    with pytest.raises(InputError, match="given more than once"):
        read_tests([paths[0], tmp_path / "b" / ".." / "a" / "test.csv"], schema)
