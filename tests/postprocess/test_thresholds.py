"""Thresholds and mixtures of thresholds against brute force and SciPy's linprog."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from synthfair.errors import InputError
from synthfair.postprocess import ScoreHistogram, choose_decision
from synthfair.postprocess.thresholds import _estimates

COMPARED = {"statistical_parity": [(0, 1)], "equal_opportunity": [(1,)],
            "equalized_odds": [(1,), (0,)]}  # fmt: skip
each_notion = pytest.mark.parametrize("notion", COMPARED)


def small_counts(seed, n_groups=2, notion="equalized_odds"):
    """Every group has rows of both labels; or the first, once, of those alone that are compared."""
    counts = np.random.default_rng(seed).integers(0, 9, (n_groups, 2, 5))
    counts[:, :, 0] += 1
    if seed == 0 and notion != "equalized_odds":
        counts[0, int(notion == "statistical_parity")] = 0
    return counts


def histogram(counts):
    return ScoreHistogram(schema_hash="0" * 64, model=None if counts.shape[2] == 1 else "1" * 64,
                          groups=tuple("abcd"[: len(counts)]), counts=counts.tolist())  # fmt: skip


def rates_of(counts, chance, notion):
    """[rate][group] of decisions with chance [G, B]."""
    rows = [counts[:, list(among)].sum(axis=1) for among in COMPARED[notion]]
    return np.array([(chance * n).sum(axis=1) / n.sum(axis=1) for n in rows])


def right_of(counts, chance):
    """Rows that are decided rightly, by group."""
    return (counts[:, 1] * chance + counts[:, 0] * (1 - np.array(chance))).sum(axis=1)


def chances_of(decision):
    def chance_of(steps, b):
        return max([0, *(chance for start, chance in steps if b >= start)])

    return np.array([[chance_of(steps, b) for b in range(5)] for steps in decision.steps])


TABLES = (np.arange(5) >= np.arange(6)[:, None]).astype(float)
"""[T, B] decisions of each threshold."""


@each_notion
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.4])
def test_thresholds_are_the_best_of_all_combinations(notion, n_groups, alpha):
    for seed in range(5):
        counts = small_counts(seed, n_groups, notion)
        found = choose_decision(histogram(counts), notion, alpha)
        chance = chances_of(found.decision)
        gap = np.ptp(rates_of(counts, chance, notion), axis=1).max()
        possible = [
            right_of(counts, some).sum()
            for some in product(TABLES, repeat=n_groups)
            if np.ptp(rates_of(counts, some, notion), axis=1).max() <= alpha + 1e-9
        ]
        assert right_of(counts, chance).sum() == max(possible)
        assert gap <= alpha + 1e-9
        assert found.decision.key is None
        assert found.gap == pytest.approx((gap, 0))
        assert found.accuracy == pytest.approx((max(possible) / counts.sum(), 0))
        assert found.constant_accuracy.value == counts.sum(axis=(0, 2)).max() / counts.sum()


@each_notion
@pytest.mark.parametrize("n_groups", [2, 4])
def test_mixture_is_as_good_as_any_and_within_the_tolerance(notion, n_groups):
    """As a programme says in which the rates of every pair of groups are compared."""
    group = np.repeat(np.eye(n_groups), 6, axis=1)  # [G, G T]
    first, other = map(list, zip(*permutations(range(n_groups), 2), strict=True))
    for seed, alpha in product(range(5), (0.0, 0.1)):
        counts = small_counts(seed, n_groups, notion)
        found = choose_decision(histogram(counts), notion, alpha, randomized=True)
        chance = chances_of(found.decision)
        gap = np.ptp(rates_of(counts, chance, notion), axis=1).max()
        assert gap <= alpha + 1e-7
        right = right_of(counts, chance).sum()
        assert (*found.gap, *found.accuracy) == pytest.approx((gap, 0, right / counts.sum(), 0))
        rates = np.stack([rates_of(counts, [t] * n_groups, notion) for t in TABLES], axis=-1)
        each = np.stack([right_of(counts, [t] * n_groups) for t in TABLES], axis=-1)
        within = [group * rate.ravel() for rate in rates]
        above = np.vstack([rows[first] - rows[other] for rows in within])
        best = linprog(-each.ravel(), above, np.full(len(above), alpha), group, np.ones(n_groups))
        assert right == pytest.approx(-best.fun, abs=1e-5)


@pytest.mark.parametrize(("place", "count", "notion", "said"), [
    ((1, 1), 0, "equal_opportunity", r"group 'b' and label \+1: counted 0"),
    ((1, 1), -9, "equalized_odds", r"group 'b' and label \+1: counted -45"),
    ((1,), 0, "statistical_parity", "group 'b': counted 0"),
    ((1, 0), -9, "equal_opportunity", "group 'b': counted -"),
])  # fmt: skip
def test_thresholds_of_a_group_without_rows_that_are_compared_are_refused(place, count, notion, said):  # fmt: skip
    counts = small_counts(0)
    counts[place] = count
    with pytest.raises(InputError, match=said):
        choose_decision(histogram(counts), notion, 0.1)


def test_mixture_has_coins_that_follow_from_the_counts_alone():
    def key(counts, alpha=0.1, **changes):
        given = histogram(counts).model_copy(update=changes)
        return choose_decision(given, "equalized_odds", alpha, randomized=True).decision.key

    counts, other = small_counts(0), small_counts(0)
    other[0, 0, 0] += 1
    assert key(counts) == key(counts, 0.05) == key(counts, variance=1e-9)
    others = key(other), key(counts, model="2" * 64), key(counts, schema_hash="2" * 64)
    assert len({key(counts), *others}) == 4


@pytest.mark.parametrize(("alpha", "n_bins", "said"), [
    (-0.1, 5, "alpha"), (1.0, 5, "alpha"), (np.nan, 5, "alpha"), (0.1, 1, "bins"), (0.1, 2049, "bins"),
])  # fmt: skip
def test_thresholds_of_an_impossible_alpha_or_number_of_bins_are_refused(alpha, n_bins, said):
    with pytest.raises(InputError, match=said):
        choose_decision(histogram(np.ones((2, 2, n_bins), int)), "equalized_odds", alpha)


@each_notion
def test_estimates_have_the_error_of_the_noise_to_first_order(notion):
    counts, weights = 1000 * small_counts(1, 2, notion), np.eye(6)[[2, 4]]

    def values(counts):
        return [share.value for share in _estimates(histogram(counts), notion, weights)]

    ones = np.eye(20, dtype=int).reshape(20, 2, 2, 5)
    slopes = [np.subtract(values(counts + one), values(counts)) for one in ones]
    noisy = histogram(counts).model_copy(update={"variance": 4.0})
    errors = [share.error for share in _estimates(noisy, notion, weights)]
    np.testing.assert_allclose(errors, 2 * np.linalg.norm(slopes, axis=0), rtol=0.01)
