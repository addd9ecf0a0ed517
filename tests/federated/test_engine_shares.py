"""Sums by shares: the plain engine's numbers, with the noise of two aggregators."""

import numpy as np
import pytest
from scipy import stats
from summing_methods import Drawing, population

from synthfair.federated import Cohorts, Protection, engine
from synthfair.federated.engine import STEPS_IN_CLIP, shared, shared_total
from synthfair.secure.shares import Sharing

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

ADD, REPLACE = "add_or_remove", "replace"
USERS = population()[2]


@pytest.mark.parametrize("at_once", [2**19, 6])
def test_shares_sum_to_the_totals_of_the_plain_engine(monkeypatch, at_once):
    """Three at once leave padding in the last block, whose reports are no zeros here."""
    monkeypatch.setattr(engine, "ENTRIES_AT_ONCE", at_once)
    ways, totals = (Protection(10.0), shared(2, clip=10.0, relation=ADD, multiplier=None)), []
    for how in ways:
        drawn = Cohorts(9, 5, "poisson")
        done = engine.run(Drawing(), USERS, drawn, rounds=3, seed=1, protection=how)
        totals.append(done.history.total)
    np.testing.assert_allclose(*totals, atol=1e-8)


def test_shares_are_of_every_report_and_one_without_a_norm_counts_as_0(monkeypatch):
    seen, split = [], Sharing.split
    monkeypatch.setattr(Sharing, "split", lambda *args: seen.append(args[1]) or split(*args))
    vectors = shared(2, clip=1.0, relation=ADD, multiplier=None).vectors
    total = shared_total(vectors, np.array([[0.5, 0.0], [np.nan, 0.0], [np.inf, 1.0], [0.0, 2.0]]))
    assert total == pytest.approx([0.5, 1.0])
    half = STEPS_IN_CLIP // 2
    assert np.array(seen).tolist() == [[0, 0], [half, 0], [0, 0], [0, 0], [0, 2 * half]]


def test_shares_of_an_empty_cohort_have_the_noise_of_two_aggregators():
    """Each has noise that is enough: variance 2 (multiplier clip)^2 together, and no smaller."""
    sums, spread = shared(20_000, clip=2.0, relation=ADD, multiplier=3.0), 2**0.5 * 3 * 2.0
    found = shared_total(sums.vectors, [])
    assert sums.noise == pytest.approx(spread, rel=1e-8)
    assert stats.kstest(found / spread, "norm").pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(found / spread * wrong, "norm").pvalue < ALARM
    assert not np.array_equal(found, shared_total(sums.vectors, []))  # of the system's entropy


@pytest.mark.parametrize(("relation", "factor"), [(ADD, 1), (REPLACE, 2)])
@pytest.mark.parametrize("multiplier", [0.1, 1.7, 9e3])
def test_shares_have_enough_noise_of_one_aggregator_on_a_fine_grid(relation, factor, multiplier):
    """Rounding to the grid counts; the grid is so fine that noise counts as normal."""
    sums = shared(500, clip=0.3, relation=relation, multiplier=multiplier)
    norm = 0.3 + sums.vectors.step * 500**0.5 / 2
    noise = sums.vectors.step * sums.vectors.variance**0.5
    wanted = multiplier * factor * norm
    assert wanted * (1 - 1e-12) <= noise <= wanted * (1 + 1e-12)
    assert sums.shares.norm >= norm * (1 - 1e-12)
    assert 2**34 < sums.vectors.variance**0.5 < 2**36.01
