"""Rows of a client, as files."""

import pytest
from builders import SCHEMA, TABLE


@pytest.fixture
def paths(tmp_path):
    """Those of the rows, of their schema, and of an output."""
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"
