"""No number of a single person can be solved for from a surrogate's exact sums.

A number that is constant in a cell but for one row or two gives these away: count, mean and variance
are two equations for one unknown or two. A category of one row is what the others leave of all.
"""

import numpy as np
import pytest
from conftest import needs_data

import synthfair as sf
from benchmarks.disclosure import read_out, read_records
from synthfair.data.batches import in_memory
from synthfair.data.schema import Numeric, encoded_as
from synthfair.privacy.mechanism import numeric_features
from synthfair.surrogate.sums import FewValues


def read_from(table, rows, numbers, *, k_min):
    """How many numbers are read out of all cells."""
    found = 0
    for s, y in {(int(s), float(y)) for s, y in zip(table.s, table.y, strict=True)}:
        mine, real = (t.x[(t.s == s) & (t.y == y)][:, numbers] for t in (table, rows))
        assert len(real) >= k_min
        found += read_out(mine, real)
    return found


@pytest.fixture(scope="module")
def clients():
    """A hundred clients with Adult's numbers; categories would only make the test slow."""
    table, schema = sf.load_dataset("adult")
    roles = schema.label, schema.sensitive
    columns = {
        name: column
        for name, column in schema.columns.items()
        if name in roles or isinstance(column, Numeric)
    }
    ignored = tuple(name for name in table if name not in columns)
    schema = schema.model_copy(update={"columns": columns, "ignored": ignored})
    parts = np.random.default_rng(0).permutation(len(table)) % 100
    return [sf.encode(table[parts == i], schema) for i in range(100)], schema


def attacked(clients, k_min):
    rows, schema = clients
    config = sf.SurrogateConfig(moments_only=True, k_min=k_min)
    found = 0
    for part in rows:
        table = sf.surrogate.make_surrogate(in_memory(part), config, schema).table
        found += read_from(table, part, numeric_features(schema), k_min=k_min)
    return found


@needs_data
@pytest.mark.parametrize("k_min", [10, 50])
def test_no_number_of_a_person_is_read_out_of_adults_clients(clients, k_min):
    assert attacked(clients, k_min) == 0


@pytest.fixture(scope="module")
def with_categories():
    """Four clients with all of Adult's columns."""
    table, schema = sf.load_dataset("adult")
    widths = [len(encoded_as(*column)) for column in schema.features.items()]
    parts = np.random.default_rng(0).permutation(len(table)) % 4
    rows = [sf.encode(table[parts == i], schema) for i in range(4)]
    return rows, schema, np.repeat(np.arange(len(widths)), widths)


def records_read(with_categories):
    rows, schema, column = with_categories
    config, found = sf.SurrogateConfig(moments_only=True), 0
    for part in rows:
        table = sf.surrogate.make_surrogate(in_memory(part), config, schema).table
        for s, y in {(int(s), float(y)) for s, y in zip(table.s, table.y, strict=True)}:
            mine, real = (t.x[(t.s == s) & (t.y == y)] for t in (table, part))
            found += read_records(mine, real, numeric_features(schema), column)
    return found


@needs_data
def test_no_person_is_read_out_of_the_categories_of_others(with_categories):
    """Sums are off by a row or so, so that one in thousands of guesses is right by chance."""
    assert records_read(with_categories) <= 1


@needs_data
def test_the_attack_reads_many_where_sums_are_not_rounded(with_categories, monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.make.rounded", lambda total, *_: total)
    assert records_read(with_categories) > 50


@needs_data
def test_the_attack_reads_some_where_rare_features_have_their_own_moments(clients, monkeypatch):
    never = property(lambda self: np.zeros(self.more.shape, bool))
    monkeypatch.setattr(FewValues, "rare", never)
    assert attacked(clients, 10) > 20
