"""The engine of rounds: sums over cohorts, clipping, noise, and what a file keeps of a run."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from summing_methods import Drawing, Sum, SumOneByOne, population

from synthfair.distill.solvers import Lbfgs, Newton
from synthfair.errors import InputError
from synthfair.federated import METHODS, Cohorts, Protection, engine
from synthfair.federated.engine import CheckpointFile, RunProgress

A, OWNER, USERS = population()
EVERYONE = Cohorts(9, 9)


def run(algorithm, cohorts=EVERYONE, *, rounds=1, seed=0, **more):
    return engine.run(algorithm, USERS, cohorts, rounds=rounds, seed=seed, **more)


def test_methods_of_two_classes_are_two_pytrees_to_the_compiler():
    """Else the rounds of one may run in place of the other's."""
    compiled = [Sum(), SumOneByOne(), Lbfgs(0.1), Newton(0.1), *(cls() for cls in METHODS.values())]
    for one, other in combinations(map(jax.tree.structure, compiled), 2):
        assert one != other


@pytest.mark.parametrize(("algorithm", "at_once"), [(Sum(), 2**19), (SumOneByOne(), 6)])
def test_engine_gives_the_server_the_sum_of_the_cohort(algorithm, at_once, monkeypatch):
    """Six numbers at once are the reports of three users."""
    monkeypatch.setattr(engine, "ENTRIES_AT_ONCE", at_once)
    cohorts, seen = Cohorts(9, 4, "poisson"), []
    done = run(algorithm, cohorts, rounds=7, seed=3, on_round=seen.append)
    for t in range(7):
        expected = A[np.isin(OWNER, cohorts.draw(3, t))].sum(axis=0)
        np.testing.assert_allclose(done.history.total[t], expected, atol=1e-10)
    np.testing.assert_allclose(done.state, done.history.total.sum(axis=0), atol=1e-10)
    assert [progress.rounds for progress in seen] == list(range(1, 8))


# What protects a sum


def test_clip_is_of_each_report_as_one_vector():
    done = run(Sum(), protection=Protection(2.0))
    sums = np.array([A[user == OWNER].sum(axis=0) for user in range(9)])
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    assert norms.max() > 2 > norms.min()
    np.testing.assert_allclose(done.state, (sums * np.minimum(1, 2 / norms)).sum(axis=0))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_clip_counts_a_report_that_is_not_finite_as_nothing(bad):
    report = {"w": jnp.array([1.0, bad]), "n": jnp.array(3.0)}
    assert ravel_pytree(engine.clip_report(report, 1.0))[0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("clip", "noise", "key"), [
    (0.0, 1.0, "clip"), (-1.0, 0.0, "clip"), (1.0, -1.0, "noise"), (1.0, np.nan, "noise"),
    (None, np.float32(5), "needs a clip"), (None, jnp.asarray(5.0), "needs a clip"),
])  # fmt: skip
def test_protection_out_of_range_is_refused(clip, noise, key):
    with pytest.raises(InputError, match=key):
        run(Sum(), protection=Protection(clip, noise))


def test_noise_has_the_stated_standard_deviation():
    """Variance of 40,000 numbers within 5 standard errors; noise of 5 % more is found out."""
    zero = {"a": jnp.zeros((100, 200)), "b": jnp.zeros(20_000)}
    noisy = ravel_pytree(engine.add_noise(zero, 3.0, jax.random.key(1)))[0]
    error = 5 * np.sqrt(2 / len(noisy))
    assert abs(np.var(noisy) / 9 - 1) < error
    assert abs(np.mean(noisy)) < 5 * 3 / np.sqrt(len(noisy))
    assert abs(np.var(1.05 * noisy) / 9 - 1) > error
    assert len(np.unique(noisy)) == len(noisy)  # no part repeats another's


def test_noise_of_each_round_is_its_own_and_only_the_seed_tells_it():
    def totals(seed):
        return run(Sum(), rounds=3, seed=seed, protection=Protection(1.0, 5.0)).history.total

    np.testing.assert_array_equal(totals(0), totals(0))
    noise = np.concatenate([totals(seed).ravel() for seed in (0, 1, 2**90)])
    assert len(np.unique(noise)) == len(noise)


def test_users_of_each_round_have_keys_of_their_own():
    """Variance of 100 sums within 5 standard errors; with one key for all it would be 81."""
    total = run(Drawing(), rounds=50).history.total
    assert abs(total.var() / 9 - 1) < 5 * np.sqrt(2 / 100)
    assert len(np.unique(total)) == 100


# A run that was interrupted


def test_checkpoint_is_read_by_its_own_run_alone(tmp_path):
    """Even where it has the other's name."""
    saved = RunProgress(2, {"x": np.arange(3.0)}, np.zeros(2), 2**127 + 5)
    own, other = (CheckpointFile(tmp_path / "file", name) for name in ("own", "other"))
    assert own.load(saved) is None
    own.save(saved)
    back = own.load(saved)
    assert (back.rounds, back.state["x"].tolist(), back.seed) == (2, [0, 1, 2], 2**127 + 5)
    assert other.load(saved) is None
    for x in (np.arange(6.0), np.arange(3)):  # another shape, another type
        assert own.load(saved._replace(state={"x": x})) is None
    assert own.path.stat().st_mode & 0o777 == 0o600  # it holds the seed of the noise
    own.path.write_bytes(b"damaged")
    assert own.load(saved) is None
