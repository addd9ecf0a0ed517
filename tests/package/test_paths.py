"""Files are named by text or by paths, as everywhere in Python."""

from pathlib import Path

import pytest
from builders import make_schema, make_table, some_model, some_release

import synthfair as sf


@pytest.mark.parametrize("form", [str, Path])
def test_paths_of_every_kind_are_taken(tmp_path, form):
    schema, table = make_schema(), make_table()
    place = {name: form(tmp_path / name) for name in ("schema.json", "rows.csv", "model.json")}
    sent, key = form(tmp_path / "sent.parquet"), form(tmp_path / "ada.key")
    (tmp_path / "schema.json").write_text(schema.to_json())
    table.to_csv(tmp_path / "rows.csv", index=False)

    assert sf.read_schema(place["schema.json"]) == schema
    assert len(sf.read_table(place["rows.csv"], schema)) == len(table)
    batches = list(sf.data.from_files(place["rows.csv"], schema).read())
    assert sum(len(part.y) for part in batches) == len(table)
    sf.write_model(some_model(), place["model.json"])
    assert sf.read_model(place["model.json"]) == some_model()
    public, _ = sf.release.make_keys(key)
    sf.write_release(some_release(), sent, key=sf.release.read_signing_key(key))
    keys = sf.release.read_keys([form(public)])
    assert list(sf.read_releases([sent], schema, keys=keys)) == [str(tmp_path / "sent.parquet")]
    assert sf.release.inspect_release(sent, schema=schema, keys=keys).fits
