"""A client's surrogate: exact moments of each cell, named cells that are left out, rates."""

import jax
import numpy as np
import pytest
from scipy.special import expit

from synthfair.config import SurrogateConfig
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.errors import InputError
from synthfair.surrogate import make_surrogate, smooth_sums
from synthfair.surrogate.anchors import public_anchors
from synthfair.surrogate.make import choose_anchors, first_sums

D = 3
MOMENTS = SurrogateConfig(moments_only=True, rows_per_cell=20, seed=1)
PUBLIC = SurrogateConfig(self_play=0, random_anchors=3, iterations=20, rows_per_cell=20, seed=1)
WHOLE = SurrogateConfig(self_play=6, random_anchors=3, iterations=20, rows_per_cell=20, seed=1)
ALL = [(g, y) for g in range(2) for y in (-1, 1)]

CLIENTS = {
    "all cells": (2, ALL),
    "one label": (2, [(0, 1), (1, 1)]),
    "one group": (2, [(1, -1), (1, 1)]),
    "three groups": (3, [(g, y) for g in range(3) for y in (-1, 1)]),
    "one cell of six": (3, [(1, -1)]),
}


def schema_of(n_groups=2):
    """Of the rows of :func:`client`: a number, two categories, a number."""
    number = Numeric(lower=0, upper=1)
    return Schema(
        name="some",
        columns={
            "skewed": number,
            "flag": Categorical(categories=("no", "yes")),
            "constant": number,
            "group": Categorical(categories=tuple(map(str, range(n_groups)))),
            "label": Categorical(categories=("-", "+")),
        },
        label="label",
        positive="+",
        sensitive="group",
    )


SCHEMA, BINARY = schema_of(), np.array([False, True, False])


def client(cells, sizes=(60, 90, 70, 110, 50, 80)):
    """Rows of some (group, label): a skewed number, a category that few have, a constant."""
    rng = np.random.default_rng(0)
    parts = []
    for (g, y), n in zip(cells, sizes, strict=False):
        first = rng.random(n) ** (2 + g + y)
        x = np.column_stack([first, rng.random(n) < 0.1 + first / 2, np.full(n, 0.3)])
        x = np.rint(x * 2**16) / 2**16  # as far as sums look
        parts.append(Encoded(x, np.full(n, g), np.full(n, float(y))))
    rows = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
    order = rng.permutation(len(rows.y))
    return Encoded(*(field[order] for field in rows))


def cell(table, g, y):
    """Features and, of a surrogate, weights of the rows of a cell."""
    inside = (table.s == g) & (table.y == y)
    return table.x[inside], getattr(table, "weight", np.ones(len(table.y)))[inside]


def assert_same_moments(table, rows, cells):
    """Count, mean and covariance of each of these cells; the table has no others."""
    assert {(g, y) for g, y in zip(table.s, table.y, strict=True)} == set(cells)
    for place in cells:
        (real, _), (x, weight) = cell(rows, *place), cell(table, *place)
        assert weight.sum() == pytest.approx(len(real), rel=1e-12)
        mean, covariance = rounded_moments(real)
        np.testing.assert_allclose(np.average(x, axis=0, weights=weight), mean, atol=1e-9)
        np.testing.assert_allclose(np.cov(x.T, aweights=weight, bias=True), covariance, atol=1e-9)


def rounded_moments(x):
    """Mean and covariance, the flag's count being a multiple of 5, and its sums of numbers whole."""
    n, total, products = len(x), x.sum(axis=0), x.T @ x
    total[1] = products[1, 1] = min(n, 5 * np.rint(total[1] / 5))
    for j in (0, 2):
        products[1, j] = products[j, 1] = min(np.rint(products[1, j]), total[1])
    values, vectors = np.linalg.eigh(products / n - np.outer(total, total) / n**2)
    return total / n, (vectors * np.maximum(values, 0)) @ vectors.T


