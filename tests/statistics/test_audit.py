"""A membership-inference audit: what an attacker who knows all rows but one can tell of that one."""

import numpy as np
import pytest
from builders import make_schema, make_table, silent
from membership_audit import DELTA, EPSILON, RUNS, audited_epsilon, upper

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.privacy import mechanism
from synthfair.privacy.mechanism import NoisySum
from synthfair.privacy.noise import system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import read_sums
from synthfair.surrogate.sums import SurrogateSpec, TableSums

SCHEMA = make_schema()
TABLE = encode(make_table(30), SCHEMA)
CANARY = Encoded(np.full((1, 7), 5000.0), np.array([1]), np.array([-1.0]))  # far outside the schema
WITH_CANARY = Encoded(*(np.concatenate(pair) for pair in zip(TABLE, CANARY, strict=True)))
SPEC = SurrogateSpec(SurrogateConfig(epsilon=EPSILON, delta=DELTA), SCHEMA)


class SeenError(Exception):
    """The first noisy sums are there: all levels of all columns, and products of numbers."""


@pytest.fixture(autouse=True)
def _seen(monkeypatch):
    def sums(table, *asked):
        raise SeenError(np.concatenate(first_sums(table, *asked)))

    first_sums = TableSums.sums
    monkeypatch.setattr(TableSums, "sums", sums)


def outcomes(rows, noise, runs):
    """[runs, k] the first sums of as many private records; those that the row changes."""

    def sums(rows, noise):
        with pytest.raises(SeenError) as seen:
            read_sums(TableSums(in_memory(rows), SPEC, noise), SPEC)
        return seen.value.args[0]

    changed = sums(TABLE, silent) != sums(WITH_CANARY, silent)
    return np.array([sums(rows, noise)[changed] for _ in range(runs)])


def audited(noise=system_entropy, runs=RUNS):
    return audited_epsilon(outcomes, TABLE, WITH_CANARY, noise, runs)


class TooQuiet(NoisySum):
    """Noise as if for the mean of 30 rows."""

    def __init__(self, mechanism, relation, source):
        quiet = mechanism.model_copy(update={"noise": mechanism.noise / 30})
        super().__init__(quiet, relation, source)


def caught(noise=system_entropy):
    """Whether one of three audits says so; of 40 runs, one alone has missed a bug before."""
    return any(audited(noise) > EPSILON for _ in range(3))


def test_the_audit_stays_under_the_claim():
    assert audited() <= EPSILON


@pytest.mark.slow
def test_a_long_audit_stays_under_the_claim():
    """False alarm once in 1,000."""
    assert audited(runs=2000) <= EPSILON


def test_noise_left_out_is_caught():
    assert caught(silent)


def test_noise_scaled_to_the_mean_is_caught(monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", TooQuiet)
    assert caught()


def test_clipping_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(mechanism, "clip_rows", lambda rows, bound: rows)
    assert caught()


def test_the_audit_could_find_more_than_the_claim():
    """Its bound is at most log(1 / false) with no error seen: that must be above the claim."""
    assert np.log((1 - upper(0, RUNS // 2)) / upper(0, RUNS // 2)) > 1.5 * EPSILON
