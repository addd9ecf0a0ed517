"""Anchors: public ones, models as anchors, and models of self-play."""

import numpy as np
import pytest

from synthfair.surrogate.anchors import anchors_of, public_anchors, self_play
from synthfair.surrogate.table import WeightedTable

D = 3


def client(n_groups, cells, n=40):
    """A table with so many rows in each of some (group, label); the first feature goes with both."""
    rng = np.random.default_rng(0)
    s, y = np.repeat([g for g, _ in cells], n), np.repeat([float(y) for _, y in cells], n)
    x = rng.random((len(y), D))
    x[:, 0] += 0.3 * y + 0.2 * s
    return WeightedTable(x, s, y, np.full(len(y), 2.0))


def test_public_anchors_begin_with_five_thresholds_on_each_feature():
    anchors = public_anchors(np.zeros(D, bool), n_groups=2, n_random=7, seed=0)
    assert anchors.slope.shape == (5 * D + 7, D)
    at_threshold = -anchors.offset[0, : 5 * D] / 16 + 0.5  # where 16 (x - 1/2) + b = 0
    np.testing.assert_allclose(
        at_threshold.reshape(D, 5), np.tile([0.1, 0.3, 0.5, 0.7, 0.9], (D, 1))
    )
    np.testing.assert_array_equal(anchors.slope[: 5 * D], np.repeat(16 * np.eye(D), 5, axis=0))


def test_one_threshold_carries_the_distribution_of_a_binary_feature():
    binary = np.arange(D) == 1
    anchors = public_anchors(binary, n_groups=2, n_random=7, seed=0)
    assert anchors.slope.shape == (5 * D - 4 + 7, D)
    on_it = anchors.slope[:-7, 1] == 16
    np.testing.assert_allclose(anchors.offset[:, :-7][:, on_it], 0.0)  # at 1/2
    assert on_it.sum() == 1


def test_random_anchors_have_directions_that_depend_on_the_seed_alone():
    first, again, other = (
        public_anchors(np.zeros(30, bool), n_groups=2, n_random=40, seed=seed).slope[150:]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.isclose(first, other).all(axis=1).any()
    length = np.linalg.norm(first, axis=1)
    assert length.min() >= 1 - 1e-9
    assert length.max() <= 12 + 1e-9
    used = np.count_nonzero(first, axis=1)
    assert (used[::2] == 30).all()
    assert 1 <= used[1::2].mean() < 8  # three on average


@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_model_as_an_anchor_has_its_scores(n_groups):
    cells = [(g, y) for g in range(n_groups) for y in (-1, 1)]
    table, rng = client(n_groups, cells), np.random.default_rng(1)
    thetas = rng.normal(size=(4, D + n_groups))
    anchors = anchors_of(thetas, D, n_groups=n_groups, weight=2.0)
    found = (table.x - 0.5) @ anchors.slope.T + anchors.offset[table.s]
    a = np.asarray(table.rows(n_groups=n_groups).a)
    np.testing.assert_allclose(found, a @ thetas.T, atol=1e-12)
    np.testing.assert_array_equal(anchors.weight, 2.0)


CLIENTS = {
    "all cells": (2, [(0, -1), (0, 1), (1, -1), (1, 1)]),
    "one label": (2, [(0, 1), (1, 1)]),
    "one group": (2, [(1, -1), (1, 1)]),
    "one cell": (3, [(2, -1)]),
}


@pytest.mark.parametrize(("n_groups", "cells"), CLIENTS.values(), ids=CLIENTS)
def test_self_play_gives_models_of_many_problems(n_groups, cells):
    table = client(n_groups, cells)
    thetas, again = (self_play(table, 6, n_groups=n_groups, seed=3) for _ in range(2))
    np.testing.assert_array_equal(thetas, again)
    assert thetas.shape == (6, D + n_groups)
    assert thetas.any(axis=1).sum() >= 4  # the others have no solution
    assert (np.linalg.norm(thetas, axis=1) < 60).all()
    assert np.ptp(thetas, axis=0).min() > 0  # no two problems are alike


def test_models_of_self_play_learn_the_labels():
    table = client(2, CLIENTS["all cells"][1])
    thetas = self_play(table, 6, n_groups=2, seed=3)
    scores = np.asarray(table.rows(n_groups=2).a) @ thetas.T
    within = [
        np.corrcoef(z[table.s == g], table.y[table.s == g])[0, 1] for z in scores.T for g in (0, 1)
    ]
    assert min(within) > 0.3


def test_self_play_counts_rows_by_their_weight():
    table = client(2, CLIENTS["all cells"][1])
    twice = np.arange(len(table.y)) // 2 * 2  # each other row is that before it
    pairs = table._replace(x=table.x[twice])
    other = np.arange(len(table.y)) % 2 == 1
    turned = table._replace(
        x=np.where(other[:, None], 1 - table.x, pairs.x), weight=np.where(other, 1e-9, 4.0)
    )
    thetas, expected = (self_play(t, 6, n_groups=2, seed=3) for t in (turned, pairs))
    np.testing.assert_allclose(thetas, expected, atol=1e-3)
