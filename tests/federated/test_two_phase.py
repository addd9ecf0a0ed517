"""Fair teachers and their students: the paper's equations, and how far one row reaches."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA
from scipy.special import expit
from two_group_rows import Centred, flat, rows_of, users_of

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

KEY, ROWS = jax.random.key(3), rows_of()
NETWORK = Perceptron(3, (6,))
A, S, Y = np.asarray(ROWS.a), np.asarray(ROWS.s[:, 0]), np.asarray(ROWS.y)
STRATA = {"statistical_parity": [Y != 0], "equalized_odds": [Y > 0, Y < 0]}

noisy_sums = jax.jit(lambda teacher, *given: teacher.noisy_sums(*given))
sums_of = jax.jit(lambda parity, *given: parity.sums(*given), static_argnums=0)
fair_loss_of = jax.jit(fair_loss)


def planned(users, **settings):
    return TwoPhase(hidden=(6,), **settings).plan(UserData(SCHEMA, users, (2,)))


# Accounts


def test_two_phase_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end():
    settings = {"batch": 200, "local_epochs": 20, "teacher_epochs": 30, "clip": 1.5}
    settings |= {"epsilon": 2.0, "delta": 1e-4, "notion": "equalized_odds"}
    published, private = (
        planned(users_of(200, 300), end_to_end=on, **settings) for on in (False, True)
    )
    (student,) = published.guarantee.mechanisms
    assert (student.population, student.sample, student.times) == (200, 200, 4 * 20)
    first, second = private.guarantee.mechanisms
    assert (first.times, second.times) == (30, 80)
    assert (published.guarantee.condition, private.guarantee.condition) == ("teacher", None)
    # A teacher's sums hold counts as well as gradients.
    assert (first.clip, second.clip) == (1.5 * SENSITIVITY, 1.5)
    assert private.noise == private.teacher.noise == pytest.approx(second.noise / 1.5)
    assert first.multiplier == pytest.approx(second.multiplier)
    assert 1.99 < private.guarantee.composition.epsilon(1e-4) <= 2.0
    assert private.noise > published.noise


# The fair teacher


@pytest.mark.parametrize("notion", STRATA)
def test_fair_sgd_objective_is_equations_3_to_5(notion):
    """Cross-entropy, and kappa times the largest gap of a rate less the slack."""
    theta, alpha = np.array([2.0, 0.3, 0.0]), 0.01
    p = expit(A @ theta)
    gaps = [abs(p[m & (S == 0)].mean() - p[m & (S == 1)].mean()) for m in STRATA[notion]]
    method = FairSgd(model=LogisticRegression(3), parity=Parity(notion), alpha=alpha)
    state = FairState(jnp.asarray(theta), jnp.array(3.0))
    loss, unfair = jax.jit(method.objective)(state, ROWS)
    assert unfair == pytest.approx(max(gaps) - alpha)
    assert loss == pytest.approx(np.logaddexp(0, -Y * (A @ theta)).mean() + 3 * (max(gaps) - alpha))
    assert fair_loss_of(sums_of(Parity(notion), A @ theta, ROWS), 0.9) == 0


def test_fair_loss_of_a_group_that_a_batch_lacks_is_0():
    sums = RateSums(jnp.array([[0.0, 7.0]]), jnp.array([[0.0, 10.0]]))
    assert fair_loss_of(sums, 0.0) == 0
    assert np.isfinite(jax.jit(jax.grad(fair_loss))(sums, 0.0).values).all()


def gap_of(params, users):
    decided, s = np.asarray(NETWORK.scores(params, users.a) > 0), np.asarray(users.s[:, 0])
    return abs(decided[s == 1].mean() - decided[s == 0].mean())


def test_fair_sgd_lowers_the_gap_of_a_table_that_has_one():
    users, parity = users_of(300, 500, gap=2.0), Parity("statistical_parity")
    fair = FairSgd(
        model=NETWORK, parity=parity, batch=100, local_steps=60, kappa=2.0, kappa_rate=0.1
    )
    plain = fair.bound(**FairSgd.unconstrained)
    b1, b2 = (run(m, users, Cohorts(2, 2), rounds=3, seed=0).state for m in (plain, fair))
    assert gap_of(b1.params, users) > 0.4
    assert gap_of(b2.params, users) < 0.5 * gap_of(b1.params, users)
    assert b1.kappa == 0
    assert b2.kappa > 2.0


# The private teacher


@pytest.mark.parametrize("notion", STRATA)
def test_private_teacher_without_noise_has_the_gradient_of_the_published_one(notion):
    """Given the sums of the batch itself, and all rows in the batch; and one row changes its
    clipped sums by the sensitivity at most."""
    published = FairSgd(model=LogisticRegression(3), parity=Parity(notion), alpha=0.0, kappa=2.0)
    private = PrivateFairSgd(
        model=LogisticRegression(3), parity=Parity(notion), alpha=0.0, kappa=2.0, clip=1e6,
        batch=60,
    )  # fmt: skip
    state = private.init(KEY)._replace(params=jnp.array([2.0, 0.3, 0.0]))
    sums = sums_of(Parity(notion), ROWS.a @ state.params, ROWS)
    assert np.abs(jax.jit(cell_weights)(sums, 0.0)).max() > 0  # else the gap would not enter
    slope = jax.jit(jax.grad(lambda p: published.objective(state._replace(params=p), ROWS)[0]))
    found = noisy_sums(private, state, sums, ROWS, KEY)[0]
    np.testing.assert_allclose(found * 1e6 / 60, slope(state.params), rtol=1e-6, atol=1e-10)

    clipped, steep = private.bound(clip=0.1), state._replace(kappa=25.0 * state.kappa)
    without = ROWS._replace(weight=ROWS.weight.at[0].set(0.0))
    one, other = (flat(noisy_sums(clipped, steep, sums, rows, KEY)) for rows in (ROWS, without))
    assert 1 < np.linalg.norm(one - other) <= SENSITIVITY * (1 + 1e-9)


def test_private_teacher_moves_by_the_sensitivity_at_most_whatever_the_model_does():
    parity = Parity("statistical_parity")
    teacher = PrivateFairSgd(model=Centred(3), parity=parity, clip=0.1, batch=60)
    state, none = teacher.init(KEY)._replace(params=jnp.ones(3)), RateSums(*jnp.zeros((2, 1, 2)))
    far = ROWS._replace(a=ROWS.a.at[0].set(1e4))
    without = ROWS._replace(a=ROWS.a.at[0].set(0.0), weight=ROWS.weight.at[0].set(0.0))
    one, other = (flat(noisy_sums(teacher, state, none, rows, KEY)) for rows in (far, without))
    assert np.linalg.norm(one - other) <= SENSITIVITY * (1 + 1e-9)


def test_private_teacher_has_the_stated_noise():
    """Of 10,500 numbers within 5 standard errors: noise in units of the clip is found out."""
    parity, none = Parity("statistical_parity"), RateSums(*jnp.zeros((2, 1, 2)))
    teacher = PrivateFairSgd(model=NETWORK, parity=parity, noise=1.3, batch=10)
    state, keys = teacher.init(KEY), jax.random.split(KEY, 300)
    noisy, exact = (
        flat(jax.vmap(noisy_sums, (None, None, None, None, 0))(one, state, none, ROWS, keys))
        for one in (teacher, teacher.bound(noise=0.0))
    )
    found, error = np.std(noisy - exact), 5 / np.sqrt(2 * len(noisy))
    assert found == pytest.approx(1.3 * SENSITIVITY, rel=error)
    assert found != pytest.approx(1.3, rel=error)


# The two together


def test_two_phase_users_have_teachers_of_their_own():
    """Of users whose labels are all alike, each one's teacher decides so."""
    users, wanted = users_of(40, 70, 30), np.repeat([1.0, -1.0, 1.0], [40, 70, 30])
    method = planned(users, batch=20, teacher_epochs=60, clip=1.5, kappa_rate=0.1)
    labelled = method.teach(replace(users, y=jnp.asarray(wanted)), seed=0)
    np.testing.assert_array_equal(labelled.y, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kappa", "end_to_end", "agreement", "gap"),
    [(0.5, False, 0.95, 1.0), (0.5, True, 0.95, 1.0), (1.2, True, 0.7, 0.5)],
)
def test_two_phase_students_learn_their_teachers_decisions(kappa, end_to_end, agreement, gap):
    """With a large kappa they are fairer, and cannot follow two teachers in all rows,
    each fair on its own user's."""
    users, settings = users_of(300, 500, gap=2.0), {"teacher_epochs": 60, "local_epochs": 20}
    settings |= {"batch": 60, "clip": 1.0, "kappa": kappa, "end_to_end": end_to_end}
    method = planned(users, **settings).bound(noise=0.1)
    if end_to_end:  # steps of private teachers would be too long
        method = method.bound(teacher=method.teacher.bound(noise=0.1, learning_rate=0.5))
    labelled = method.teach(users, seed=0)
    end = run(method, labelled, Cohorts(2, 2), rounds=4, seed=0).state
    decided = np.asarray(NETWORK.scores(end, users.a) > 0)
    assert (decided == np.asarray(labelled.y > 0)).mean() > agreement
    assert gap_of(end, users) < gap
