"""The noise of all sums of a private surrogate has the stated deviation."""

import numpy as np
from builders import SCHEMA, TABLE
from scipy.stats import chi2

from synthfair.data.batches import in_memory
from synthfair.data.encode import encode
from synthfair.privacy.mechanism import NoisySum
from synthfair.privacy.noise import seeded
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import read_sums
from synthfair.surrogate.sums import SurrogateSpec, TableSums


def steep(rows, weight, n_problems, *, n_groups, rng):
    return np.tile([2000.0, *[0.0] * (rows.x.shape[1] + n_groups - 2), -1000.0], (n_problems, 1))


def is_standard(noise):
    """Whether the variance may be 1; a false alarm once in 1,000,000."""
    low, high = chi2.ppf([5e-7, 1 - 5e-7], noise.size)
    return low < (noise**2).sum() < high


def test_noise_of_each_sum_is_what_is_stated(monkeypatch):
    """In whole steps; noise that is 10 % too small, or missing, is caught."""
    noise = {}

    class Noted(NoisySum):
        def release(self, total):
            found, stated = super().release(total), self._mechanism
            steps = found / stated.grid
            assert (steps == np.rint(steps)).all()
            noise.setdefault(stated.name, []).append((steps - total.astype(float)) / stated.steps)
            return found

    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", Noted)
    monkeypatch.setattr("synthfair.surrogate.records.self_play", steep)
    rows, config = encode(TABLE, SCHEMA), SurrogateConfig(epsilon=1.0, delta=1e-5)
    spec = SurrogateSpec(config, SCHEMA)
    for seed in range(11):
        read_sums(TableSums(in_memory(rows), spec, seeded(seed)), spec)
    stated = spec.guarantee.mechanisms
    assert noise.keys() == {mechanism.name for mechanism in stated} - {"tree"}
    every = {name: np.concatenate(found).astype(float) for name, found in noise.items()}
    for values in every.values():
        assert is_standard(values)
        assert not is_standard(0.5 * values)
        assert len(np.unique(values)) == values.size  # each number has its own
    assert not is_standard(0.9 * np.concatenate([*every.values()]))