@pytest.mark.parametrize(("n_groups", "cells"), CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("config", [MOMENTS, PUBLIC], ids=["moments", "anchors"])
def test_counts_and_rounded_moments_of_each_cell_are_exact(config, n_groups, cells):
    rows = client(cells)
    made = make_surrogate(in_memory(rows), config, schema_of(n_groups))
    assert_same_moments(made.table, rows, cells)
    assert len(made.table.y) == 20 * len(cells)
    assert made.left_out == ()


@pytest.mark.parametrize("name", ["all cells", "one cell of six"])
def test_with_self_play_moments_are_exact_and_bytes_the_same(name):
    n_groups, cells = CLIENTS[name]
    rows = client(cells)
    made, again = (make_surrogate(in_memory(rows), WHOLE, schema_of(n_groups)) for _ in range(2))
    assert_same_moments(made.table, rows, cells)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(made.table, again.table, strict=True))
    assert made.rate_error == again.rate_error


def test_another_seed_gives_other_rows():
    rows = in_memory(client(ALL))
    tables = [
        make_surrogate(rows, MOMENTS.model_copy(update={"seed": seed}), SCHEMA).table
        for seed in (1, 2)
    ]
    assert not np.isclose(tables[0].x, tables[1].x).all(axis=1).any()


def test_small_cells_are_left_out_and_named():
    rows = client(ALL, sizes=(60, 49, 50, 1))
    made = make_surrogate(in_memory(rows), MOMENTS, SCHEMA)
    assert made.left_out == ((0, 1.0), (1, 1.0))
    assert_same_moments(made.table, rows, [(0, -1), (1, -1)])


def test_a_client_of_small_cells_alone_is_refused():
    rows = in_memory(client(ALL, sizes=(49, 49, 49, 49)))
    with pytest.raises(InputError, match="50 rows that k_min"):
        make_surrogate(rows, MOMENTS, SCHEMA)


def test_too_few_rows_for_the_features_are_refused():
    config = MOMENTS.model_copy(update={"rows_per_cell": D + 1})
    with pytest.raises(
        InputError, match=f"rows_per_cell = {D + 1}: {D} features need at least {D + 2}"
    ):
        make_surrogate(in_memory(client(ALL)), config, SCHEMA)
    enough = MOMENTS.model_copy(update={"rows_per_cell": D + 2})
    made = make_surrogate(in_memory(client(ALL)), enough, SCHEMA)
    assert_same_moments(made.table, client(ALL), ALL)


def test_pairs_with_too_few_rows_together_are_refused_with_the_numbers():
    """Pairs below k_min do not count."""
    numbers = {f"n{i}": Numeric(lower=0, upper=1) for i in range(10)}
    roles = {name: SCHEMA.columns[name] for name in ("group", "label")}
    schema = SCHEMA.model_copy(update={"columns": numbers | roles})
    x = np.random.default_rng(0).random((10, 10))
    rows = in_memory(Encoded(x, np.repeat([0, 1], [7, 3]), np.ones(10)))
    config = MOMENTS.model_copy(update={"k_min": 5})
    said = "have together 7 rows; 12 are needed for 10 features. Lower k_min .* leave out columns"
    with pytest.raises(InputError, match=said):
        make_surrogate(rows, config, schema)


