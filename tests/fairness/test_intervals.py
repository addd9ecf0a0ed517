"""Intervals against closed forms that SciPy's beta quantiles give, and what is said of them."""

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import beta, binomtest, t

from synthfair.fairness import intervals
from synthfair.fairness.metrics import NOTION_METRICS, Metric, Scored

GAPS = ("spd", "equal_opportunity_difference", "equalized_odds_difference")


def sample(seed, n_groups=2, n=200):
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    y = np.where(rng.random(n) < 0.3 + 0.1 * s, 1.0, -1.0)
    return Scored(y, rng.normal(size=n) + 0.5 * y - 0.2 * s, s, n_groups)


def found(rows, **changes):
    return intervals.metrics_with_intervals(rows, **({"resamples": 20, "seed": 0} | changes))


def limits(rows, tail):
    """Rate and limits of Clopper and Pearson, of rows 0 or 1."""
    hits, misses = rows.sum(), (~rows).sum()
    low, high = beta.ppf(tail, hits, misses + 1), beta.ppf(1 - tail, hits + 1, misses)
    return rows.mean(), np.nan_to_num(low), np.nan_to_num(high, nan=1.0)


def pair(rows, a, b, among, tail):
    """Zou and Donner (2008): the difference of rate b and rate a with its limits."""
    (p, low_p, high_p), (q, low_q, high_q) = (
        limits(rows.score[among & (rows.s == group)] > 0, tail) for group in (a, b)
    )
    below, above = np.hypot(q - low_q, high_p - p), np.hypot(high_q - q, p - low_p)
    return q - p, q - p - below, q - p + above


def ratio_pair(rows, a, b, among, tail):
    """The lower rate over the higher, with limits of the difference of the logarithms."""
    (p, low_p, high_p), (q, low_q, high_q) = sorted(
        limits(rows.score[among & (rows.s == group)] > 0, tail) for group in (a, b)
    )
    if p == 0:
        return 0.0, 0.0, min(1.0, high_p / low_q)
    below, above = np.hypot(*np.log([p / low_p, high_q / q])), np.log([high_p / p, q / low_q])
    return p / q, p / q * np.exp(-below), min(1.0, p / q * np.exp(np.hypot(*above)))


def of_all_pairs(measure, parts, amongs=(True,), tail=0.025):
    """[K, 3] by this tail, and by one that all 2 K limits share."""
    pairs = [
        (rows, a, b, among)
        for rows in parts for a, b in combinations(range(rows.n_groups), 2) for among in amongs
    ]  # fmt: skip
    share = tail / (2 * len(pairs)) if len(pairs) > 1 else tail
    return (np.array([measure(*one, each) for one in pairs]) for each in (tail, share))


def largest_pair(*given):
    """The largest size of K; its lower limit with the tail that is shared."""
    near, far = of_all_pairs(pair, *given)
    low = max(0.0, far[:, 1].max(), (-far[:, 2]).max())
    return np.abs(near[:, 0]).max(), low, np.abs(near[:, 1:]).max()


def lowest_ratio(parts):
    near, far = of_all_pairs(ratio_pair, parts)
    return *near[:, :2].min(axis=0), far[:, 2].min()


@pytest.mark.parametrize(("hits", "size"), [(0, 12), (12, 12), (39, 40), (17, 30), (1, 1000)])
def test_rate_interval_is_scipys_exact_one(hits, size):
    theirs = binomtest(hits, size).proportion_ci(0.95)
    assert intervals.rate_interval(hits, size) == pytest.approx((hits / size, *theirs))
    assert np.isnan(intervals.rate_interval(0, 0)).all()


def test_intervals_of_two_groups_are_those_of_signed_differences():
    rows = sample(3)
    gaps, positive = found(rows), rows.y > 0
    assert gaps["spd"].value < 0
    assert gaps["spd"] == pytest.approx(pair(rows, 0, 1, True, 0.025))
    expected = pair(rows, 0, 1, positive, 0.025)
    assert gaps["equal_opportunity_difference"] == pytest.approx(expected)
    assert gaps["accuracy"] == pytest.approx(limits((rows.score > 0) == positive, 0.025))


@pytest.mark.parametrize("n_groups", [2, 4])
def test_intervals_of_a_largest_difference_share_the_tail_of_the_lower_limit(n_groups):
    rows = sample(3, n_groups, n=1000)
    odds = largest_pair([rows], [rows.y > 0, rows.y < 0])
    assert found(rows)["equalized_odds_difference"] == pytest.approx(odds)
    assert found(rows)["selection_ratio"] == pytest.approx(lowest_ratio([rows]))
    if n_groups > 2:
        assert found(rows)["spd"] == pytest.approx(largest_pair([rows]))


