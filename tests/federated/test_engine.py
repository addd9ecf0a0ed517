"""The engine of rounds: sums over cohorts or by shares, clipping, noise, and a run's file."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from synthfair.errors import InputError
from synthfair.federated import Cohorts, Protection, engine, make_users
from synthfair.federated.engine import CheckpointFile, RunProgress, shared, shared_total
from synthfair.secure.shares import Sharing

RNG = np.random.default_rng(0)
A = RNG.normal(size=(40, 2))
OWNER = np.append(np.arange(9), RNG.integers(0, 9, 31))
USERS = make_users(A, np.zeros(40, int), np.ones(40), OWNER)
EVERYONE = Cohorts(9, 9)
ADD, REPLACE = "add_or_remove", "replace"

# Methods that sum


class Seen(NamedTuple):
    total: jax.Array
    cohort: jax.Array


@jax.tree_util.register_static
@dataclass(frozen=True)
class Sum:
    """Sums the users' rows up; the state is the sum over all rounds."""

    additive: ClassVar[bool] = True

    def init(self, key):
        return jnp.zeros(2)

    def report(self, state, rows, key):
        return rows.weight @ rows.a

    def update(self, state, total, cohort):
        return state + total, Seen(total, jnp.asarray(cohort, float))

    def params(self, state):
        return state


@jax.tree_util.register_static
class SumOneByOne(Sum):
    additive: ClassVar[bool] = False


@jax.tree_util.register_static
class Drawing(SumOneByOne):
    """Each user sends two random numbers."""

    def report(self, state, rows, key):
        return jax.random.normal(key, (2,))


def run(algorithm, cohorts=EVERYONE, *, rounds=1, seed=0, **more):
    return engine.run(algorithm, USERS, cohorts, rounds=rounds, seed=seed, **more)


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
    assert (done.history.cohort == 4).all()  # who was drawn is no one's business


# What protects a sum


@pytest.mark.parametrize(("value", "clipped"), [
    (3.0, [1.2, 0.0, 1.6]), (0.3, [0.3, 0.0, 0.4]), (np.nan, [0.0] * 3), (np.inf, [0.0] * 3),
])  # fmt: skip
def test_clip_is_of_a_report_as_one_vector_and_0_of_one_without_a_norm(value, clipped):
    report = {"a": jnp.array([value, 0.0]), "b": jnp.array(value * 4 / 3)}
    assert ravel_pytree(engine.clip_report(report, 2.0))[0] == pytest.approx(np.array(clipped))


@pytest.mark.parametrize(("clip", "noise", "key"), [
    (0.0, 1.0, "clip"), (-1.0, 0.0, "clip"), (1.0, -1.0, "noise"), (1.0, np.nan, "noise"),
    (None, np.float32(5), "needs a clip"), (None, jnp.asarray(5.0), "needs a clip"),
])  # fmt: skip
def test_protection_out_of_range_is_refused(clip, noise, key):
    with pytest.raises(InputError, match=key):
        run(Sum(), protection=Protection(clip, noise))


def test_noise_has_the_stated_standard_deviation():
    """Variance of 40,000 numbers within 5 standard errors."""
    zero = {"a": jnp.zeros((100, 200)), "b": jnp.zeros(20_000)}
    noisy = ravel_pytree(engine.add_noise(zero, 3.0, jax.random.key(1)))[0]
    error = 5 * np.sqrt(2 / len(noisy))
    assert abs(np.var(noisy) / 9 - 1) < error
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


# Sums by shares


@pytest.mark.parametrize("at_once", [2**19, 6])
def test_shares_sum_to_the_totals_of_the_plain_engine_and_their_own_noise(monkeypatch, at_once):
    """Three at once leave padding in the last block, whose reports are no zeros here."""
    monkeypatch.setattr(engine, "ENTRIES_AT_ONCE", at_once)
    private = shared(2, clip=10.0, relation=ADD, multiplier=2.0)._replace(seed=3)
    totals, drawn = [], Cohorts(9, 5, "poisson")
    for how in (Protection(10.0), private):
        done = run(Drawing(), drawn, rounds=3, seed=1, protection=how)
        totals.append(done.history.total)
    none = [[np.zeros(2)] * len(drawn.draw(1, t)) for t in range(3)]
    noise = [shared_total(private.vectors, none[t], seed=3, t=t) for t in range(3)]
    np.testing.assert_allclose(totals[1], totals[0] + noise, atol=10 * private.vectors.step)


def test_shares_are_of_every_report_and_one_without_a_norm_counts_as_0(monkeypatch):
    seen, split = [], Sharing.split
    monkeypatch.setattr(Sharing, "split", lambda *args: seen.append(args[1]) or split(*args))
    vectors = shared(2, clip=1.0, relation=ADD, multiplier=None).vectors
    total = shared_total(vectors, np.array([[0.5, 0.0], [np.nan, 0.0], [np.inf, 1.0], [0.0, 2.0]]))
    assert total == pytest.approx([0.5, 1.0])
    half = engine.STEPS_IN_CLIP // 2
    assert np.array(seen).tolist() == [[0, 0], [half, 0], [0, 0], [0, 0], [0, 2 * half]]


def test_shares_of_an_empty_cohort_have_the_noise_of_two_aggregators():
    """Each has noise that is enough: variance 2 (multiplier clip)^2 together, and no smaller."""
    sums, spread = shared(20_000, clip=2.0, relation=ADD, multiplier=3.0), 2**0.5 * 3 * 2.0
    found = shared_total(sums.vectors, [])
    assert sums.noise == pytest.approx(spread, rel=1e-8)
    assert stats.kstest(found / spread, "norm").pvalue > 1e-6
    assert not np.array_equal(found, shared_total(sums.vectors, []))  # of the system's entropy


@pytest.mark.parametrize(("relation", "factor"), [(ADD, 1), (REPLACE, 2)])
@pytest.mark.parametrize("multiplier", [0.1, 1.7, 9e3])
def test_shares_have_enough_noise_of_one_aggregator_on_a_fine_grid(relation, factor, multiplier):
    """Rounding to the grid counts; the grid is so fine that noise counts as normal."""
    sums = shared(500, clip=0.3, relation=relation, multiplier=multiplier)
    norm = 0.3 + sums.vectors.step * 500**0.5 / 2
    noise = sums.vectors.step * sums.vectors.variance**0.5
    wanted = multiplier * factor * norm
    assert wanted * (1 - 1e-12) <= noise <= wanted * (1 + 1e-12)
    assert sums.shares.norm >= norm * (1 - 1e-12)
    assert 2**34 < sums.vectors.variance**0.5 < 2**36.01
