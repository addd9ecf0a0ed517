"""The attack on files: it finds a planted bug, does not pass a true epsilon, and knows the sums."""

import numpy as np
import pytest
from builders import SCHEMA, invented_rows, make_table, schema_with
from scipy.stats import binom, norm

import synthfair as sf
from benchmarks import audit
from benchmarks.harness import committed
from benchmarks.membership import MemberSetting, terms_of, told_by
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical
from synthfair.privacy.accounting import epsilon_of, mu_for
from synthfair.surrogate.records import read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums

FAIR = sf.DistillConfig(epsilon=1.0, delta=1e-6, n_synthetic=40, steps=5, k_min=5)
SURROGATE = sf.SurrogateConfig(epsilon=1.0, delta=1e-6, k_min=5)
HOME = Categorical(categories=("own", "rent"))
SMALL = schema_with(income=SCHEMA.columns["income"], home=HOME)
EVEN = invented_rows(SMALL, 400)
ROW = EVEN.tail(1).assign(income=100.0, home="rent", town="b", paid="no")


def least_epsilon(config, files=64):
    """It is too high at most once in 1,000."""
    attacked = audit.attack(EVEN, ROW, SMALL, config, files)
    return audit.bounds(*attacked[1:], confidence=0.999)[1]


def test_attack_finds_noise_that_is_too_small(monkeypatch):
    """As if sums over 400 rows were means."""
    monkeypatch.setattr(audit, "QUIET", 400)
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", audit.quiet_sum)
    assert least_epsilon(SURROGATE) > 1


@pytest.mark.slow
@pytest.mark.parametrize("config", [FAIR, SURROGATE], ids=["fair", "surrogate"])
def test_attack_does_not_pass_a_true_epsilon(config):
    assert least_epsilon(config) <= 1


def test_bounds_without_an_error_are_those_of_the_rule_for_none_in_n():
    most = 1 - 0.005 ** (1 / 50)
    low, gaussian = audit.bounds(50, 50, 0, 50)
    assert low == pytest.approx(np.log((1 - most) / most), rel=1e-4)
    assert gaussian == pytest.approx(epsilon_of(float(2 * norm.isf(most)), audit.DELTA))
    assert audit.bounds(0, 50, 50, 50) == audit.bounds(25, 50, 25, 50) == (0, 0)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_bounds_pass_the_best_attack_on_gaussian_noise_as_seldom_as_they_say(epsilon):
    """The chance of all counts by which they would, summed."""
    n, mu = 24, mu_for(epsilon, audit.DELTA)
    chance = binom.pmf(np.arange(n + 1), n, norm.sf(mu / 2))  # of false alarms, and of misses
    above = sum(
        chance[alarms] * chance[misses]
        for alarms, misses in np.argwhere(np.outer(chance, chance) > 1e-9)
        if max(audit.bounds(n - misses, n, alarms, n, confidence=0.9)) > epsilon
    )
    assert 0 < above <= 0.1


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_sums_that_a_file_tells_are_those_that_it_was_made_of(epsilon):
    """The combinations are solved for exactly; counts of records are near the sums."""
    config = sf.SurrogateConfig(epsilon=epsilon, delta=epsilon and 1e-6)
    spec, rows = SurrogateSpec(config, SCHEMA), sf.encode(make_table(2000), SCHEMA)
    sums = read_sums(TableSums(in_memory(rows), spec), spec)
    told, terms = told_by(surrogate_of(sums, spec), spec, sums), terms_of(rows, spec, sums)
    cell = 2 * rows.s + (rows.y > 0)
    assert told
    for c, one in told.items():
        true = terms.met[cell == c].sum(axis=0)
        wanted = one.directions @ (true if epsilon else 5 * np.rint(true / 5))
        off = one.sums[: len(wanted)] - wanted
        errors = np.sqrt(np.diag(one.errors)[: len(wanted)])
        assert np.abs(off).max() < (5.5 * errors.max() if epsilon else 1e-3)
        assert epsilon or len(wanted) > 5  # with noise, their number is drawn


def test_membership_stays_below_what_epsilon_allows():
    """Of the committed runs; without one the same attack exceeds the bound by far."""
    bound = MemberSetting("dutch", 100, 50, 1.0).most
    for epsilon, runs in committed("audit", "membership").by("epsilon").items():
        for own in runs.by("table").values():
            auc = own.mean("auc")
            beyond = auc.mean - 3 * auc.error * np.isinf(epsilon) > bound
            assert beyond == np.isinf(epsilon)