def test_intervals_by_several_groupings_are_of_the_largest_of_theirs():
    rows, by = sample(1, 4, n=2000), [(0, 0, 1, 1), (0, 1, 0, -1)]
    parts = [rows._replace(s=np.array(own)[rows.s], n_groups=2) for own in by]
    assert found(rows, by=by)["spd"] == pytest.approx(largest_pair(parts))
    assert found(rows, by=by)["selection_ratio"] == pytest.approx(lowest_ratio(parts))


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 60), st.booleans())
def test_intervals_contain_their_value(seed, n_groups, n, coins):
    rows = sample(seed, n_groups, n)
    if coins:
        rows = rows._replace(probability=np.random.default_rng(seed).random(n))
    for name, (value, low, high) in found(rows, resamples=2).items():
        assert np.isnan([value, low, high]).all() or low <= value <= high
        assert name == "covariance" or not (high > 1 or low < (-1 if n_groups == 2 else 0))


def test_covariance_intervals_are_students_of_the_resampled_deviation():
    """Of every group and grouping; of two groups the second alone."""
    rows, by, rng = sample(0, 4), [(0, 0, 1, 1), (0, 1, 2, 0)], np.random.default_rng(5)

    def covariances(index):
        pairs = ((np.array(by[i])[rows.s[index]] == g) for i, g in ((0, 1), (1, 0), (1, 1), (1, 2)))
        return np.array([np.cov(mine, rows.score[index], bias=True)[0, 1] for mine in pairs])

    value = covariances(np.arange(200))
    spread = np.std([covariances(rng.integers(200, size=200)) for _ in range(9)], axis=0, ddof=1)
    near, far = (t.ppf(1 - tail, 8) * spread for tail in (0.025, 0.025 / 8))
    low, high = max(0, *(np.abs(value) - far)), max(np.abs(value) + near)
    found_interval = found(rows, by=by, resamples=9, seed=5)["covariance"]
    assert found_interval == pytest.approx((np.abs(value).max(), low, high))
    first = found(rows, by=by[:1], resamples=9, seed=5)["covariance"]
    assert first == pytest.approx((value[0], value[0] - near[0], value[0] + near[0]))
    assert np.isnan(found(rows, resamples=1)["covariance"][1:]).all()


def test_difference_of_correlated_estimates_is_zou_and_donners():
    first, second, r = Metric(0.5, 0.4, 0.7), Metric(0.3, 0.1, 0.35), 0.6
    below = 0.1**2 + 0.05**2 - 2 * r * 0.1 * 0.05
    above = 0.2**2 + 0.2**2 - 2 * r * 0.2 * 0.2
    expected = (0.2, 0.2 - below**0.5, 0.2 + above**0.5)
    assert intervals.difference(first, second, r) == pytest.approx(expected)


@pytest.mark.parametrize(("signed", "expected"), [
    ((0.2, 0.1, 0.4), (0.2, 0.1, 0.4)), ((-0.2, -0.4, -0.1), (0.2, 0.1, 0.4)),
    ((0.1, -0.3, 0.2), (0.1, 0.0, 0.3)), ((0.3, 0.1, 0.2), (0.3, 0.1, 0.3)),
])  # fmt: skip
def test_size_of_a_gap_reaches_0_where_the_gap_may_be_0(signed, expected):
    assert intervals.size(Metric(*signed)) == expected


@pytest.mark.parametrize(("gap", "limit", "answer", "rows"), [
    ((0.05, 0.0, 0.1), 0.1, "yes", 0), ((0.2, 0.11, 0.3), 0.1, "no", 0),
    ((0.03, 0.01, 0.07), 0.05, "probably", 720), ((0.2, 0.1, 0.3), 0.1, "probably not", 100),
    ((0.1, 0.0, 0.2), 0.1, "probably", None), (intervals.UNDEFINED, 0.1, "not measured", None),
    ((0.03, -0.1, 0.04), 0.05, "probably", 440), ((-0.2, -0.3, -0.1), 0.1, "probably not", 100),
    ((0.2, np.nan, np.nan), 0.1, "not measured", None),
])  # fmt: skip
def test_verdict_and_rows_to_settle_it(gap, limit, answer, rows):
    """100 (ratio 2.8016 / 1.96)^2 - 100 rows more, in two digits."""
    assert intervals.verdict(intervals.size(Metric(*gap)), limit) == answer
    assert intervals.rows_to_settle(Metric(*gap), limit, 100) == rows


