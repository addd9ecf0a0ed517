"""Seconds of a client with many rows, and of a stream of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import synthfair as sf
from benchmarks.fit import Usage, watch
from benchmarks.harness import Experiment
from benchmarks.scale import random_parts, random_schema
from benchmarks.showing import page_of
from synthfair.data.tables import write_csv

# A client with many rows


NUMBERS = 19
"""Numeric features of a stream, with the group 20 inputs."""


class ClientSetting(NamedTuple):
    """Rows, and where they lie: ``dutch``, a CSV file, or ``stream``, a folder of Parquet files."""

    table: str
    rows: int


def run_client(setting: ClientSetting, _seed: int, *, smoke: bool) -> Usage:
    """Return the time and memory of a whole client's process, without a cache of compiled code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if setting.table == "dutch":
            table, schema = sf.load_dataset("dutch")
            data = folder / "table.csv"
            write_csv(table.head(setting.rows), data)
        else:
            schema, data = random_schema("stream", NUMBERS, 0), folder / "rows"
            data.mkdir()
            for i, part in enumerate(random_parts(setting.rows, NUMBERS, 0, size=100_000)):
                part.to_parquet(data / f"part_{i:04}.parquet", index=False)
        (folder / "schema.json").write_text(schema.to_json())
        return watch(
            "synthfair.client", "--release", "surrogate", "--data", data,
            "--schema", folder / "schema.json", "--output", folder / "release.parquet",
            "--without-epsilon",
        )  # fmt: skip


CLIENT = Experiment(
    name="client",
    settings=(
        ClientSetting("dutch", 60_000),
        *(ClientSetting("stream", n) for n in (1_000_000, 3_000_000, 10_000_000)),
    ),
    run=run_client,
    summary=page_of("unlike/client", numbers=NUMBERS),
    smoke=(ClientSetting("dutch", 2000), ClientSetting("stream", 2000)), float64=False,
)  # fmt: skip
