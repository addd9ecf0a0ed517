"""A membership-inference audit of all sums of a private surrogate, by one row outside the schema."""

import numpy as np
import pandas as pd
import pytest
from membership_audit import DELTA, EPSILON, audited_epsilon

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.privacy.mechanism import NoisySum
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import read_sums
from synthfair.surrogate.sums import SurrogateSpec, TableSums

COLUMNS = {
    "number": Numeric(lower=0.0, upper=1.0),
    "flag": Categorical(categories=("a", "b")),
    "s": Categorical(categories=("u", "v")),
    "y": Categorical(categories=(0, 1)),
}
SCHEMA = Schema(name="any", label="y", positive=1, sensitive="s", columns=COLUMNS)
TABLE = {
    "number": [0.0, 0.2, 0.9] * 400,
    "flag": "a",
    "s": ["u", "v"] * 600,
    "y": [0, 0, 1, 1] * 300,
}
ROWS = encode(pd.DataFrame(TABLE), SCHEMA)
MORE = Encoded(
    np.vstack([ROWS.x, [5000.0, -5000.0]]), np.append(ROWS.s, 1), np.append(ROWS.y, -1.0)
)


def steep(rows, weight, n_problems, *, n_groups, rng):
    return np.tile([2000.0, *[0.0] * (rows.x.shape[1] + n_groups - 2), -1000.0], (n_problems, 1))


def outcomes(rows, noise, runs):
    """[runs, k] noisy sums of so many surrogates; those whose layout does not depend on noise."""
    spec = SurrogateSpec(SurrogateConfig(epsilon=EPSILON, delta=DELTA), SCHEMA)
    every = (read_sums(TableSums(in_memory(rows), spec, noise), spec) for _ in range(runs))
    return np.array([np.hstack([s.histograms, s.moments, s.rates]).ravel() for s in every])


class TooQuiet(NoisySum):
    """Anchors have hardly any noise."""

    def release(self, total):
        found = super().release(total)
        exact = total.astype(float) * self.terms.grid
        return exact + (found - exact) / (50 if self._mechanism.name == "anchors" else 1)


@pytest.mark.slow
def test_audit_of_all_sums_finds_no_more_than_epsilon_and_noise_left_out(monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.levels.MAX_BINS_PRIVATE", 2)
    monkeypatch.setattr("synthfair.surrogate.records.self_play", steep)
    assert audited_epsilon(outcomes, ROWS, MORE) <= EPSILON
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", TooQuiet)
    assert audited_epsilon(outcomes, ROWS, MORE) > EPSILON
