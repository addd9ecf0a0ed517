"""Reports that contradict what they are taken for are told of; those that fit are not."""

import json

import numpy as np
import pytest

from synthfair.cli import main
from synthfair.measure.collection import make_collection, read_collection
from synthfair.measure.diagnostics import doubts
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.simulate import draw, population
from synthfair.measure.tally import collect, tally
from synthfair.privacy.noise import seeded

SHARES, MEANS = (0.7, 0.3), (0.2, -0.4)


def collected(mechanism, clients=20_000, seed=0, shares=SHARES, means=MEANS):
    people = draw(population(shares, means), clients, np.random.default_rng([seed, 1]))
    return collect(mechanism, *people, seeded(seed))


def collection_of(mechanism):
    names = tuple("abcd"[: mechanism.groups])
    return make_collection(names, mechanism)


@pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])
def test_reports_that_fit_raise_no_doubts(kind):
    """Of 600 measurements, with means at the ends and small groups; expected: 0.08 doubts."""
    cases = [(SHARES, MEANS, 20_000), ((0.99, 0.01), (1.0, -1.0), 500), (SHARES, (1, 1), 3000)]
    for shares, means, clients in cases:
        for epsilon in (0.5, 2.0, 6.0, 10.0):
            collection = collection_of(kind(2, epsilon, epsilon))
            for seed in range(25):
                found = collected(collection.noise(), clients, seed, shares, means)
                assert doubts(found, collection) == []
                assert doubts(found, collection, shares) == []


@pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])
def test_shares_that_are_not_the_given_ones(kind):
    collection = collection_of(kind(2, 1.0, 1.0))
    found = doubts(collected(collection.noise()), collection, shares=(0.3, 0.7))
    assert "a: the reports tell a share of 0.7" in found[0]
    assert "is not the one given" in found[0]


@pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_reports_without_noise(kind, epsilon):
    collection = collection_of(kind(2, epsilon, epsilon))
    group, value = draw(population(SHARES, (1.0, -1.0)), 20_000, np.random.default_rng(0))
    assert doubts(tally(group, value, 2), collection)


def test_reports_of_the_other_mechanism():
    collection = collection_of(LaplaceValue(2, 1.0, 1.0))
    (found,) = doubts(collected(RandomizedValue(2, 1.0, 1.0)), collection)
    assert found.startswith("values: the reports have a mean square of 1, in units of v, where")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_variance_of_squares_is_never_larger(value):
    m = LaplaceValue(2, 1.0, 3.0)
    found = m.noisy(np.full(400_000, value), seeded(0)) ** 2
    exact = 20 * m.scale**4 + 8 * m.scale**2 * value**2
    assert found.var() == pytest.approx(exact, rel=0.06)
    assert exact <= m.square_variance


def test_the_command_warns_and_writes_what_it_doubts(tmp_path, capsys):
    plan = ["gap", "plan", "--groups", "a", "b", "--epsilon", "2", "--clients", "4000"]
    assert main([*plan, "--output", str(tmp_path / "gap.json")]) == 0
    mark = read_collection(tmp_path / "gap.json").fingerprint
    lines = [f"{i:032x},{mark},{'ab'[i % 2]},{1 - 2 * (i % 2)}" for i in range(4000)]
    (tmp_path / "reports.csv").write_text("\n".join(lines) + "\n")
    aggregate = ["gap", "aggregate", str(tmp_path / "gap.json"), str(tmp_path / "reports.csv")]
    assert main([*aggregate, "--output", str(tmp_path / "found.json")]) == 0
    assert "intervals say nothing if" in capsys.readouterr().err
    assert json.loads((tmp_path / "found.json").read_text())["doubts"]
