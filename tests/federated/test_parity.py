"""Rates that must not differ, against plain counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.single_rows import UserRows

LARGE = 50.0
"""A score so far from 0 that its probability is 0 or 1."""


def rows(n=60, attributes=(2, 3), seed=0):
    rng = np.random.default_rng(seed)
    s = np.stack([rng.integers(0, g, n) for g in attributes], axis=1)
    y = rng.choice([-1.0, 1.0], n)
    weight = (rng.random(n) < 0.8).astype(float)
    score = rng.choice([-LARGE, LARGE], n)
    return jnp.array(score), UserRows(
        jnp.zeros((n, 1)), jnp.array(s), jnp.array(y), jnp.array(weight)
    )


def counted(notion, score, r, attribute, group):
    """[(value, count)] of each rate by loops."""
    there = [i for i in range(len(r.y)) if r.weight[i] and r.s[i, attribute] == group]
    wrong = lambda i: (score[i] > 0) != (r.y[i] > 0)  # noqa: E731
    if notion == "accuracy_parity":
        return [(sum(not wrong(i) for i in there), len(there))]
    if notion == "statistical_parity":
        return [(sum(score[i] > 0 for i in there), len(there))]
    positive = [i for i in there if r.y[i] > 0]
    negative = [i for i in there if r.y[i] < 0]
    rates = [(sum(map(wrong, positive)), len(positive)), (sum(map(wrong, negative)), len(negative))]
    return rates[:1] if notion == "equal_opportunity" else rates


@pytest.mark.parametrize(
    "notion", ["equal_opportunity", "accuracy_parity", "statistical_parity", "equalized_odds"]
)
def test_sums_count_what_the_notion_says_for_each_group_of_each_attribute(notion):
    score, r = rows()
    sums = Parity(notion, (2, 3)).sums(score, r)
    groups = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    for g, (attribute, group) in enumerate(groups):
        for q, (value, count) in enumerate(counted(notion, score, r, attribute, group)):
            assert sums.values[q, g] == pytest.approx(float(value), abs=1e-9)
            assert sums.counts[q, g] == count


def test_sums_add_up_over_users_who_hold_one_group_each():
    score, r = rows(attributes=(2,))
    parity = Parity("equalized_odds")
    whole = parity.sums(score, r)
    parts = [
        parity.sums(score[mine], UserRows(*(part[mine] for part in r)))
        for mine in (np.asarray(r.s[:, 0]) == group for group in (0, 1))
    ]
    for added, expected in zip(jax.tree.map(jnp.add, *parts), whole, strict=True):
        np.testing.assert_allclose(added, expected, atol=1e-12)


def test_differences_are_from_the_rate_of_all_rows():
    sums = RateSums(
        jnp.array([[2.0, 6.0, 3.0, 5.0, 0.0]]), jnp.array([[10.0, 20.0, 15.0, 5.0, 10.0]])
    )
    difference, *_ = Parity("equal_opportunity", (2, 3)).differences(sums)
    overall = 8 / 30
    expected = [overall - rate for rate in (0.2, 0.3, 0.2, 1.0, 0.0)]
    np.testing.assert_allclose(difference[0], expected)


def test_slopes_are_the_derivatives_of_the_differences():
    parity, counts = (
        Parity("equalized_odds", (2, 3)),
        jnp.array([[9.0, 7, 5, 4, 7], [8, 6, 7, 3, 4]]),
    )
    values = jnp.array(np.random.default_rng(1).random((2, 5))) * counts

    def difference(values):
        return parity.differences(RateSums(values, counts))[0]

    whole = jax.jacfwd(difference)(values)  # [Q, G, Q, G]
    slope = parity.differences(RateSums(values, counts))[1]
    for q in range(2):
        np.testing.assert_allclose(whole[q, :, q], slope[q], atol=1e-12)


def test_a_group_of_which_nothing_is_known_is_left_out():
    """Rates of 0.2 and 0.4, and two groups with fewer rows than asked for, one of them by noise."""
    values, counts = jnp.array([[2.0, 8.0, 0.5, 9.0]]), jnp.array([[10.0, 20.0, 1.4, -3.0]])
    found = Parity("statistical_parity", (4,)).differences(RateSums(values, counts), 1.5)
    np.testing.assert_array_equal(found.is_known, [[True, True, False, False]])
    np.testing.assert_allclose(found.values, [[1 / 3 - 0.2, 1 / 3 - 0.4, 0, 0]], atol=1e-12)
    assert not found.slope[0, 2:].any()
    assert not found.slope[0, :, 2:].any()


def test_noisy_counts_at_or_below_zero_give_finite_differences():
    sums = RateSums(jnp.array([[-3.0, 4.0]]), jnp.array([[-2.0, 0.0]]))
    assert all(jnp.isfinite(part).all() for part in Parity("equal_opportunity").differences(sums))


def test_accuracy_takes_several_classes_and_the_others_do_not():
    score = jnp.array([[LARGE, 0, 0], [0, LARGE, 0]])
    r = UserRows(jnp.zeros((2, 1)), jnp.array([[0], [1]]), jnp.array([0, 2]), jnp.ones(2))
    np.testing.assert_allclose(Parity("accuracy_parity").sums(score, r).values, [[1, 0]], atol=1e-9)
    with pytest.raises(InputError, match="parity 'equal_opportunity': needs two classes"):
        Parity("equal_opportunity").sums(score, r)


@pytest.mark.parametrize("groups", [(), (1,), (2, 1)])
def test_attributes_need_two_groups(groups):
    with pytest.raises(InputError, match="at least 2 groups"):
        Parity("equal_opportunity", groups)
