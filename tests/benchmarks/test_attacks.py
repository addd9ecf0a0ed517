"""The benchmark's attack on files: it finds a planted bug, and does not pass a true epsilon."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

import synthfair as sf
from benchmarks import audit
from benchmarks.harness import committed
from benchmarks.membership import MemberSetting, terms_of, told_by
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.privacy.accounting import epsilon_of, mu_for
from synthfair.surrogate.records import read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums

SCHEMA = Schema(
    name="small",
    label="y",
    positive=1,
    sensitive="s",
    columns={
        "a": Numeric(lower=0, upper=1),
        "b": Categorical(categories=("u", "v")),
        "s": Categorical(categories=("f", "m")),
        "y": Categorical(categories=(0, 1)),
    },
)
RNG = np.random.default_rng(0)
CHOICES = {"b": ["u", "v"], "s": ["f", "m"], "y": [0, 1]}
TABLE = pd.DataFrame(
    {"a": RNG.random(400)} | {name: RNG.choice(some, 400) for name, some in CHOICES.items()}
)
ROW = pd.DataFrame([{"a": 1.0, "b": "v", "s": "m", "y": 0}])
FAIR = sf.DistillConfig(epsilon=1.0, delta=1e-6, n_synthetic=40, steps=5, k_min=5)
SURROGATE = sf.SurrogateConfig(epsilon=1.0, delta=1e-6)


def least_epsilon(config, files=64):
    """It is too high at most once in 1,000."""
    return audit.bounds(*audit.attack(TABLE, ROW, SCHEMA, config, files)[1:], confidence=0.999)[1]


def test_the_attack_finds_noise_that_is_too_small(monkeypatch):
    """As if sums over 400 rows were means; a fair release tells less of them than its records."""
    monkeypatch.setattr(audit, "QUIET", 400)
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", audit.quiet_sum)
    assert least_epsilon(SURROGATE) > 1


@pytest.mark.slow
@pytest.mark.parametrize("config", [FAIR, SURROGATE], ids=["fair", "surrogate"])
def test_the_attack_does_not_pass_a_true_epsilon(config):
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
    rate = norm.sf(mu / 2)  # of false alarms, and of misses
    chance = binom.pmf(np.arange(n + 1), n, rate)
    above = sum(
        chance[alarms] * chance[misses]
        for alarms in range(n + 1)
        for misses in range(n + 1)
        if chance[alarms] * chance[misses] > 1e-9
        and max(audit.bounds(n - misses, n, alarms, n, confidence=0.9)) > epsilon
    )
    assert 0 < above <= 0.1


def test_the_ratio_tells_two_gaussians_apart_as_well_as_can_be():
    rng, inside = np.random.default_rng(0), np.arange(4000)[:, None] % 2 > 0
    spread = np.array([[1.0, 0.9], [0.0, 0.1]])
    numbers = rng.normal(size=(4000, 1, 2)) @ spread + 0.15 * inside[:, :, None] * [0, 1]
    score, truth = audit.guesses(numbers, inside)
    shift = np.linalg.norm(np.array([0, 0.15]) @ np.linalg.inv(spread))
    found = (score[truth][:, None] > score[~truth]).mean()
    assert found == pytest.approx(norm.cdf(shift / 2**0.5), abs=0.03)


def test_a_record_like_the_target_adds_its_own_terms():
    made = sf.distill_table(TABLE, SCHEMA, sf.SurrogateConfig()).release
    rows, known = sf.encode(ROW, SCHEMA), sf.encode(TABLE, SCHEMA)
    more = {"x": [1.0, 1.0], "s": 1, "y": -1.0, "weight": 3.0}
    added = {name: np.concatenate([getattr(made, name), [one]]) for name, one in more.items()}
    other = replace(made, **added)
    change = (
        audit.statistics_of(other, rows, known, SCHEMA)
        - audit.statistics_of(made, rows, known, SCHEMA)
    )[0, :6]
    # One row, two columns, one pair of them; 1/4 + 1/4, and its square; 2^2 by likeness.
    assert change == pytest.approx([3, 6, 3, 1.5, 0.75, 12])


def test_targets_are_of_the_pool_and_clients_rows_are_not(monkeypatch):
    table, schema = sf.load_dataset("loanapp")
    monkeypatch.setattr(audit, "population", lambda: (table, schema, sf.encode(table, schema)))
    for kind in ("random", "farthest"):
        targets, rest = audit.targets_of(kind, 3)
        assert len({*targets}) == audit.TARGETS
        assert not {*targets} & {*rest}


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_sums_that_a_file_tells_are_those_that_it_was_made_of(epsilon):
    """The combinations are solved for exactly; counts of records are near the sums."""
    config = sf.SurrogateConfig(epsilon=epsilon, delta=epsilon and 1e-6)
    spec, rows = SurrogateSpec(config, SCHEMA), sf.encode(TABLE, SCHEMA)
    sums = read_sums(TableSums(in_memory(rows), spec), spec)
    told, terms = told_by(surrogate_of(sums, spec), spec, sums), terms_of(rows, spec, sums)
    assert told
    cell = 2 * rows.s + (rows.y > 0)
    for c, one in told.items():
        true = terms.met[cell == c].sum(axis=0)
        wanted = one.directions @ (true if epsilon else 5 * np.rint(true / 5))
        off = one.sums[: len(wanted)] - wanted
        errors = np.sqrt(np.diag(one.errors)[: len(wanted)])
        assert np.abs(off).max() < (5.5 * errors.max() if epsilon else 1e-3)
        assert epsilon or len(wanted) > 5  # with noise, their number is drawn


def test_with_epsilon_membership_stays_below_what_epsilon_allows():
    """Of the committed runs; without one the same attack exceeds the bound by far."""
    bound = MemberSetting("dutch", 100, 50, 1.0).most
    for epsilon, runs in committed("audit", "membership").by("epsilon").items():
        for own in runs.by("table").values():
            auc = own.mean("auc")
            if np.isfinite(epsilon):
                assert auc.mean <= bound
            else:
                assert auc.mean - 3 * auc.error > bound
