"""No number of a single person can be solved for from a surrogate's exact sums.

A feature that is constant in a cell but for one row or two gives these away: count, mean and
variance are two equations for one unknown or two.
"""

import numpy as np
import pytest
from conftest import needs_data

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Numeric
from synthfair.privacy.mechanism import numeric_features
from synthfair.surrogate.sums import FewValues

STEP = 2.0**-16
"""Of the grid on which features are summed: to so much a value counts as read out."""


def solved(n, mean, variance, constant):
    """The values of one row, and of two, if all other n - 1 or n - 2 rows are at a constant."""
    first = n * (mean - constant)
    second = n * (variance + (mean - constant) ** 2)
    root = np.sqrt(np.maximum(2 * second - first**2, 0.0))
    one = constant + first
    return [one], [constant + (first - root) / 2, constant + (first + root) / 2]


def singled_out(column):
    """The constant and the values of the rows that differ, where these are one or two."""
    values, counts = np.unique(column, return_counts=True)
    constant = values[counts.argmax()]
    others = np.sort(column[column != constant])
    return (constant, others) if len(others) in (1, 2) else None


def read_out(table, rows, numbers, *, k_min):
    """How many numbers an attacker reads who knows which features are nearly constant, and at what.

    Whoever must guess that reads fewer. Of categories there is nothing to solve for.
    """
    found = 0
    for s, y in {(int(s), float(y)) for s, y in zip(table.s, table.y, strict=True)}:
        mine, real = (t.x[(t.s == s) & (t.y == y)][:, numbers] for t in (table, rows))
        assert len(real) >= k_min
        for sent, column in zip(mine.T, real.T, strict=True):
            single = singled_out(np.rint(column / STEP) * STEP)
            if single is None:
                continue
            constant, others = single
            guesses = solved(len(real), sent.mean(), sent.var(), constant)
            found += np.allclose(guesses[len(others) - 1], others, rtol=0, atol=4 * STEP)
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
        found += read_out(table, part, numeric_features(schema), k_min=k_min)
    return found


@needs_data
@pytest.mark.parametrize("k_min", [10, 50])
def test_no_number_of_a_person_is_read_out_of_adults_clients(clients, k_min):
    assert attacked(clients, k_min) == 0


@needs_data
def test_the_attack_reads_some_where_rare_features_have_their_own_moments(clients, monkeypatch):
    never = property(lambda self: np.zeros(self.more.shape, bool))
    monkeypatch.setattr(FewValues, "rare", never)
    assert attacked(clients, 10) > 20


def test_the_attack_solves_for_one_value_and_for_two():
    for others in ([0.3], [0.3, 0.9], [0.2, 0.2]):
        column = np.array([0.5] * 60 + others)
        constant, differing = singled_out(column)
        guess = solved(len(column), column.mean(), column.var(), constant)[len(others) - 1]
        np.testing.assert_allclose(guess, differing, atol=1e-6)
