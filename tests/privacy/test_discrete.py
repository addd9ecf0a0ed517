"""Exact discrete noise: against the exact distributions, and against OpenDP's samplers.

Each statistical test fails by chance once in 10^6; each also rejects a wrong sampler.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from synthfair.privacy.noise import (
    _below,
    _bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    laplace_variance,
    seeded,
)

ALARM = 1e-6

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(2**40 + 1, 2**38)]
VARIANCES = [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(2**70 + 1, 2**65)]
"""The last of each needs integers beyond 64 bits."""


def laplace_weights(scale, k):
    return np.exp(-np.abs(k) / float(scale))


def gaussian_weights(variance, k):
    return np.exp(-(k**2) / (2 * float(variance)))


def fits(samples, weights):
    """The p-value of a chi-squared test, with cells of 10 expected samples or more."""
    k = np.arange(-400, 401)
    chances = weights(k) / weights(k).sum()
    middle = k[chances * len(samples) >= 10]
    low, high = middle[0], middle[-1]
    cells = np.clip(k, low - 1, high + 1) - low + 1
    expected = np.bincount(cells, weights=chances) * len(samples)
    found = np.bincount(np.clip(samples, low - 1, high + 1) - low + 1, minlength=len(expected))
    large = expected > 5
    return stats.chisquare(
        np.append(found[large], found[~large].sum()),
        np.append(expected[large], max(expected[~large].sum(), 1e-9)),
    ).pvalue


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_has_its_distribution(scale):
    samples = discrete_laplace(scale, 20_000)
    assert fits(samples, lambda k: laplace_weights(scale, k)) > ALARM


@pytest.mark.parametrize("variance", VARIANCES)
def test_gaussian_has_its_distribution(variance):
    samples = discrete_gaussian(variance, 20_000)
    assert fits(samples, lambda k: gaussian_weights(variance, k)) > ALARM


def test_a_scale_that_is_a_tenth_off_is_seen():
    samples = discrete_laplace(Fraction(9, 10), 100_000)
    assert fits(samples, lambda k: laplace_weights(1, k)) < ALARM
    samples = discrete_gaussian(Fraction(9, 10), 100_000)
    assert fits(samples, lambda k: gaussian_weights(1, k)) < ALARM
    twice_zero = np.where(samples == 1, 0, samples)
    assert fits(twice_zero, lambda k: gaussian_weights(0.9, k)) < ALARM


@pytest.mark.parametrize(
    "scale", [Fraction(1, 2000), Fraction(1), Fraction(10**6), Fraction(2**50)]
)
def test_moments_of_laplace(scale):
    """Large scales have a kurtosis of 6, 1 has 6.5: 7 deviations, as the tail is not normal."""
    samples = discrete_laplace(scale, 20_000).astype(float)
    error = 5 * math.sqrt(laplace_variance(scale) / 20_000)
    assert abs(samples.mean()) <= error
    assert samples.var() == pytest.approx(laplace_variance(scale), rel=7 * math.sqrt(5.5 / 20_000))


def test_moments_of_a_wide_gaussian():
    """In size beyond any table; near the largest variance allowed."""
    samples = discrete_gaussian(Fraction(2**100 - 1), 10_000) / 2.0**50
    assert stats.kstest(samples, "norm").pvalue > ALARM


@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_samplers_of_opendp_have_the_same_distribution(scale):
    """Two independent implementations, by a chi-squared test of homogeneity."""
    dp = pytest.importorskip("opendp.prelude", reason="opendp is not installed (extra test)")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array((space >> dp.m.then_laplace(scale))([0] * 5000))
    exact = Fraction(repr(scale))
    assert same_distribution(theirs, discrete_laplace(exact, 20_000)) > ALARM
    assert same_distribution(theirs, discrete_laplace(exact / 2, 20_000)) < ALARM
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array((space >> dp.m.then_gaussian(scale))([0] * 5000))
    assert same_distribution(theirs, discrete_gaussian(exact**2, 20_000)) > ALARM
    assert same_distribution(theirs, discrete_gaussian(4 * exact**2, 20_000)) < ALARM


def same_distribution(one, other):
    edge = int(np.quantile(np.abs(other), 0.995))
    cells = np.arange(-edge, edge + 1)
    counts = [[np.sum(np.clip(x, -edge, edge) == cell) for cell in cells] for x in (one, other)]
    return stats.chi2_contingency(np.array(counts) + 1).pvalue


@pytest.mark.parametrize("m", [1, 2, 3, 2**62 + 1, 2**63, 2**63 + 1, 2**90])
def test_uniform_integers(m):
    drawn = _below(m, 6000, seeded(0))
    assert min(drawn) >= 0
    assert max(drawn) < m
    if m > 1:
        thirds = np.bincount([int(3 * int(x) // m) for x in drawn], minlength=3)
        size = np.array([-(-(i + 1) * m // 3) - -(-i * m // 3) for i in range(3)]) / m
        expected = size.astype(float) * len(drawn)
        full = expected > 0
        assert stats.chisquare(thirds[full], expected[full]).pvalue > ALARM


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 1), (5, 2), (2**80, 2**79 + 1)])
def test_bernoulli_of_an_exponential(top, bottom):
    drawn = _bernoulli_exp(np.array([top] * 20_000, dtype=object), bottom, seeded(1))
    chance = math.exp(-top / bottom)
    assert stats.binomtest(int(drawn.sum()), 20_000, chance).pvalue > ALARM


CHOICES = [
    (np.array([0, 3, 5, 5, -2, 9, 1]), Fraction(1, 3)),
    (np.array([-7, 11, 2]), Fraction(2**70 + 1, 2**74)),
    (np.array([4, 4, 1, 1, 1, 1, 1]), Fraction(0)),
    (np.array([2**61, 2**61 + 1, -(2**61)]), Fraction(1)),
]


def choice_p_value(scores, rate, assumed):
    """Of a chi-squared test of 4,000 choices."""
    drawn = [exponential_choice(scores, rate) for _ in range(4000)]
    chances = np.exp(float(assumed) * (scores - scores.max()).astype(float))
    expected = 4000 * chances / chances.sum()
    seen = np.bincount(drawn, minlength=len(scores))
    assert not seen[expected == 0].any()
    return stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue


@pytest.mark.parametrize(("scores", "rate"), CHOICES)
def test_choices_have_their_distribution(scores, rate):
    assert choice_p_value(scores, rate, rate) > ALARM


def test_choices_at_another_rate_are_seen():
    scores, rate = CHOICES[0]
    assert choice_p_value(scores, 2 * rate, rate) < ALARM
    assert choice_p_value(scores, rate / 2, rate) < ALARM


def test_a_choice_among_a_thousand_takes_few_calls(calls):
    scores = np.random.default_rng(0).integers(0, 10**7, size=1000)
    for _ in range(10):
        exponential_choice(scores, Fraction(25565, 2**31 + 2**21))
    assert calls() < 40_000


def test_the_same_bytes_give_the_same_noise_and_the_system_other():
    one, again = (discrete_laplace(Fraction(50), 100, seeded(3)) for _ in range(2))
    assert one.tolist() == again.tolist()
    assert discrete_laplace(Fraction(50), 100).tolist() != one.tolist()
    assert discrete_gaussian(Fraction(50), 0).dtype == np.int64


@pytest.mark.parametrize("wrong", [0, -1, 2**101])
def test_scales_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must be above 0"):
        discrete_laplace(Fraction(wrong), 1)
    with pytest.raises(ValueError, match="must be above 0"):
        discrete_gaussian(Fraction(wrong), 1)
