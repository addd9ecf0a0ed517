"""Files are named by text or by paths, as everywhere in Python."""

from pathlib import Path

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf


def release(schema):
    header = sf.release.make_header(
        sf.DistillConfig(), schema, model=sf.LinearModel(), penalty=sf.CovariancePenalty()
    )
    x = np.full((2, len(schema.encoded_names)), 0.5)
    return sf.Release(header, x, np.array([0, 1]), np.array([-1.0, 1.0]))


def model(schema):
    inputs = (*schema.encoded_names, "(intercept)")
    theta = tuple(map(float, range(len(inputs))))
    return sf.TrainedModel(
        schema=schema,
        version="0",
        loss="logistic",
        intercept=True,
        inputs=inputs,
        theta=theta,
        gradient_norm=None,
        converged=None,
    )


@pytest.mark.parametrize("form", [str, Path])
def test_paths_may_be_text(tmp_path, form):
    schema, table = make_schema(), make_table()
    place = {name: form(tmp_path / name) for name in ("schema.json", "rows.csv", "model.json")}
    sent, key = form(tmp_path / "sent.parquet"), form(tmp_path / "ada.key")
    (tmp_path / "schema.json").write_text(schema.to_json())
    table.to_csv(tmp_path / "rows.csv", index=False)

    assert sf.read_schema(place["schema.json"]) == schema
    assert len(sf.read_table(place["rows.csv"], schema)) == len(table)
    batches = list(sf.data.from_files(place["rows.csv"], schema).read())
    assert sum(len(part.y) for part in batches) == len(table)
    sf.write_model(model(schema), place["model.json"])
    assert sf.read_model(place["model.json"]) == model(schema)
    public, _ = sf.release.make_keys(key)
    sf.write_release(release(schema), sent, key=sf.release.read_signing_key(key))
    keys = sf.release.read_keys([form(public)])
    assert list(sf.read_releases([sent], schema, keys=keys)) == [str(tmp_path / "sent.parquet")]
    assert sf.release.inspect_release(sent, schema=schema, keys=keys).fits
