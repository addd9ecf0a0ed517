"""Rates that must not differ, against plain counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.federated.parity import Parity, RateSums, is_right
from synthfair.federated.single_rows import UserRows

LARGE = 50.0
"""A score so far from 0 that its probability is 0 or 1."""

GROUPS = (2, 3)
CASES = {  # which rows a rate is about, and what it counts of them
    "accuracy_parity": [(lambda y: y != 0, lambda yes, y: yes == (y > 0))],
    "statistical_parity": [(lambda y: y != 0, lambda yes, y: yes)],
    "equal_opportunity": [(lambda y: y > 0, lambda yes, y: ~yes)],
    "equalized_odds": [(lambda y: y > 0, lambda yes, y: ~yes), (lambda y: y < 0, lambda yes, y: yes)],
}  # fmt: skip


@pytest.mark.parametrize("notion", CASES)
def test_parity_counts_what_the_notion_says_for_each_group_of_each_attribute(notion):
    rng, n = np.random.default_rng(0), 60
    s = np.stack([rng.integers(0, g, n) for g in GROUPS], axis=1)
    y, score = rng.choice([-1.0, 1.0], n), rng.choice([-LARGE, LARGE], n)
    weight = (rng.random(n) < 0.8) * 1.0
    rows = UserRows(*map(jnp.asarray, (np.zeros((n, 1)), s, y, weight)))
    sums = Parity(notion, GROUPS).sums(jnp.asarray(score), rows)
    members = [(weight > 0) & (s[:, i] == g) for i, size in enumerate(GROUPS) for g in range(size)]
    for q, (about, counted) in enumerate(CASES[notion]):
        for g, member in enumerate(members):
            there = member & about(y)
            assert sums.counts[q, g] == there.sum()
            assert sums.values[q, g] == pytest.approx((there & counted(score > 0, y)).sum())


@pytest.mark.parametrize(("groups", "values", "counts", "expected"), [
    # Of two attributes, each group is compared with all rows: 8 of 30.
    ((2, 3), [2, 6, 3, 5, 0], [10, 20, 15, 5, 10], [2 / 30, -1 / 30, 2 / 30, -22 / 30, 8 / 30]),
    # Groups with fewer rows than 1.5 are left out, one of them by noise.
    ((4,), [2, 8, 0.5, 9], [10, 20, 1.4, -3], [4 / 30, -2 / 30, 0, 0]),
    ((2,), [-3, 4], [-2, 0], [0, 0]),
])  # fmt: skip
def test_parity_differences_are_from_the_rate_of_all_rows(groups, values, counts, expected):
    sums = RateSums(jnp.array([values], float), jnp.array([counts], float))
    found = Parity("statistical_parity", groups).differences(sums, 1.5)
    np.testing.assert_allclose(found.values[0], expected, atol=1e-12)
    known = np.array(counts) >= 1.5
    np.testing.assert_array_equal(found.is_known[0], known)
    assert not found.slope[0, ~known].any()
    assert not found.slope[0, :, ~known].any()


def test_parity_of_classes_is_that_of_two_labels_where_the_third_is_unlikely():
    rng = np.random.default_rng(2)
    s, y, scores = rng.integers(2, size=(40, 1)), rng.choice([-1.0, 1.0], 40), rng.normal(size=40)
    rows, classes = (UserRows(s, s, jnp.asarray(label), np.ones(40)) for label in (y, y > 0))
    columns = jnp.column_stack([0 * scores, scores, 0 * scores - LARGE])
    ways = (jnp.asarray(scores), rows), (columns, classes)
    np.testing.assert_allclose(*(Parity("accuracy_parity").sums(*way) for way in ways))
    np.testing.assert_array_equal(*(is_right(score, own.y) for score, own in ways))


def test_parity_slopes_are_the_derivatives_of_the_differences():
    parity = Parity("equalized_odds", GROUPS)
    counts = jnp.array([[9.0, 7, 5, 4, 7], [8, 6, 7, 3, 4]])
    values = jnp.array(np.random.default_rng(1).random((2, 5))) * counts
    whole = jax.jacfwd(lambda v: parity.differences(RateSums(v, counts)).values)(values)
    slope = parity.differences(RateSums(values, counts)).slope
    for q in range(2):
        np.testing.assert_allclose(whole[q, :, q], slope[q], atol=1e-12)
