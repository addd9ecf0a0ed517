"""Exact discrete noise, alone and in mechanisms, against its distributions.

Each statistical test fails by chance less than once in 10^6, and rejects a wrong sampler.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from synthfair.privacy import noise
from synthfair.privacy.mechanism import (
    ExponentialMechanism,
    GaussianMechanism,
    NoisySum,
    PrivateChoice,
)
from synthfair.privacy.noise import discrete_gaussian, discrete_laplace, exponential_choice, seeded

ALARM = 1e-7
K = np.arange(-400, 401)
HUGE = Fraction(2**70 + 1, 2**65)  # needs integers beyond 64 bits
SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


def p_value(found, chances, n):
    """Of a chi-squared test of counts; cells of fewer than 10 expected are one."""
    assert not found[chances == 0].any()
    rare = chances * n < 10
    found, expected = (
        np.append(values[~rare], values[rare].sum()) for values in (found, chances * n)
    )
    return stats.chisquare(found[expected > 0], expected[expected > 0]).pvalue


def fit(samples, kind, parameter):
    """The p-value of samples in [-400, 400] of a scale, or of a variance."""
    squared = {"laplace": 2 * np.abs(K), "gaussian": K**2 / float(parameter)}[kind]
    weights = np.exp(-squared / 2 / (float(parameter) if kind == "laplace" else 1))
    return p_value(np.bincount(samples + 400, minlength=801), weights / weights.sum(), len(samples))


@pytest.mark.parametrize("parameter", [Fraction(1, 3), Fraction(1), Fraction(7, 3), HUGE])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_noise_has_its_distribution(kind, parameter):
    parameter = parameter / 8 if parameter == HUGE and kind == "laplace" else parameter
    samples = SAMPLERS[kind](parameter, 20_000)
    assert fit(samples, kind, parameter) > ALARM
    assert fit(SAMPLERS[kind](parameter * 9 / 10, 200_000), kind, parameter) < ALARM
    assert fit(np.where(samples == 1, 0, samples), kind, parameter) < ALARM  # 0 twice as often


@pytest.mark.parametrize("scale", [Fraction(1, 2000), Fraction(10**6), Fraction(2**50)])
def test_laplace_of_any_scale_has_its_moments(scale):
    """The kurtosis is at most 6 where there is any noise: 7 deviations, as tails are heavy."""
    samples = discrete_laplace(scale, 20_000).astype(float)
    variance = noise.laplace_variance(scale)
    assert abs(samples.mean()) <= 6 * math.sqrt(variance / 20_000)
    assert samples.var() == pytest.approx(variance, rel=7 * math.sqrt(5.5 / 20_000))


def test_gaussian_near_its_largest_variance_is_normal():
    samples = discrete_gaussian(Fraction(2**100 - 1), 10_000) / 2.0**50
    assert stats.kstest(samples, "norm").pvalue > ALARM
    assert stats.kstest(1.2 * samples, "norm").pvalue < ALARM


@pytest.mark.parametrize("m", [2, 3, 2**62 + 1, 2**63, 2**63 + 1, 2**90])
def test_uniform_integers_are_below_their_bound_and_equally_likely(m):
    assert not noise._below(1, 5, seeded(0)).any()
    drawn = noise._below(m, 6000, seeded(0))
    assert min(drawn) >= 0
    assert max(drawn) < m
    sizes = np.array([-(-(i + 1) * m // 3) - -(-i * m // 3) for i in range(3)]) / m
    thirds = np.bincount([3 * int(x) // m for x in drawn], minlength=3)
    assert p_value(thirds, sizes.astype(float), 6000) > ALARM


def test_uniform_fractions_are_above_0_and_at_most_1():
    assert noise.uniform(1, bytes).tolist() == [2.0**-53]
    assert noise.uniform(1, lambda n: b"\xff" * n).tolist() == [1.0]


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 1), (5, 2), (2**80, 2**79 + 1)])
def test_bernoulli_number_has_the_chance_of_its_exponential(top, bottom):
    drawn = noise._bernoulli_exp(np.array([top] * 20_000, dtype=object), bottom, seeded(1))
    assert stats.binomtest(int(drawn.sum()), 20_000, math.exp(-top / bottom)).pvalue > ALARM


CHOICES = [
    (np.array([0, 3, 5, 5, -2, 9, 1]), Fraction(1, 3)),
    (np.array([-7, 11, 2]), Fraction(2**70 + 1, 2**74)),
    (np.array([4, 4, 1, 1, 1, 1, 1]), Fraction(0)),
    (np.array([2**61, 2**61 + 1, -(2**61)]), Fraction(1)),
]


@pytest.mark.parametrize(("scores", "rate"), CHOICES)
def test_choice_is_as_likely_as_the_exponential_of_its_score(scores, rate):
    drawn = [exponential_choice(scores, rate) for _ in range(4000)]
    for assumed, is_right in ((rate, True), (rate + Fraction(1, 3), False)):
        weights = np.exp(float(assumed) * (scores - scores.max()).astype(float))
        found = np.bincount(drawn, minlength=len(scores))
        assert (p_value(found, weights / weights.sum(), 4000) > ALARM) == is_right


def test_choice_among_a_thousand_takes_few_calls(calls):
    scores = np.random.default_rng(0).integers(0, 10**7, size=1000)
    for _ in range(10):
        exponential_choice(scores, Fraction(25565, 2**31 + 2**21))
    assert calls() < 40_000


def test_noise_is_repeated_by_the_same_bytes_alone(monkeypatch):
    one, again = (discrete_laplace(Fraction(50), 100, seeded(3)) for _ in range(2))
    assert one.tolist() == again.tolist()
    monkeypatch.setattr("os.urandom", seeded(3))  # whose bytes are the default
    assert discrete_laplace(Fraction(50), 100).tolist() == one.tolist()
    assert discrete_gaussian(Fraction(50), 0).dtype == np.int64
    with pytest.raises(ValueError, match="-1"):
        seeded(-1)


@pytest.mark.parametrize("wrong", [0, -1, 2**101])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_noise_out_of_range_is_refused(kind, wrong):
    with pytest.raises(ValueError, match=f"= {wrong}: "):
        SAMPLERS[kind](Fraction(wrong), 1)


# Mechanisms

SUM = GaussianMechanism(name="pairs", sensitivity=1.0, noise=4.0, grid=2.0**-34)


def noise_p_values(steps, deviation):
    """Of chi-squared tests: 20 equally likely cells; and the last four bits, which are uniform."""
    cells = (20 * stats.norm.cdf(steps / deviation)).astype(int)
    counts = np.bincount(cells, minlength=20), np.bincount(steps % 16, minlength=16)
    return [stats.chisquare(count).pvalue for count in counts]


def test_released_sum_has_discrete_gaussian_noise_of_the_stated_deviation():
    total = np.full(20_000, 10**17)
    released = NoisySum(SUM, "replace", noise.system_entropy).release(total) / SUM.grid
    steps = np.array([int(number) for number in released]) - 10**17
    near, low_bits = noise_p_values(steps, 2.0**36)
    assert near > ALARM
    assert noise_p_values(steps, 0.9 * 2.0**36)[0] < ALARM
    # A number of 10^17 has no room for the last four bits; one near 0 has.
    assert low_bits < ALARM
    near_zero = NoisySum(SUM, "replace", noise.system_entropy).release(0 * total) / SUM.grid
    assert min(noise_p_values(near_zero.astype(int), 2.0**36)) > ALARM
    np.testing.assert_array_equal(near_zero, near_zero.round())


def test_choice_has_the_chance_that_its_epsilon_gives():
    settings = {"name": "tree", "sensitivity": 1 + 2.0**-10, "epsilon": 1.0, "times": 3000}
    stated, scores = ExponentialMechanism(**settings), np.array([10.0, 12.0])
    choice = PrivateChoice(stated, noise.system_entropy)
    seconds = sum(choice.choose(scores) for _ in range(3000))
    for factor, is_right in ((1, True), (0.5, False), (2, False)):
        chance = 1 / (1 + math.exp(-factor * 2 / (2 * stated.sensitivity)))
        assert (stats.binomtest(seconds, 3000, chance).pvalue > ALARM) == is_right