@pytest.mark.parametrize("config", [MOMENTS, PUBLIC], ids=["moments", "anchors"])
def test_batches_in_any_cutting_give_the_same_table(config):
    rows = client(ALL)
    whole = make_surrogate(in_memory(rows), config, SCHEMA)
    order = np.random.default_rng(2).permutation(len(rows.y))
    cut = [Encoded(*(f[part] for f in rows)) for part in np.split(order, [1, 100, 100])]
    made = make_surrogate(BatchesInOrder(lambda: cut), config, SCHEMA)
    for found, expected in zip(made.table, whole.table, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("others", [(0.37, 0.81), (0.9, 0.2)])
def test_a_number_that_is_rare_in_all_cells_is_what_most_rows_have(others):
    """In the first cell it is 0 but for one row, in the second 1: together it would not be rare."""
    rows = client([(0, 1), (1, 1)], sizes=(60, 70))
    for g, constant in enumerate((0.0, 1.0)):
        mine = np.flatnonzero(rows.s == g)
        rows.x[mine, 0] = constant
        rows.x[mine[7], 0] = others[g]
    table = make_surrogate(in_memory(rows), MOMENTS, SCHEMA).table
    np.testing.assert_allclose(table.x[:, 0], table.s, atol=1e-9)


def test_a_value_that_fewer_than_five_rows_have_is_not_given():
    x = np.column_stack([np.arange(1, 6) / 10, np.zeros(5), np.full(5, 0.3)])
    rows = Encoded(x, np.zeros(5, int), np.ones(5))
    config = MOMENTS.model_copy(update={"k_min": 5})
    table = make_surrogate(in_memory(rows), config, SCHEMA).table
    np.testing.assert_allclose(table.x[:, 0], 0.5, atol=1e-9)


def test_a_first_reading_is_not_done_again():
    rows, read = client(ALL), []

    def batches():
        read.append(1)
        yield rows

    stream = BatchesInOrder(batches)
    known = first_sums(stream, SCHEMA)
    made = make_surrogate(stream, MOMENTS, SCHEMA, known=known)
    assert len(read) == 1
    assert_same_moments(made.table, rows, ALL)


def test_rate_error_is_the_largest_difference_of_a_mean_smooth_rate():
    rows = client(ALL)
    made = make_surrogate(in_memory(rows), PUBLIC, SCHEMA)
    anchors = public_anchors(BINARY, n_groups=2, n_random=3, seed=PUBLIC.seed)

    def rates(table, g, y):
        return expit((cell(table, g, y)[0] - 0.5) @ anchors.slope.T + anchors.offset[g]).mean(
            axis=0
        )

    def wanted(g, y):
        n = len(cell(rows, g, y)[0])
        return np.clip(5 * np.rint(rates(rows, g, y) * n / 5), 0, n) / n

    differences = [rates(made.table, *place) - wanted(*place) for place in ALL]
    assert made.rate_error == pytest.approx(np.abs(differences).max(), abs=2**-14)
    assert 0 < made.rate_error < 0.1


def test_anchors_bring_the_rates_nearer_than_moments_do():
    rows = client(ALL)
    anchors = public_anchors(BINARY, n_groups=2, n_random=0, seed=0)
    real = smooth_sums(rows, anchors, n_groups=2).rate
    errors = []
    for config in (MOMENTS, PUBLIC):
        table = make_surrogate(in_memory(rows), config, SCHEMA).table
        found = smooth_sums(Encoded(*table[:3]), anchors, n_groups=2).rate / 20
        errors.append(np.abs(found - real / cell_sizes(rows)[..., None]).max())
    assert errors[1] < errors[0] / 2


def cell_sizes(rows):
    return np.array([[len(cell(rows, g, y)[0]) for y in (-1, 1)] for g in (0, 1)])


def test_moments_alone_have_no_rate_error():
    assert np.isnan(make_surrogate(in_memory(client(ALL)), MOMENTS, SCHEMA).rate_error)


def test_self_play_adds_each_model_at_two_temperatures():
    rows = client(ALL)
    config = MOMENTS.model_copy(update={"rows_per_cell": 40})
    table = make_surrogate(in_memory(rows), config, SCHEMA).table
    anchors = choose_anchors(table, WHOLE, SCHEMA, seed=1)
    played = len(anchors.weight) - len(
        public_anchors(BINARY, n_groups=2, n_random=3, seed=1).weight
    )
    assert played == 12
    first, second = np.split(anchors.slope[-played:], 2)
    np.testing.assert_allclose(second, 4 * first)
    np.testing.assert_array_equal(anchors.weight[-played:], 2.0)


def test_double_precision_is_used_and_given_back():
    with jax.enable_x64(False):
        made = make_surrogate(in_memory(client(ALL)), WHOLE, SCHEMA)
        assert not jax.config.jax_enable_x64
    assert {column.dtype.itemsize for column in made.table} == {8}
    assert_same_moments(made.table, client(ALL), ALL)
