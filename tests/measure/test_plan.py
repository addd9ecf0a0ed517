"""Plans: the best split of epsilon, the hardest values, and two of three numbers give the third."""

import itertools
from functools import partial

import numpy as np
import pytest
from local_clients import estimated

from synthfair.errors import InputError
from synthfair.measure import plan as planning
from synthfair.measure.mechanisms import MECHANISMS, RandomizedValue


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.3), (2, 4.0), (8, 1.0)])
def test_split_uses_the_budget_and_beats_a_grid(kind, epsilon, d):
    loss = partial(planning.largest_variance, shares=np.full(2, 1 / d), clients=1)
    best = planning.best_split(kind, d, epsilon)
    assert epsilon - 2**-28 < best.epsilon <= epsilon  # steps of the grid of M_L are whole
    grid = np.linspace(0.02, 1, 25) * epsilon
    pairs = (MECHANISMS[kind](d, e1, e2) for e1 in grid for e2 in grid)
    assert loss(best) <= min(loss(m) for m in pairs if m.epsilon <= epsilon) * (1 + 1e-6)


def test_hardest_means_are_the_hardest_of_all_and_may_lie_on_an_edge():
    rng = np.random.default_rng(0)
    for _ in range(60):
        shares, m = rng.dirichlet([2.0, 2.0, 2.0]), RandomizedValue(3, *rng.uniform(0.2, 3, 2))
        means = rng.uniform(-1, 1, 2)
        some = planning.gap_variance(m, 1, shares[:2], means, rng.uniform(means**2, 1))
        assert some <= planning.largest_variance(m, shares[:2], 1) * (1 + 1e-9)
    m, shares = RandomizedValue(3, 1.1838, 4.4922), np.array([0.2436, 0.7505])
    found = planning.hardest_means(m, shares)
    variances = [planning.gap_variance(m, 1, shares, means) for means in found]
    assert 0 < min(abs(found[np.argmax(variances)])) < 1


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.1, 0.6, 0.3)])
def test_plan_has_the_precision_of_the_hardest_pair_whatever_its_order(shares):
    plan = planning.plan_gap(shares, epsilon=2.0, precision=0.1)
    assert planning.plan_gap(sorted(shares), epsilon=2.0, precision=0.1) == plan
    assert plan.precision <= 0.1
    widths = []
    for low, high in itertools.product((-1.0, 0.0, 0.9, 1.0), repeat=2):
        means = np.array([low, *[0.0] * (len(shares) - 2), high])
        one = planning.expected_tally(plan.mechanism, plan.clients, np.array(shares), means)
        gap = estimated(one, plan.mechanism).gaps[len(shares) - 2]
        widths.append(max(gap.high - gap.value, gap.value - gap.low))
    assert max(widths) == pytest.approx(0.1, rel=0.05)


def test_plan_of_two_numbers_gives_the_third_and_back():
    design = {"shares": (0.5, 0.5), "confidence": 0.99}
    plan = planning.plan_gap(**design, epsilon=2.0, precision=0.05)
    again = planning.plan_gap(**design, clients=plan.clients, precision=0.05)
    assert again.mechanism.epsilon == pytest.approx(2.0, rel=2e-3)
    least = planning.plan_gap(**design, clients=plan.clients, epsilon=2.0)
    assert least.precision == pytest.approx(0.05, rel=1e-3)
    in_units = planning.plan_gap(**design, clients=plan.clients, epsilon=2.0, unit=3.0)
    assert in_units.precision == pytest.approx(0.15, rel=1e-3)


def test_plan_is_of_the_groups_that_are_compared():
    shares, wanted = (0.45, 0.45, 0.1), {"epsilon": 1.0, "precision": 0.1}
    every = planning.plan_gap(shares, **wanted)
    some = planning.plan_gap(shares, compared=(0, 1), **wanted)
    assert some.clients < every.clients / 5
    assert some.mechanism.groups == 3


@pytest.mark.parametrize(("changes", "said"), [
    ({"epsilon": 0.0}, "epsilon"), ({"epsilon": np.nan}, "epsilon"), ({"clients": 1}, "clients"),
    ({"shares": (0.5, 0.6)}, "shares"), ({"compared": (0,)}, "compare"),
    ({"precision": 0.1}, "two of"), ({"epsilon": None, "precision": 2.0}, "precision"),
    ({"epsilon": None, "precision": 0.001}, "no finite epsilon"),
    ({"clients": None, "precision": 1e-9}, "precision"),
])  # fmt: skip
def test_plan_that_cannot_be_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        planning.plan_gap(**{"shares": (0.5, 0.5), "clients": 100_000, "epsilon": 1.0} | changes)
