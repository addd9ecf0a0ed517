"""The two-phase method: its limits, its clipping and noise, and what its guarantee covers."""

import math
from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema
from two_group_rows import Centred, rows_of, users_of

from synthfair.errors import InputError
from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.engine import run
from synthfair.federated.networks import LogisticRegression, Perceptron
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.two_phase import (
    SENSITIVITY,
    FairSgd,
    FairState,
    PrivateFairSgd,
    TwoPhase,
    cell_weights,
    fair_loss,
)
from synthfair.federated.users import Cohorts, UserData

KEY = jax.random.key(3)
ROWS = rows_of()
NETWORK, SCHEMA = Perceptron(3, (6,)), make_schema()

noisy_sums = jax.jit(lambda teacher, *given: teacher.noisy_sums(*given))
sums_of = jax.jit(lambda parity, *given: parity.sums(*given), static_argnums=0)
fair_loss_of = jax.jit(fair_loss)
objective = jax.jit(lambda algorithm, *given: algorithm.objective(*given))


def run_all(algorithm, users, rounds):
    everyone = Cohorts(len(users), len(users))
    return run(algorithm, users, everyone, rounds=rounds, seed=0)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


# What is covered


def planned(users, *, parity="statistical_parity", noise=None, **settings):
    """The method for these users with networks, and with noise that no epsilon asks for."""
    method = TwoPhase(hidden=(6,), notion=parity, **settings).plan(UserData(SCHEMA, users, (2,)))
    if noise is None:
        return method
    private = isinstance(method.teacher, PrivateFairSgd)
    teacher = method.teacher.bound(noise=noise) if private else method.teacher
    return method.bound(noise=noise, teacher=teacher)


def test_the_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end():
    settings = {"batch": 200, "local_epochs": 20, "teacher_epochs": 30, "clip": 1.5}
    settings |= {"epsilon": 2.0, "delta": 1e-4, "parity": "equalized_odds"}
    published, private = (
        planned(users_of(200, 300), end_to_end=end_to_end, **settings)
        for end_to_end in (False, True)
    )
    (student,) = published.guarantee.mechanisms
    assert (student.population, student.sample, student.times) == (200, 200, 4 * 20)
    first, second = private.guarantee.mechanisms
    assert (first.times, second.times) == (30, 80)
    assert private.noise == private.teacher.noise == pytest.approx(second.noise / 1.5)
    assert isinstance(private.teacher, PrivateFairSgd)
    assert 1.99 < private.guarantee.composition.epsilon(1e-4) <= 2.0
    assert private.noise > published.noise


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0.0}, {"clip": math.nan}, {"noise": -1.0}, {"batch": 0}, {"learning_rate": 0.0}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        DpSgd(**{"clip": 1.5} | wrong)


def test_noise_that_nothing_bounds_is_refused():
    with pytest.raises(InputError, match="noise needs clip"):
        DpSgd(noise=1.3)


# Noise


def std_of_noise(sums, noisy, *given):
    """Of many entries; the relative error of the estimate is 1 / sqrt(2 entries)."""
    keys = jax.random.split(KEY, 300)
    parts = [flat(sums(one, *given, keys)) for one in (noisy, noisy.bound(noise=0.0))]
    return np.std(parts[0] - parts[1]), 5 / math.sqrt(2 * len(parts[0]))  # false alarm 6e-7


@jax.jit
def noisy_gradients(step, params, keys):
    return jax.vmap(lambda key: step.noisy_gradient(params, ROWS, key))(keys)


@jax.jit
def many_sums(teacher, state, recent, keys):
    return jax.vmap(lambda key: teacher.noisy_sums(state, recent, ROWS, key))(keys)


def test_the_noise_of_a_step_is_as_stated():
    step = DpSgd(model=NETWORK, clip=0.7, noise=1.3, batch=10)
    found, error = std_of_noise(noisy_gradients, step, NETWORK.init(KEY))
    expected = 1.3 * 0.7 / 10
    assert found == pytest.approx(expected, rel=error)
    assert found != pytest.approx(1.05 * expected, rel=error)  # an error of 5 % is found


