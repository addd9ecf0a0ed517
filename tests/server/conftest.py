"""Releases that the tests of a server share."""

import pytest
from builders import SCHEMA, make_table

import synthfair as sf


@pytest.fixture(scope="session")
def surrogates():
    """Of eight clients that are alike."""
    config = sf.SurrogateConfig(k_min=10)
    tables = {f"c{k}": make_table(1000, seed=k) for k in range(8)}
    return {name: sf.distill_table(t, SCHEMA, config).release for name, t in tables.items()}
