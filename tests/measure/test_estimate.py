"""Estimates against the moments of reports in closed form, and what contradicts the public file."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from local_clients import estimated
from scipy.optimize import brentq

from synthfair.errors import InputError
from synthfair.measure import estimate
from synthfair.measure.aggregate import ReportSums
from synthfair.measure.collection import NO_VALUE, make_collection
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.plan import gap_variance

KINDS = pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])


def moments(m, shares, means, power, squares):
    """[d] mean of v'^power over all reports that name a group, and 0 for others."""
    noise = 2 * (2 / m.epsilon2) ** 2
    kept, changed = {
        "randomized": ((1, m.gain * means, 1, m.gain * means), (1, 0, 1, 0)),
        "laplace": ((1, means, squares + noise, means * (squares + 3 * noise)), (1, 0, noise, 0)),
    }[m.kind]
    return m.keep * shares * kept[power] + m.change * (1 - shares) * changed[power]


def expected(m, clients, shares, means, squares=1.0):
    given = np.array(shares), np.array(means)
    sums = [clients * moments(m, *given, power, squares) for power in range(3)]
    return estimate.Tally(clients, *sums)


@KINDS
@given(parts=st.lists(st.tuples(st.floats(0.1, 1), st.floats(-1, 1)), min_size=2, max_size=5))
def test_estimates_of_expected_reports_are_the_truth_second_minus_first(kind, parts):
    shares, means = np.array(parts).T / np.array([[sum(p for p, _ in parts)], [1]])
    m = kind(len(parts), 1.0, 1.5)
    found = estimated(expected(m, 10**9, shares, means), m)
    assert [group.share for group in found.groups] == pytest.approx(shares, abs=1e-6)
    assert [group.mean for group in found.groups] == pytest.approx(means, abs=1e-5)
    pairs = itertools.combinations(zip("abcde", means, strict=False), 2)
    for gap, ((name, mean), (other, other_mean)) in zip(found.gaps, pairs, strict=True):
        assert (gap.first, gap.second) == (name, other)
        assert gap.value == pytest.approx(other_mean - mean, abs=1e-5)
        assert gap.low - 1e-9 <= gap.value <= gap.high + 1e-9
    assert not any("share" in line or "mean of" in line for line in found.warnings)


def test_estimates_are_in_the_values_unit_and_compare_only_groups_with_values():
    m = RandomizedValue(3, 2.0, 2.0)
    public = make_collection(("f", NO_VALUE, "m"), m, lower=10.0, upper=14.0)
    sums = ReportSums(expected(m, 10**8, (0.3, 0.2, 0.5), (0.5, 0.0, -1.0)))
    found = estimate.estimate_gaps(sums, public)
    assert (found.epsilon, found.confidence) == (m.epsilon, 0.95)
    ends = [[group[name] for group in map(dict, found.groups)] for name in ("low", "mean", "high")]
    for numbers in ends:
        assert numbers == pytest.approx([13, np.nan, 10], abs=0.01, nan_ok=True)
    (gap,) = found.gaps
    assert (gap.first, gap.second, gap.value) == ("f", "m", pytest.approx(-3))
    assert gap.low == pytest.approx(gap.value, abs=0.01) == gap.high


def cumulants(m, share, mean, squares):
    """Mean, variance and third moment of W, of the module."""
    raw = [moments(m, share, mean, power, squares) for power in range(4)]
    terms = -mean / (m.keep - m.change), 1 / (m.keep * m.gain)
    w1, w2, w3 = (
        sum(math.comb(k, i) * terms[0] ** (k - i) * terms[1] ** i * raw[i] for i in range(k + 1))
        for k in (1, 2, 3)
    )
    return w1, w2 - w1**2, w3 - 3 * w1 * w2 + 2 * w1**3


def score_limit(m, clients, group, z, side):
    """The last mean that the module's test does not reject, by a search."""
    (share, mean, square), limits = group, []
    for bound in (lambda _: square, np.square):

        def accepted(tested, bound=bound):
            end = np.clip(tested, -1, 1)
            variance = max(cumulants(m, share, end, bound(end))[1], 0)
            return z * (variance / clients) ** 0.5 - share * side * (tested - mean)

        limit = brentq(accepted, mean, 9 * side)
        end = np.clip(limit, -1, 1)
        tail = max(0, *(-side * cumulants(m, share, end, squares)[2] for squares in (end**2, 1)))
        skewness = tail / cumulants(m, share, end, bound(end))[1] / share / clients
        limits.append(side * limit + max(z**2 - 1, 0) / 6 * skewness)
    return side * max(limits)