def test_the_noise_of_the_private_teacher_is_as_stated():
    teacher = PrivateFairSgd(
        model=NETWORK, parity=Parity("statistical_parity"), noise=1.3, batch=10
    )
    none = RateSums(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    found, error = std_of_noise(many_sums, teacher, teacher.init(KEY), none)
    assert found == pytest.approx(1.3 * SENSITIVITY, rel=error)
    assert found != pytest.approx(1.3, rel=error)


def test_noise_differs_from_round_to_round():
    users, seen = users_of(20, 60), []
    algorithm = DpSgd(model=NETWORK, clip=1.0, noise=50.0, batch=60, local_steps=3)
    everyone = Cohorts(2, 2)
    run(algorithm, users, everyone, rounds=3, seed=0, on_round=seen.append)
    first, second = (flat(b.state) - flat(a.state) for a, b in pairwise(seen))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.6


# Limits


def test_without_clip_and_noise_it_is_gradient_descent_of_users_who_count_by_their_rows():
    users = users_of(20, 60)
    algorithm = DpSgd(model=NETWORK, learning_rate=0.25, batch=60, local_steps=3)
    begun, done = (run_all(algorithm, users, rounds).state for rounds in (0, 1))

    @jax.jit
    @jax.grad
    def slope(params, rows):
        losses = rows.weight * NETWORK.loss(NETWORK.scores(params, rows.a), rows.y)
        return jnp.sum(losses) / 60  # as many as expected

    ends = []
    for user in (0, 1):
        params, rows = begun, users.rows_of(user)
        for _ in range(3):
            params = jax.tree.map(lambda p, g: p - 0.25 * g, params, slope(params, rows))
        ends.append(flat(params))
    np.testing.assert_allclose(flat(done), 0.25 * ends[0] + 0.75 * ends[1], rtol=1e-8, atol=1e-10)
    assert not np.allclose(flat(done), 0.5 * ends[0] + 0.5 * ends[1], atol=1e-6)


@pytest.mark.parametrize("off", [{"kappa": 0.0}, {"alpha": 0.99}])
def test_fairness_off_is_cross_entropy(off):
    theta = jnp.array([2.0, 0.0, 0.0])
    fair = FairSgd(model=LogisticRegression(3), parity=Parity("equalized_odds"), kappa=3.0)
    without = fair.bound(**off)
    loss = objective(without, FairState(theta, jnp.array(without.kappa)), ROWS)[0]
    expected = np.logaddexp(0, -np.asarray(ROWS.y * (ROWS.a @ theta))).mean()
    assert loss == pytest.approx(expected)
    assert objective(fair, FairState(theta, jnp.array(3.0)), ROWS)[0] > expected + 0.1


# Fairness


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_the_fair_loss_is_the_largest_gap_of_a_rate_less_the_slack(notion):
    p = 1 / (1 + np.exp(-np.asarray(ROWS.a[:, 0])))
    s, y = np.asarray(ROWS.s[:, 0]), np.asarray(ROWS.y)
    masks = [np.ones(60, bool)] if notion == "statistical_parity" else [y > 0, y < 0]
    gaps = [abs(p[m & (s == 0)].mean() - p[m & (s == 1)].mean()) for m in masks]
    sums = sums_of(Parity(notion), ROWS.a[:, 0], ROWS)
    assert fair_loss_of(sums, 0.01) == pytest.approx(max(gaps) - 0.01)
    assert fair_loss_of(sums, 0.9) == 0


def test_a_group_that_a_batch_lacks_makes_no_gap():
    sums = RateSums(jnp.array([[0.0, 7.0]]), jnp.array([[0.0, 10.0]]))
    assert fair_loss_of(sums, 0.0) == 0
    slope = jax.jit(jax.grad(fair_loss))(sums, 0.0).values
    assert np.isfinite(slope).all()


@pytest.mark.parametrize(
    "notion", ["equalized_odds", pytest.param("statistical_parity", marks=pytest.mark.slow)]
)
def test_the_private_teacher_without_noise(notion):
    """Its gradient is that of the published one, given the sums of the batch itself and all rows
    in the batch; and one row changes its clipped sums by the sensitivity at most."""
    parity = Parity(notion)
    published = FairSgd(model=NETWORK, parity=parity, alpha=0.0, kappa=2.0)
    private = PrivateFairSgd(
        model=NETWORK, parity=parity, alpha=0.0, kappa=2.0, clip=1e6, noise=0.0, batch=60
    )
    state = private.init(KEY)
    sums = sums_of(parity, NETWORK.scores(state.params, ROWS.a), ROWS)
    assert np.abs(jax.jit(cell_weights)(sums, 0.0)).max() > 0  # else the gap would not enter
    slope = jax.jit(jax.grad(lambda p: published.objective(state._replace(params=p), ROWS)[0]))
    found = noisy_sums(private, state, sums, ROWS, KEY)[0]
    expected = flat(slope(state.params))
    np.testing.assert_allclose(flat(found) * 1e6 / 60, expected, rtol=1e-6, atol=1e-10)

    clipped, steep = private.bound(clip=0.1), state._replace(kappa=25.0 * state.kappa)
    without = ROWS._replace(weight=ROWS.weight.at[0].set(0.0))
    one, other = (flat(noisy_sums(clipped, steep, sums, rows, KEY)) for rows in (ROWS, without))
    assert 1 < np.linalg.norm(one - other) <= SENSITIVITY * (1 + 1e-9)


def test_one_row_moves_the_sums_of_a_private_teacher_as_stated_whatever_the_model_does():
    teacher = PrivateFairSgd(
        model=Centred(3), parity=Parity("statistical_parity"), clip=0.1, noise=0.0, batch=60
    )
    state, none = teacher.init(KEY)._replace(params=jnp.ones(3)), RateSums(*jnp.zeros((2, 1, 2)))
    far = ROWS._replace(a=ROWS.a.at[0].set(1e4))
    without = ROWS._replace(a=ROWS.a.at[0].set(0.0), weight=ROWS.weight.at[0].set(0.0))
    one, other = (flat(noisy_sums(teacher, state, none, rows, KEY)) for rows in (far, without))
    assert np.linalg.norm(one - other) <= SENSITIVITY * (1 + 1e-9)


def gap_of(params, users):
    decided = np.asarray(NETWORK.scores(params, users.a) > 0)
    s = np.asarray(users.s[:, 0])
    return abs(decided[s == 1].mean() - decided[s == 0].mean())


def test_fair_sgd_lowers_the_gap_of_a_table_that_has_one():
    users, parity = users_of(300, 500, gap=2.0), Parity("statistical_parity")
    plain = FairSgd(
        model=NETWORK, parity=parity, batch=100, local_steps=60, kappa=0.0, kappa_rate=0.0
    )
    fair = plain.bound(kappa=2.0, kappa_rate=0.1)
    b1, b2 = (run_all(algorithm, users, 3).state for algorithm in (plain, fair))
    assert gap_of(b1.params, users) > 0.4
    assert gap_of(b2.params, users) < 0.5 * gap_of(b1.params, users)
    assert b1.kappa == 0
    assert b2.kappa > 2.0


# The two together


def followed(kappa, *, end_to_end=False):
    """Agreement with the teachers, and gap, of students whose gap is 0.64 without fairness.

    Steps of private teachers would be too long.
    """
    users, settings = users_of(300, 500, gap=2.0), {"teacher_epochs": 60, "local_epochs": 20}
    settings |= {"batch": 60, "clip": 1.0, "kappa": kappa, "end_to_end": end_to_end}
    method = planned(users, noise=0.1, **settings)
    if end_to_end:
        method = method.bound(teacher=method.teacher.bound(learning_rate=0.5))
    labelled = method.teach(users, seed=0)
    done = run_all(method, labelled, 4)
    decided = np.asarray(NETWORK.scores(done.state, users.a) > 0)
    return (decided == np.asarray(labelled.y > 0)).mean(), gap_of(done.state, users)


@pytest.mark.slow
@pytest.mark.parametrize("end_to_end", [True, False])
def test_students_learn_their_teachers_decisions(end_to_end):
    assert followed(0.5, end_to_end=end_to_end)[0] > 0.95


@pytest.mark.slow
def test_students_of_private_fair_teachers_are_fairer():
    """They cannot follow two teachers, each fair on its own user's rows, in all rows."""
    agreement, gap = followed(1.2, end_to_end=True)
    assert agreement > 0.7
    assert gap < 0.5


def test_each_user_has_a_teacher_of_its_own():
    """Of users whose labels are all alike, each one's teacher decides so."""
    users = users_of(40, 70, 30)
    wanted = np.repeat([1.0, -1.0, 1.0], [40, 70, 30])
    method = planned(users, batch=20, teacher_epochs=60, clip=1.5, kappa_rate=0.1)
    labelled = method.teach(replace(users, y=jnp.asarray(wanted)), seed=0)
    np.testing.assert_array_equal(labelled.y, wanted)
