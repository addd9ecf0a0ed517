"""Fair teachers and their students: the paper's equations, and how far one row reaches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA
from scipy.special import expit
from two_group_rows import Centred, flat, rows_of, users_of

from synthfair.federated import FairSgd, LogisticRegression, TwoPhase, two_phase
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.two_phase import SENSITIVITY, FairState, PrivateFairSgd, fair_loss
from synthfair.federated.users import UserData

KEY, ROWS = jax.random.key(3), rows_of()
A, S, Y = np.asarray(ROWS.a), np.asarray(ROWS.s[:, 0]), np.asarray(ROWS.y)
STRATA = {"statistical_parity": [Y != 0], "equalized_odds": [Y > 0, Y < 0]}

noisy_sums = jax.jit(lambda teacher, *given: teacher.noisy_sums(*given))
sums_of = jax.jit(lambda parity, *given: parity.sums(*given), static_argnums=0)
fair_loss_of = jax.jit(fair_loss)


def planned(users, **settings):
    return TwoPhase(hidden=(5, 4), **settings).plan(UserData(SCHEMA, users, (2,)))


# Accounts


def test_two_phase_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end():
    settings = {"batch": 200, "local_epochs": 20, "teacher_epochs": 30, "clip": 1.5}
    settings |= {"epsilon": 2.0, "delta": 1e-4, "notion": "equalized_odds", "end_to_end": True}
    fair = {"alpha": 0.03, "kappa": 4.0, "kappa_rate": 0.2}
    method = planned(users_of(200, 300), **settings | fair)
    assert method.teacher.model_dump(include={*fair}) == fair
    assert method.teacher.parity == Parity("equalized_odds")
    guarantee, (first, second) = method.guarantee, method.guarantee.mechanisms
    assert (first.population, first.times, second.times) == (200, 30, 4 * 20)
    # A teacher's sums hold counts as well as gradients.
    assert (first.clip, second.clip) == (1.5 * SENSITIVITY, 1.5)
    assert method.noise == method.teacher.noise == pytest.approx(second.noise / 1.5)
    assert first.multiplier == pytest.approx(second.multiplier)
    assert guarantee.condition is None
    assert 1.99 < guarantee.composition.epsilon(1e-4) <= 2.0


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
    end = jax.jit(method.bound(kappa_rate=0.1, batch=60).train)(state, ROWS, KEY)
    assert 3 < end.kappa < 3.1  # unfairness is at most 1


def test_fair_loss_is_the_largest_gap_between_groups_that_a_batch_has():
    values = jnp.array([[0.0, 9.5, 0.0, 0.0], [0.0, 2.0, 9.0, 5.0]])
    sums = RateSums(values, jnp.array([[0.0, 10.0, 0.0, 0.0], [0.0, 10.0, 10.0, 10.0]]))
    assert fair_loss_of(sums, 0.1) == pytest.approx(0.9 - 0.2 - 0.1)
    slope = jax.jit(jax.grad(fair_loss))(sums, 0.1).values
    np.testing.assert_allclose(slope, [[0, 0, 0, 0], [0, -0.1, 0.1, 0]])
    few = RateSums(jnp.array([[1.0, 3.0]]), jnp.array([[4.9, 9.0]]))
    assert not two_phase.cell_weights(few, 0.0).any()


# The private teacher


def private_teacher(notion, model=LogisticRegression(3), **settings):  # noqa: B008
    """Its batches hold all rows. Sums of the cells at some params, at which a gap enters."""
    parity = Parity(notion)
    teacher = PrivateFairSgd(model=model, parity=parity, alpha=0.0, batch=60, **settings)
    state = FairState(jnp.array([2.0, 0.3, 0.0]), jnp.array(2.0))
    sums = sums_of(parity, model.scores(state.params, ROWS.a), ROWS)
    assert np.abs(jax.jit(two_phase.cell_weights)(sums, 0.0)).max() > 0
    return teacher, state, sums


@pytest.mark.parametrize("notion", STRATA)
def test_private_teacher_given_the_sums_has_the_gradient_of_the_published_one(notion):
    teacher, state, sums = private_teacher(notion, clip=1e6)
    published = FairSgd(model=teacher.model, parity=teacher.parity, alpha=0.0)
    slope = jax.jit(jax.grad(lambda p: published.objective(state._replace(params=p), ROWS)[0]))
    found = noisy_sums(teacher, state, sums, ROWS, KEY)[0]
    np.testing.assert_allclose(found * 1e6 / 60, slope(state.params), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("notion", STRATA)
@pytest.mark.parametrize(("model", "value"), [(LogisticRegression(3), 2.0), (Centred(3), 1e4)])
def test_private_teacher_moves_by_the_sensitivity_at_most(notion, model, value):
    """Whatever the model does with other rows."""
    teacher, state, sums = private_teacher(notion, model, clip=0.1)
    steep = state._replace(kappa=50.0)
    there = ROWS._replace(a=ROWS.a.at[0].set(value))
    without = ROWS._replace(a=ROWS.a.at[0].set(0.0), weight=ROWS.weight.at[0].set(0.0))
    one, other = (flat(noisy_sums(teacher, steep, sums, rows, KEY)) for rows in (there, without))
    assert 0.9 < np.linalg.norm(one - other) <= SENSITIVITY * (1 + 1e-9)


def test_private_teacher_has_finite_sums_of_a_row_that_is_no_number():
    teacher, state, sums = private_teacher("statistical_parity", clip=0.1)
    rows = ROWS._replace(a=ROWS.a.at[0].set(np.inf))
    assert jnp.isfinite(flat(noisy_sums(teacher, state, sums, rows, KEY))).all()


def test_private_teacher_steps_along_its_sums_with_a_memory_of_the_cells():
    settings = {"clip": 1.5, "memory": 0.5, "kappa_rate": 0.3, "learning_rate": 0.7}
    teacher, state, _ = private_teacher("statistical_parity", local_steps=4, **settings)
    end = jax.jit(teacher.train)(state, ROWS, KEY)
    recent, weight = RateSums(*jnp.zeros((2, 1, 2))), 0.0
    for _ in range(4):
        gradients, cells = noisy_sums(teacher, state, recent, ROWS, KEY)
        weight = 0.5 * weight + 1
        new = [cell / two_phase.COUNT_SCALE for cell in cells]
        pairs = zip(recent, new, strict=True)
        recent = RateSums(*(old + (cell - old) / weight for old, cell in pairs))
        assert recent.counts.min() > two_phase.MIN_CELL_ROWS
        theta = state.params - 0.7 * 1.5 / 60 * gradients
        state = FairState(theta, state.kappa + 0.3 * fair_loss_of(recent, 0.0))
    np.testing.assert_allclose(flat(end), flat(state), rtol=1e-9)


def test_private_teacher_has_the_stated_noise():
    """Of 19,200 numbers within 5 standard errors."""
    parity, none = Parity("statistical_parity"), RateSums(*jnp.zeros((2, 1, 2)))
    teacher = PrivateFairSgd(model=LogisticRegression(60), parity=parity, noise=1.3, batch=10)
    state, keys, rows = teacher.init(KEY), jax.random.split(KEY, 300), ROWS._replace(a=jnp.eye(60))
    each = jax.vmap(noisy_sums, (None, None, None, None, 0))
    steps = teacher, teacher.bound(noise=0.0)
    noisy, exact = (flat(each(step, state, none, rows, keys)) for step in steps)
    found, error = np.std(noisy - exact), 5 / np.sqrt(2 * len(noisy))
    # Nor do the gradients, which come first, have noise that says who is in the batch.
    assert abs(np.corrcoef((noisy - exact)[:18_000], exact[:18_000] != 0)[0, 1]) < 5 / 18_000**0.5
    assert found == pytest.approx(1.3 * SENSITIVITY, rel=error)


# The two together


def test_two_phase_users_have_teachers_of_their_own():
    """Of users whose labels are all alike, each one's teacher decides so."""
    users, wanted = users_of(40, 70, 30), np.repeat([1.0, -1.0, 1.0], [40, 70, 30])
    method = planned(users, batch=20, teacher_epochs=60, clip=1.5, kappa_rate=0.1)
    labelled = method.teach(dataclasses.replace(users, y=jnp.asarray(wanted)), seed=0)
    np.testing.assert_array_equal(labelled.y, wanted)
