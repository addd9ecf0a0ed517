"""Releases of a small schema, and files that are altered."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from conftest import make_schema

from synthfair.model import LinearModel
from synthfair.release.format import Release, make_header
from synthfair.release.settings import DistillConfig

SCHEMA = make_schema()


def some_release(x=None, **settings):
    x = np.full((2, len(SCHEMA.encoded_names)), 0.25) if x is None else x
    config = DistillConfig(**{"group_input": True} | settings)
    header = make_header(config, SCHEMA, model=LinearModel(), penalty="p")
    s, y = np.arange(len(x)) % 2, np.where(np.arange(len(x)) % 2, 1.0, -1.0)
    return Release(header, x, s, y)


def rewrite(path, change=lambda table: table, **header):
    """The file with some of its columns or of its header changed."""
    table = change(pq.read_table(path))
    metadata = dict(pq.read_schema(path).metadata)
    if header:
        metadata[b"synthfair"] = json.dumps(json.loads(metadata[b"synthfair"]) | header).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)


def set_column(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values))
