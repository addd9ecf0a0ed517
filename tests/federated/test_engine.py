"""The rounds engine: sums, clipping, noise, and going on after an interruption."""

from functools import partial
from itertools import combinations
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from summing_methods import Drawing, Sum, SumOneByOne, number_fields, population

from synthfair.distill.solvers import Lbfgs, Newton
from synthfair.errors import InputError
from synthfair.federated import engine
from synthfair.federated.engine import Protection, add_noise, clip_report, require_bounded
from synthfair.federated.methods import METHODS
from synthfair.federated.users import Cohorts, make_users


def test_methods_of_two_classes_are_two_pytrees_to_the_compiler():
    """Else the rounds of one may run in place of the other's."""
    compiled = [Sum(), SumOneByOne(), Lbfgs(0.1), Newton(0.1), *(cls() for cls in METHODS.values())]
    for one, other in combinations(map(jax.tree.structure, compiled), 2):
        assert one != other


@pytest.mark.parametrize(("algorithm", "at_once"), [(Sum(), 2**19), (SumOneByOne(), 6)])
def test_the_server_sees_the_sum_of_the_cohort(algorithm, at_once, monkeypatch):
    """Six numbers at once are the reports of three users."""
    monkeypatch.setattr(engine, "ENTRIES_AT_ONCE", at_once)
    a, owner, users = population()
    cohorts = Cohorts(9, 4, "poisson")
    done = engine.run(algorithm, users, cohorts, rounds=7, seed=3)
    for t in range(7):
        expected = a[np.isin(owner, cohorts.draw(3, t))].sum(axis=0)
        np.testing.assert_allclose(done.history.total[t], expected, atol=1e-10)
    np.testing.assert_allclose(done.state, done.history.total.sum(axis=0), atol=1e-10)


def test_each_report_is_clipped_as_one_vector():
    a, owner, users = population()
    done = engine.run(Sum(), users, Cohorts(9, 9), rounds=1, seed=0, protection=Protection(2.0))
    sums = np.array([a[owner == user].sum(axis=0) for user in range(9)])
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    assert norms.max() > 2 > norms.min()
    np.testing.assert_allclose(done.state, (sums * np.minimum(1, 2 / norms)).sum(axis=0))


def test_adding_or_removing_a_user_changes_the_sum_by_the_clip_at_most():
    a, owner, _ = population()
    a[owner == 8] = 1e6
    for there in (owner >= 0, owner != 8):
        users = make_users(a[there], np.zeros(there.sum(), int), np.ones(there.sum()), owner[there])
        everyone = Cohorts(len(users), len(users))
        done = engine.run(Sum(), users, everyone, rounds=1, seed=0, protection=Protection(0.5))
        if there.all():
            whole = done.state
    assert np.linalg.norm(whole - done.state) == pytest.approx(0.5)


def test_a_report_that_is_not_finite_counts_as_nothing():
    report = {"w": jnp.array([1.0, jnp.nan]), "n": jnp.array(3.0)}
    assert ravel_pytree(clip_report(report, 1.0))[0].tolist() == [0.0, 0.0, 0.0]
    infinite = {"w": jnp.array([jnp.inf, 1.0])}
    assert clip_report(infinite, 1.0)["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (Protection(None, 1.0), "needs a clip"),
        (Protection(0.0, 1.0), "clip = 0"),
        (Protection(-1.0), "clip = -1"),
        (Protection(1.0, -1.0), "noise = -1"),
        (Protection(1.0, float("nan")), "noise = nan"),
    ],
)
def test_protection_that_protects_nobody_is_refused(wrong, complaint):
    """Noise without a clip was left out where a cohort is computed as one user."""
    _, _, users = population()
    with pytest.raises(InputError, match=complaint):
        engine.run(Sum(), users, Cohorts(9, 9), rounds=1, seed=0, protection=wrong)


def test_noise_has_the_stated_standard_deviation():
    """Variance of 40,000 numbers within 5 standard errors; noise of 5 % more is found out."""
    zero = {"a": jnp.zeros((100, 200)), "b": jnp.zeros(20_000)}
    noisy = ravel_pytree(add_noise(zero, 3.0, jax.random.key(1)))[0]
    error = 5 * np.sqrt(2 / len(noisy))
    assert abs(np.var(noisy) / 9 - 1) < error
    assert abs(np.mean(noisy)) < 5 * 3 / np.sqrt(len(noisy))
    assert abs(np.var(1.05 * noisy) / 9 - 1) > error
    assert len(np.unique(noisy)) == len(noisy)  # no part repeats another's


def test_rounds_have_noise_of_their_own_that_only_the_seed_tells():
    _, _, users = population()
    sums = {}
    for seed in (0, 0, 1, 2**90):
        done = engine.run(
            Sum(), users, Cohorts(9, 9), rounds=3, seed=seed, protection=Protection(1.0, 5.0)
        )
        if seed in sums:
            np.testing.assert_array_equal(sums[seed], done.history.total)
        sums[seed] = done.history.total
    noise = np.concatenate([total.ravel() for total in sums.values()])
    assert len(np.unique(noise)) == len(noise)


def test_each_user_of_each_round_has_a_key_of_its_own():
    """Variance of 100 sums within 5 standard errors; with one key for all it would be 81."""
    _, _, users = population()
    total = engine.run(Drawing(), users, Cohorts(9, 9), rounds=50, seed=0).history.total
    assert abs(total.var() / 9 - 1) < 5 * np.sqrt(2 / 100)
    assert len(np.unique(total)) == 100


def test_going_on_gives_the_numbers_of_a_run_that_was_not_interrupted():
    _, _, users = population()
    run = partial(
        engine.run,
        SumOneByOne(),
        users,
        Cohorts(9, 3, "poisson"),
        seed=5,
        protection=Protection(1.0, 0.3),
    )
    whole = run(rounds=6)
    seen = []
    part = run(rounds=4, on_round=lambda progress: seen.append(progress.rounds))
    rest = run(rounds=6, progress=part)
    assert seen == [1, 2, 3, 4]
    assert rest.rounds == 6
    np.testing.assert_allclose(whole.state, rest.state, rtol=1e-9)
    np.testing.assert_allclose(whole.history.total, rest.history.total, rtol=1e-9)


@number_fields
class CountTraces(Sum):
    """Python runs a report only where JAX traces it."""

    seen: ClassVar[list] = []

    def report(self, state, rows, key):
        self.seen.append(key)
        return super().report(state, rows, key)


def test_other_numbers_need_no_second_compilation():
    _, _, users = population()
    traced = []
    for seed, algorithm in enumerate([CountTraces(1.0), CountTraces(2.0)]):
        begun = engine.start(algorithm, users, seed)
        before = len(CountTraces.seen)
        engine.run(algorithm, users, Cohorts(9, 3), rounds=2, seed=seed, progress=begun)
        traced.append(len(CountTraces.seen) > before)
    assert traced == [True, False]


@pytest.mark.parametrize("noise", [5.0, np.float32(5), jnp.asarray(5.0)])
def test_noise_of_any_kind_of_number_needs_a_clip(noise):
    with pytest.raises(InputError, match="needs a clip"):
        require_bounded(Protection(None, noise))