@pytest.mark.parametrize(("accuracy", "constant", "said"), [
    ((0.9, 0.87, 0.93), 0.86, None), ((0.88, 0.84, 0.91), 0.86, "near"),
    ((0.865, 0.862, 0.868), 0.86, "near"), ((0.6, 0.55, 0.65), 0.86, "less accurate than"),
    ((0.9, 0.86, 0.94), 0.86, "near"), (intervals.UNDEFINED, 0.86, None),
    ((0.6, 0.55, 0.65), np.nan, None), ((1.0, 0.998, 1.0), 0.995, None),
])  # fmt: skip
def test_near_constant_is_a_model_that_gains_little(accuracy, constant, said):
    warning = intervals.near_constant(Metric(*accuracy), constant)
    assert warning is None if said is None else f"the model is {said} the constant" in warning


Y = np.array([1.0, -1.0] * 40 + [1.0, -1.0, -1.0])
ROWS = Scored(Y, np.repeat([1.0, -1.0, 1.0], (40, 40, 3)), np.repeat([0, 1, 2], (40, 40, 3)), 3)
"""Two groups of 40 rows, and one of three, of which one has the positive label."""


def test_group_sizes_are_by_label():
    assert intervals.group_sizes(ROWS._replace(n_groups=4))[2:] == [(3, 1, 2), (0, 0, 0)]


@pytest.mark.parametrize(("least", "label", "counts"), [
    (3, 0, True), (4, 0, False), (40, 0, False), (1, 1, True), (2, 1, False),
])  # fmt: skip
def test_small_groups_among_the_rows_that_a_gap_compares_are_left_out(least, label, counts):
    rows = ROWS if counts else ROWS.take(np.arange(80))._replace(n_groups=2)
    limited = found(ROWS, min_group_rows=least)
    expected = largest_pair([rows], [rows.y > 0 if label else True])
    assert limited[GAPS[label]] == pytest.approx(expected)
    of_all = ROWS if least <= 3 else ROWS.take(np.arange(80))._replace(n_groups=2)
    assert limited["selection_ratio"] == pytest.approx(lowest_ratio([of_all]))
    covariances = [np.cov(ROWS.s == g, ROWS.score, bias=True)[0, 1] for g in range(of_all.n_groups)]
    assert limited["covariance"].value == pytest.approx(np.abs(covariances).max())
    assert limited["accuracy"] == found(ROWS)["accuracy"]


def test_small_groups_leave_gaps_undefined_if_fewer_than_two_are_large():
    """By any grouping: rows 80 and 3 by the second."""
    for least, by in ((41, ()), (4, [(0, 1, 1), (0, 0, 1)])):
        limited = found(ROWS, min_group_rows=least, by=by)
        assert np.isnan([limited[name] for name in limited if name != "accuracy"]).all()
    empty = ROWS.take(np.arange(80))
    assert np.isnan(found(empty)["spd"]).all()
    assert found(empty, min_group_rows=1)["spd"].value == 1


def test_client_gaps_have_the_tail_of_one_of_all_clients():
    clients = {str(i): sample(i, n=400) for i in range(10)}
    gaps = intervals.client_gaps(clients)
    for name, rows in clients.items():
        assert gaps["spd"][name] == pytest.approx(pair(rows, 0, 1, True, 0.0025))
        odds = largest_pair([rows], [rows.y > 0, rows.y < 0], 0.0025)
        assert gaps["equalized_odds_difference"][name] == pytest.approx(odds)


def test_client_gaps_are_of_clients_and_groups_with_30_rows():
    def sized(*sizes):
        s = np.repeat(range(len(sizes)), sizes)
        return Scored(np.ones(len(s)), np.where(s == 1, 1.0, -1.0), s, len(sizes))

    clients = {"few": sized(29, 30), "three": sized(90, 90, 29), "two": sized(30, 30)}
    assert [*intervals.client_gaps(clients)["spd"]] == ["three", "two"]
    expected = pair(clients["three"], 0, 1, True, 0.0125)
    assert intervals.client_gaps(clients)["spd"]["three"] == pytest.approx(expected)
    assert intervals.client_gaps(clients)["equalized_odds_difference"] == {}
    nobody = intervals.client_gaps(clients, min_group_rows=91)
    assert nobody == {name: {} for name in NOTION_METRICS.values()}


def test_unfair_clients_are_named_the_furthest_first():
    overall, a, b = Metric(-0.2, -0.3, -0.15), Metric(0.2, 0.12, 0.28), Metric(-0.3, -0.42, -0.18)
    gaps = {"a": a, "b": b, "c": Metric(0.2, 0.1, 0.3)}
    said = intervals.unfair_clients(overall, gaps, 0.1)
    assert said.startswith("fair on average: no; unfair at 2 of 3 clients")
    assert said.index("b 0.300 (0.180 to 0.420)") < said.index("a 0.200 (0.120 to 0.280)")
    assert intervals.unfair_clients(overall, gaps, 0.2) is None
    assert intervals.unfair_clients(overall, {"a": a}, 0.1) is None
    assert intervals.unfair_clients(overall, {"a": a, "b": b}, 0.1)
