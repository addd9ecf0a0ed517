"""Reports that contradict the public file are noticed; those that fit it are not."""

import json

import numpy as np
import pytest
from local_clients import draw_clients, estimated

from benchmarks.gap.devices import collect
from synthfair.cli import main
from synthfair.measure.collection import Collection
from synthfair.measure.estimate import tally
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded

SHARES, MEANS = (0.7, 0.3), (0.2, -0.4)
KINDS = pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])


def clients_of(shares=SHARES, means=MEANS, clients=20_000, seed=0):
    return draw_clients(shares, means, clients, np.random.default_rng([seed, 1]))


def reports_of(mechanism, *, seed=0, **clients):
    return collect(mechanism, *clients_of(seed=seed, **clients), seeded(seed))


@KINDS
@pytest.mark.parametrize(
    ("shares", "means", "clients"),
    [(SHARES, MEANS, 20_000), ((0.99, 0.01), (1.0, -1.0), 500), (SHARES, (1, 1), 3000)],
)
def test_reports_that_fit_give_no_contradiction(kind, shares, means, clients):
    """Of 60 measurements in all; about 0.01 false alarms are expected."""
    for epsilon in (0.5, 10.0):
        mechanism = kind(2, epsilon, epsilon)
        for seed in range(5):
            found = reports_of(mechanism, seed=seed, shares=shares, means=means, clients=clients)
            assert estimated(found, mechanism).warnings == []


@KINDS
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_reports_without_noise(kind, epsilon):
    group, value = clients_of(means=(1.0, -1.0))
    assert estimated(tally(group, value, 2), kind(2, epsilon, epsilon)).warnings


def test_reports_of_the_other_mechanism():
    reports = reports_of(RandomizedValue(2, 1.0, 1.0))
    (found,) = estimated(reports, LaplaceValue(2, 1.0, 1.0)).warnings
    assert found.startswith("values: the reports have a mean square of 1 in units of v, but")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_variance_of_squares_is_never_larger(value):
    m = LaplaceValue(2, 1.0, 3.0)
    found = m.add_noise(np.full(400_000, value), seeded(0)) ** 2
    exact = 20 * m.scale**4 + 8 * m.scale**2 * value**2
    assert found.var() == pytest.approx(exact, rel=0.06)
    assert exact <= m.square_variance


def test_the_command_warns_and_writes_the_contradictions(tmp_path, capsys):
    plan = ["gap", "plan", "--groups", "a", "b", "--epsilon", "2", "--clients", "4000"]
    assert main([*plan, "--output", str(tmp_path / "gap.json")]) == 0
    mark = Collection.read(tmp_path / "gap.json").fingerprint
    lines = [f"{i:032x},{mark},{'ab'[i % 2]},{1 - 2 * (i % 2)}" for i in range(4000)]
    (tmp_path / "reports.csv").write_text("\n".join(lines) + "\n")
    aggregate = ["gap", "aggregate", str(tmp_path / "gap.json"), str(tmp_path / "reports.csv")]
    assert main([*aggregate, "--output", str(tmp_path / "found.json")]) == 0
    assert "the intervals are not valid" in " ".join(capsys.readouterr().err.split())
    assert json.loads((tmp_path / "found.json").read_text())["warnings"]