@KINDS
@pytest.mark.parametrize(("clients", "z"), [(3000, 1.96), (1000, 3.0), (10**6, 0.5)])
def test_limits_of_means_are_those_of_the_score_test_and_make_the_gaps_interval(kind, clients, z):
    m, shares = kind(3, 4.0, 6.0), np.array([0.5, 0.3, 0.2])
    values, squares = np.array([0.2, -0.9, 0.99]), np.array([0.3, 0.85, 0.985])
    one = expected(m, clients, shares, values, squares)
    means = estimate.estimate_means(one, m)
    found = estimate.limits_of_means(one, m, means, z)
    given = [*zip(shares, values, squares, strict=True)]
    for limits, side in zip(found, (-1, 1), strict=True):
        wanted = [score_limit(m, clients, group, z, side) for group in given]
        assert limits == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(means.share_errors**2, m.share_variance(shares, clients))
    # To first order, a mean errs by W over the share; a report is in one group's alone.
    w1, variance, _ = cumulants(m, shares, values, squares)
    covariance = (np.diag(variance + w1**2) - np.outer(w1, w1)) / np.outer(shares, shares) / clients
    np.testing.assert_allclose(means.covariance, covariance, rtol=1e-6, atol=1e-12)
    (xx, xy), (_, yy) = covariance[:2, :2]
    of_gap = gap_variance(m, clients, shares[:2], values[:2], squares[:2])
    assert of_gap == pytest.approx(xx + yy - 2 * xy)
    low, high = estimate.gap_interval(0, 1, means, found)
    (a, b), ((low_a, low_b), (high_a, high_b)) = values[:2], found[:, :2]
    both = 2 * xy / (xx * yy) ** 0.5
    for end, x, y in ((low, b - low_b, high_a - a), (high, high_b - b, a - low_a)):
        assert abs(end - b + a) == pytest.approx((x**2 + y**2 - both * x * y) ** 0.5, rel=1e-6)


def test_intervals_of_a_group_that_may_be_empty_are_the_whole_range():
    m = RandomizedValue(2, 1.0, 1.0)
    one = expected(m, 20_000, (0.99, 0.01), (0.8, 0.3))
    means = estimate.estimate_means(one, m)
    z = means.shares[1] / means.share_errors[1]
    for part, is_open in ((0.99, False), (1.01, True)):
        limits = estimate.limits_of_means(one, m, means, part * z)
        assert (limits == [[-np.inf], [np.inf]]).tolist() == [[False, is_open]] * 2
        assert estimate.gap_interval(0, 1, means, limits) == (-2.0, 2.0) or not is_open
    (gap,) = estimated(expected(m, 20_000, (1.01, -0.01), (0.0, 0.0)), m).gaps
    assert (gap.value, gap.low, gap.high) == pytest.approx((np.nan, -2, 2), nan_ok=True)


@pytest.mark.parametrize(("errors", "warned"), [(3.9, False), (4.1, True)])
def test_warnings_of_shares_begin_beyond_four_standard_errors(errors, warned):
    m, n = RandomizedValue(2, 1.0, 1.0), 10**8
    share = -errors * (m.change * m.keep / n) ** 0.5 / (m.keep - m.change)
    lines = estimated(expected(m, n, (1 - share, share), (0.0, 0.0)), m).warnings
    assert any("share" in line for line in lines) == warned


@KINDS
@pytest.mark.parametrize("mean", [-1.0, 1.0, -1.2, 1.2])
def test_warnings_of_means_are_of_those_outside_their_range(kind, mean):
    m = kind(2, 1.0, 1.5)
    lines = estimated(expected(m, 10**7, (0.5, 0.5), (0.0, mean)), m).warnings
    assert [line[0] for line in lines] == ["b"] * (abs(mean) > 1)


@KINDS
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_warnings_of_reports_without_noise_or_of_the_other_mechanism(kind, epsilon):
    m, group = kind(2, epsilon, epsilon), np.arange(20_000) % 3 // 2
    assert estimated(estimate.tally(group, 1.0 - 2 * group, 2), m).warnings
    (other,) = {RandomizedValue, LaplaceValue} - {kind}
    reports = expected(other(2, epsilon, epsilon), 20_000, (0.7, 0.3), (0.2, -0.4))
    assert [line[:6] for line in estimated(reports, m).warnings] == ["values"]


def test_estimates_that_cannot_be_are_refused():
    m = RandomizedValue(2, 1.0, 1.0)
    for clients, confidence, said in ((1, 0.95, "reports"), (9, 1.0, "confidence"), (9, 0, "conf")):
        with pytest.raises(InputError, match=said):
            estimated(expected(m, clients, (0.5, 0.5), (0, 0)), m, confidence=confidence)
    with pytest.raises(InputError, match="shares"):
        estimate.require_shares([1.5, -0.5], 2)
