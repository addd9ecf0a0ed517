"""How often intervals of metrics miss the truth.

Each test fails for more than :func:`most_missed`, which correct intervals reach once in a million;
each has a planted bug that exceeds it.
"""

import numpy as np
import pytest
from scipy.stats import binom
from score_rows import metrics

from synthfair.fairness.intervals import (
    Shares,
    client_gaps,
    metrics_with_intervals,
    ratio_interval,
    size,
)
from synthfair.fairness.metrics import Scored

FALSE_ALARM = 1e-6
GAPS = "equal_opportunity_difference", "equalized_odds_difference"


def most_missed(runs, chance=0.05):
    """Of so many intervals; more are missed once in a million if each is with this chance."""
    return binom.isf(FALSE_ALARM, runs, chance)


def limits_of(rows):
    found = metrics_with_intervals(rows, resamples=1, seed=0)
    return [found[name][1:] for name in GAPS]


def percentiles_of(rows):
    """The planted bug: of resampled rows, which leave out a gap of 0."""
    rng, n = np.random.default_rng(0), len(rows.y)
    drawn = [metrics(rows.take(rng.integers(n, size=n))) for _ in range(80)]
    return [np.quantile([one[name] for one in drawn], [0.025, 0.975]) for name in GAPS]


def missed(sizes, true_positive, false_positive, runs, limits=limits_of):
    """Of runs with so many rows of each label in each group, how often the truth is not within."""
    rng, wrong, g = np.random.default_rng(0), np.zeros(2, int), np.arange(len(sizes))
    s, y = np.repeat(np.tile(g, 2), np.tile(sizes, 2)), np.repeat([1.0, -1.0], sum(sizes))
    chance = np.where(y > 0, np.array(true_positive)[s], np.array(false_positive)[s])
    gaps = [np.ptp(rates) for rates in (true_positive, false_positive)]
    truth = [true_positive[1] - true_positive[0] if len(sizes) == 2 else gaps[0], max(gaps)]
    for _ in range(runs):
        rows = Scored(y, np.where(rng.random(len(y)) < chance, 1.0, -1.0), s, len(sizes))
        wrong += [not low <= t <= high for t, (low, high) in zip(truth, limits(rows), strict=True)]
    return wrong


SMALL = [
    ((20, 20), (0.9, 0.9), (0.3, 0.3)),
    ((100, 1000), (0.9, 0.92), (0.3, 0.3)),
    ((60, 60), (0.98, 0.98), (0.02, 0.02)),
    ((200, 200), (0.8, 0.5), (0.2, 0.2)),
    ((50, 100, 500, 30), (0.9, 0.8, 0.9, 0.9), (0.1, 0.1, 0.4, 0.1)),
]


@pytest.mark.parametrize(("sizes", "true_positive", "false_positive"), SMALL)
def test_intervals_cover_also_near_zero(sizes, true_positive, false_positive):
    assert (missed(sizes, true_positive, false_positive, 400) <= most_missed(400)).all()


def test_intervals_by_percentiles_would_not_cover_near_zero():
    wrong = missed((300, 300), (0.5, 0.5), (0.5, 0.5), 60, percentiles_of)
    assert wrong[1] > most_missed(60)


@pytest.mark.parametrize("rates", [(0.4, 0.4), (0.4, 0.2), (0.5, 0.05)])
def test_intervals_of_a_wider_tail_would_not_cover(rates):
    """Those of the difference, and of the ratio of the lower rate to the higher."""
    rng, n, wrong = np.random.default_rng(0), np.array([200, 100]), np.zeros((2, 2), int)
    gap, share = rates[1] - rates[0], rates[1] / rates[0]
    for _ in range(400):
        drawn = Shares(rng.binomial(n, rates).astype(float), n)
        for i, tail in enumerate((0.025, 0.16)):
            (low,), (high,) = drawn.differences(tail)[1:]
            ratio = ratio_interval(drawn, tail=tail)
            wrong[i] += [not low <= gap <= high, not ratio.low <= share <= ratio.high]
    assert wrong[0].max() <= most_missed(400) < wrong[1].min()


def test_client_gaps_hardly_ever_show_an_unfair_client_by_chance():
    """Of 20 fair clients, one by one, there is nearly always one above a limit of its own."""
    rng, together, alone = np.random.default_rng(0), 0, 0
    for _ in range(100):
        clients = {}
        for name in range(20):
            s = rng.integers(2, size=400)
            score = np.where(rng.random(400) < 0.3 + 0.1 * s, 1.0, -1.0)
            clients[str(name)] = Scored(rng.choice([-1.0, 1.0], 400), score, s)
        together += any(size(gap).low > 0.1 for gap in client_gaps(clients)["spd"].values())
        each = [metrics_with_intervals(rows, resamples=1, seed=0) for rows in clients.values()]
        alone += any(size(one["spd"]).low > 0.1 for one in each)
    assert together <= most_missed(100) < alone
