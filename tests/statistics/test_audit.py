"""A membership-inference audit: what an attacker who knows all rows but one can tell of that one."""

import numpy as np
import pytest
from builders import SCHEMA, make_table, silent
from membership_audit import DELTA, EPSILON, audited_epsilon

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.privacy.mechanism import NoisySum
from synthfair.privacy.noise import system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import read_sums
from synthfair.surrogate.sums import SurrogateSpec, TableSums

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
    monkeypatch.setattr("synthfair.surrogate.levels.MAX_BINS_PRIVATE", 2)  # less noise to draw


def first_sums_of(rows, noise):
    with pytest.raises(SeenError) as seen:
        read_sums(TableSums(in_memory(rows), SPEC, noise), SPEC)
    return seen.value.args[0]


def outcomes(rows, noise, runs):
    """[runs, k] the first sums of as many private records; those that the row changes."""
    changed = first_sums_of(TABLE, silent) != first_sums_of(WITH_CANARY, silent)
    return np.array([first_sums_of(rows, noise)[changed] for _ in range(runs)])


class TooQuiet(NoisySum):
    """Noise as if for the mean of 30 rows."""

    def __init__(self, mechanism, relation, source):
        quiet = mechanism.model_copy(update={"noise": mechanism.noise / 30})
        super().__init__(quiet, relation, source)


def audited(noise=system_entropy):
    """False alarm: 4e-7."""
    return audited_epsilon(outcomes, TABLE, WITH_CANARY, noise, runs=240, confidence=1 - 2e-7)


def test_audit_stays_under_the_claim():
    assert audited() <= EPSILON


BUGS = {
    "no noise": (silent, "synthfair.surrogate.sums.NoisySum", NoisySum),
    "noise of a mean": (system_entropy, "synthfair.surrogate.sums.NoisySum", TooQuiet),
    "no clipping": (system_entropy, "synthfair.privacy.mechanism.clip_rows", lambda rows, _: rows),
}


@pytest.mark.parametrize(("noise", "name", "wrong"), BUGS.values(), ids=BUGS)
def test_audit_catches(monkeypatch, noise, name, wrong):
    monkeypatch.setattr(name, wrong)
    assert audited(noise) > EPSILON
