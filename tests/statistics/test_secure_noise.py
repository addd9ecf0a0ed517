"""What the opened sum and each aggregator see: noise of every aggregator, and epsilon audited.

Each test fails by chance less than once in 10^6, and rejects planted bugs.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from secure_task import PLAIN, parties

from synthfair import secure
from synthfair.privacy.noise import discrete_laplace, seeded, system_entropy

ALARM = 1e-7
FIELDS = {"groups": tuple("abcdefghij"), "model": "1" * 64, "bins": 1000}
WIDE = secure.GroupCounts(**PLAIN | FIELDS | {"rows_per_client": 10**7})
"""20,000 counts with noise of scale 1: as many independent runs of a task of one count."""


def laplaces(number, scale=1):
    """The sum of several samples, drawn exactly, many times."""
    return sum(discrete_laplace(Fraction(scale), 200_000) for _ in range(number))


def noise_p_value(noise, reference):
    """Of a chi-squared test of homogeneity."""
    cells = np.arange(-4, 5)
    counts = [[np.sum(np.clip(x, -4, 4) == cell) for cell in cells] for x in (noise, reference)]
    return stats.chi2_contingency(np.array(counts)).pvalue


@pytest.mark.parametrize(
    ("aggregators", "wrong"),
    [(2, lambda: laplaces(1)), (2, lambda: laplaces(2, 0.5)), (2, lambda: 2 * laplaces(1)),
     (3, lambda: laplaces(2))],
    ids=["of one", "halved", "of one, doubled", "of two"],
)  # fmt: skip
def test_opened_sum_has_the_noise_of_every_aggregator(aggregators, wrong):
    found = secure.noisy_sum([np.zeros(WIDE.length, np.int64)] * 2, WIDE, aggregators=aggregators)
    assert noise_p_value(found.total, laplaces(aggregators)) > ALARM
    assert noise_p_value(found.total, wrong()) < ALARM
    assert found.variance == pytest.approx(aggregators * 1.84135, rel=1e-4)


def test_vectors_have_gaussian_noise_of_the_stated_variance():
    what = secure.ClippedVectors(length=20_000, clip=1.0, step=0.01, rho=0.5)
    found = secure.noisy_sum([np.zeros(20_000, np.int64)], what)
    spread = (2 * (100 + 20_000**0.5 / 2) ** 2) ** 0.5
    assert stats.kstest(found.total / spread, "norm").pvalue > ALARM
    assert stats.kstest(found.total / spread * 1.2, "norm").pvalue < ALARM
    assert found.variance == pytest.approx(spread**2, rel=1e-4)


def views(folder, honest=lambda: system_entropy):
    """What a corrupt aggregator sees, of a sum and of one with a row more in every count."""
    seen = []
    for row in (0, 1):
        place = folder / f"{row}"
        place.mkdir()
        group = parties(WIDE, clients=2)
        vectors = [np.zeros(WIDE.length, np.int64), np.full(WIDE.length, row)]
        sums = group.answers(place, vectors, [seeded(7), honest()])
        seen.append(secure.open_sums(group.task, sums).total - WIDE.noise(seeded(7)))
    return seen


def audited_epsilon(view, neighbours_view):
    """A lower bound of epsilon, by Clopper and Pearson.

    Of the event "at least 1", the likeliest of those whose chances differ most between a count
    without and with a further row.
    """
    n = len(view)
    hits = [int(np.sum(x >= 1)) for x in (view, neighbours_view)]
    high = stats.beta.ppf(1 - ALARM / 2, hits[0] + 1, n - hits[0])
    low = stats.beta.ppf(ALARM / 2, hits[1], n - hits[1] + 1) if hits[1] else 0.0
    return np.log(low / high) if low > 0 else -np.inf


def test_audit_stays_below_the_claimed_epsilon_and_sees_one_noise(tmp_path):
    """By files; and the attack is nearly the best there is."""
    without, with_row = views(tmp_path)
    assert noise_p_value(without, laplaces(1)) > ALARM
    assert noise_p_value(without, laplaces(2)) < ALARM
    assert 0.85 < audited_epsilon(without, with_row) < 1.0


def test_audit_catches_noise_that_the_corrupt_one_knows(tmp_path):
    known = WIDE.noise(seeded(7))
    view, other = views(tmp_path, lambda: seeded(7))
    assert audited_epsilon(view - known, other - known) > 5
