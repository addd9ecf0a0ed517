"""How often intervals of gaps measured by private reports miss the truth.

A test fails once in a million, were its seed drawn anew; planted errors fail it.
"""

import numpy as np
import pytest
from local_clients import draw_clients, estimated
from scipy import stats

from benchmarks.gap.devices import collect
from synthfair.measure.estimate import Tally
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.plan import best_split
from synthfair.privacy.noise import seeded

ALARM = 1e-6


def drawn_tallies(m, clients, shares, means, repeats):
    """Tallies of M_R, drawn at once: each report is one of 2 d kinds, so they are multinomial."""
    kinds = [
        s * m.keep * (1 + bit * m.gain * mean) / 2 + (1 - s) * m.change / 2
        for s, mean in zip(shares, means, strict=True)
        for bit in (-1, 1)
    ]
    counts = np.random.default_rng(0).multinomial(clients, kinds, size=repeats)
    for low, high in zip(counts[:, ::2].astype(float), counts[:, 1::2].astype(float), strict=True):
        yield Tally(clients, low + high, high - low, low + high)


def missed(tallies, m, true, confidence):
    """In how many the interval of the first gap does not contain the true one."""
    gaps = [estimated(one, m, confidence=confidence).gaps[0] for one in tallies]
    return sum(not gap.low <= true <= gap.high for gap in gaps)


def covers(missed, n, confidence, alternative="greater"):
    return stats.binomtest(int(missed), n, 1 - confidence, alternative=alternative).pvalue > ALARM


CASES = [
    (20_000, (0.5, 0.5), (0.8, 0.3)),
    (1_000_000, (0.99, 0.01), (-0.9, 0.8)),
    (1_000_000, (0.99, 0.01), (0.0, 0.0)),
    (200_000, (0.6, 0.3, 0.1), (0.5, 0.1, -0.7)),
]


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize(("clients", "shares", "means"), CASES)
def test_gap_intervals_cover_as_stated(clients, shares, means, confidence):
    """Neither too few nor too many; one-sided limits would miss twice as many."""
    m, n, true = RandomizedValue(len(shares), 1.0, 1.0), 1500, means[1] - means[0]
    wrong = missed(drawn_tallies(m, clients, shares, means, n), m, true, confidence)
    assert covers(wrong, n, confidence, "two-sided")
    assert confidence > 0.95 or not covers(2 * wrong, n, confidence)


@pytest.mark.parametrize("epsilon", [4.0, 10.0])
@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.96), (-1.0, 1.0)])
def test_gap_intervals_cover_at_the_end_of_the_range(means, epsilon):
    """With 200 of 20,000 clients in a group, of whose reports hardly one has the other sign."""
    m, n, true = best_split("randomized", 2, epsilon), 1000, means[1] - means[0]
    tallies = list(drawn_tallies(m, 20_000, (0.99, 0.01), means, n))
    assert covers(missed(tallies, m, true, 0.99), n, 0.99)


@pytest.mark.parametrize("mean", [1.0, -1.0])
def test_gap_intervals_of_a_mean_at_the_end_allow_one_report_of_the_other_sign(mean):
    """Its number is Poisson's, of mean 0.1; without the skewness term 9 % are missed, not 1 %."""
    m, n = best_split("randomized", 2, 10.0), 1000
    tallies = drawn_tallies(m, 2000, (0.5, 0.5), (0.8, mean), n)
    groups = [estimated(one, m, confidence=0.99).groups[1] for one in tallies]
    assert covers(sum(not group.low <= mean <= group.high for group in groups), n, 0.99)


@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.3)])
def test_gap_intervals_of_laplace_cover_and_warn_of_nothing(means):
    m, n, rng, source = LaplaceValue(2, 2.0, 3.0), 200, np.random.default_rng(0), seeded(1)
    clients = [draw_clients((0.9, 0.1), means, 20_000, rng) for _ in range(n)]
    tallies = [collect(m, *some, source) for some in clients]
    assert covers(missed(tallies, m, means[1] - means[0], 0.95), n, 0.95)
    assert not any(estimated(one, m).warnings for one in tallies)
