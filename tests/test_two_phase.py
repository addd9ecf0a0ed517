"""The two-phase method: its limits, its clipping and noise, and what its guarantee covers."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.federated import row_batches
from synthfair.federated.averaging import steps_of
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.dp_sgd import DpSgd, clipped_gradients, cross_entropy
from synthfair.federated.engine import run
from synthfair.federated.fair_sgd import FairSgd, FairState, fair_loss
from synthfair.federated.networks import Linear, Network, Perceptron
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.private_fair_sgd import SENSITIVITY, PrivateFairSgd, cell_weights
from synthfair.federated.row_batches import poisson_sum, random_rows
from synthfair.federated.row_gradients import clipped_sum
from synthfair.federated.two_phase import TEACHER_NOT_COVERED, two_phase
from synthfair.federated.users import UserRows, make_users
from synthfair.privacy.sampled import composed_epsilon

NETWORK = Network(Perceptron(3, (5, 4)))
MODELS = [NETWORK, Network(Perceptron(3, ())), Linear(3)]
NOTIONS = ["statistical_parity", "equalized_odds"]
KEY = jax.random.key(3)


def make(n=60, seed=0, gap=1.0):
    """Rows whose label depends on the first input, which depends on the group."""
    rng = np.random.default_rng(seed)
    s = rng.integers(2, size=n)
    a = rng.normal(size=(n, 3))
    a[:, 0] += gap * s
    y = np.where(a[:, 0] + 0.3 * rng.normal(size=n) > gap / 2, 1.0, -1.0)
    return a, s, y


def rows_of(n=60, seed=0):
    a, s, y = make(n, seed)
    return UserRows(jnp.asarray(a), jnp.asarray(s)[:, None], jnp.asarray(y), jnp.ones(n))


def users_of(*sizes, gap=1.0):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return make_users(*make(len(owner), gap=gap), owner)


def everyone(users):
    return Cohorts(len(users), len(users))


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def row_gradients(model, params, rows):
    """One row after the other, by automatic differentiation."""

    @jax.jit
    def slope(a, y):
        return jax.grad(lambda p: jnp.logaddexp(0.0, -y * model.scores(p, a[None])[0]))(params)

    return np.array([flat(slope(a, y)) for a, y in zip(rows.a, rows.y, strict=True)])


@partial(jax.jit, static_argnums=0)
def clipped(model, params, rows, clip):
    return clipped_gradients(model, params, rows, cross_entropy, clip)


# Clipping


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [0.05, 0.5, 2.0, math.inf])
def test_the_clipped_sum_is_that_of_a_naive_loop(model, clip):
    rows, params = rows_of(), jax.tree.map(lambda leaf: leaf + 0.3, model.init(KEY))
    own = row_gradients(model, params, rows)
    norms = np.linalg.norm(own, axis=1)
    expected = (own * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
    found = flat(clipped(model, params, rows, clip))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    if clip == 0.5:  # rows differ in whether they are clipped, so that clipping the mean would fail
        assert norms.min() < clip < norms.max()


@pytest.mark.parametrize("model", MODELS)
def test_one_row_changes_a_clipped_sum_by_the_clip_at_most(model):
    rows = rows_of()
    rows = rows._replace(a=rows.a.at[0].multiply(1e4))
    params = jax.tree.map(lambda leaf: leaf + 0.3, model.init(KEY))
    without = rows._replace(weight=rows.weight.at[0].set(0.0))
    for clip in (0.1, 1.5):
        with_, rest = (clipped(model, params, r, clip) for r in (rows, without))
        assert np.linalg.norm(flat(with_) - flat(rest)) <= clip * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_a_row_without_a_finite_gradient_counts_nothing(model, bad):
    rows, params = rows_of(), model.init(KEY)
    slope = jnp.ones(60)
    whole = clipped_sum(model, params, rows.a, slope.at[0].set(0.0), 0.5)
    spoilt = clipped_sum(model, params, rows.a.at[0].set(bad), slope, 0.5)
    assert np.linalg.norm(flat(spoilt) - flat(whole)) <= 0.5 * (1 + 1e-9)


# Batches


def test_poisson_batches_hold_each_row_with_the_same_chance():
    """Chances of 45 rows of 60 over 4,000 batches: five standard deviations, false alarm 3e-5."""
    rows, q, n = rows_of(), 9 / 45, 4000
    rows = rows._replace(weight=(jnp.arange(60) < 45) * 1.0, y=jnp.arange(60.0))

    def batch(key):
        return poisson_sum(
            lambda some: jnp.zeros(60).at[some.y.astype(int)].add(some.weight), rows, 9, key
        )

    held = np.asarray(jax.jit(jax.vmap(batch))(jax.random.split(KEY, n)))
    assert set(np.unique(held)) == {0.0, 1.0}
    assert not held[:, 45:].any()
    error = math.sqrt(q * (1 - q) / n)
    assert np.abs(held[:, :45].mean(axis=0) - q).max() < 5 * error
    sizes = held.sum(axis=1)
    assert abs(sizes.mean() - 9) < 5 * error * 45**0.5
    assert sizes.var() == pytest.approx(45 * q * (1 - q), rel=0.12)  # not of fixed size


def test_rows_beyond_the_room_of_a_pass_are_not_left_out(monkeypatch):
    rows = rows_of()
    one = poisson_sum(lambda some: some.weight @ some.a, rows, 30, KEY)
    monkeypatch.setattr(row_batches, "pass_room", lambda expected, n: 7)
    np.testing.assert_allclose(poisson_sum(lambda some: some.weight @ some.a, rows, 30, KEY), one)


def test_random_rows_are_those_that_are_there():
    rows = rows_of()._replace(weight=(jnp.arange(60) % 2) * 1.0, y=jnp.arange(60.0))
    drawn = random_rows(rows, 2000, KEY)
    assert set(np.asarray(drawn.y)) == set(range(1, 60, 2))
    assert (drawn.weight == 1).all()


# Noise


def std_of_noise(noisy, plain):
    """Of many entries; the relative error of the estimate is 1 / sqrt(2 entries)."""
    entries = np.concatenate(
        [flat(noisy(key)) - flat(plain(key)) for key in jax.random.split(KEY, 800)]
    )
    return entries.std(), 5 / math.sqrt(2 * len(entries))  # false alarm 6e-7


def test_the_noise_of_a_step_is_as_stated():
    params, rows = NETWORK.init(KEY), rows_of()
    step = DpSgd(NETWORK, clip=0.7, noise=1.3, batch=10)
    found, error = std_of_noise(
        *(
            jax.jit(lambda key, s=s: s.noisy_gradient(params, rows, key))
            for s in (step, replace(step, noise=0.0))
        )
    )
    expected = 1.3 * 0.7 / 10
    assert found == pytest.approx(expected, rel=error)
    assert found != pytest.approx(
        1.05 * expected, rel=error
    )  # which an error of 5 % would not pass


def test_the_noise_of_the_private_teacher_is_as_stated():
    rows = rows_of()
    teacher = PrivateFairSgd(NETWORK, Parity("statistical_parity"), noise=1.3, batch=10)
    state, none = teacher.init(KEY), RateSums(jnp.zeros((1, 2)), jnp.zeros((1, 2)))
    found, error = std_of_noise(
        *(
            jax.jit(lambda key, t=t: t.tell(state, none, rows, key))
            for t in (teacher, replace(teacher, noise=0.0))
        )
    )
    assert found == pytest.approx(1.3 * SENSITIVITY, rel=error)
    assert found != pytest.approx(1.3, rel=error)


def test_noise_differs_from_round_to_round_and_user_to_user():
    users, algorithm = users_of(30, 30), DpSgd(NETWORK, noise=50.0, batch=5)
    seen = []
    run(
        algorithm,
        users,
        everyone(users),
        rounds=2,
        seed=0,
        chunk=1,
        on_chunk=lambda p: seen.append(flat(p.state)),
    )
    first = flat(algorithm.init(jax.random.key(0)))
    assert abs(np.corrcoef(seen[0] - first, seen[1] - seen[0])[0, 1]) < 0.6
    rows = rows_of()
    one, two = (
        algorithm.report(algorithm.init(KEY), rows, key).change for key in jax.random.split(KEY)
    )
    assert abs(np.corrcoef(flat(one), flat(two))[0, 1]) < 0.6


# Limits


def test_without_clip_and_noise_it_is_gradient_descent_and_one_client_trains_alone():
    users = users_of(60)
    algorithm = DpSgd(NETWORK, clip=math.inf, noise=0.0, batch=60, local_steps=3)
    done = run(algorithm, users, everyone(users), rounds=2, seed=0)
    params = run(algorithm, users, everyone(users), rounds=0, seed=0).state
    for _ in range(6):
        slope = jax.grad(lambda p: jnp.mean(NETWORK.loss(p, users.a, users.y)))(params)
        params = jax.tree.map(lambda p, g: p - 0.25 * g, params, slope)
    np.testing.assert_allclose(flat(done.state), flat(params), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "off", [{"parity": None}, {"kappa": 0.0, "kappa_rate": 0.0}, {"slack": 0.99}]
)
def test_fairness_off_is_cross_entropy(off):
    rows, theta = rows_of(), jnp.array([2.0, 0.0, 0.0])
    fair = FairSgd(Linear(3), Parity("equalized_odds"), kappa=3.0)
    without = replace(fair, **off)
    loss = without.objective(without.init(KEY)._replace(params=theta), rows)[0]
    expected = np.logaddexp(0, -np.asarray(rows.y * (rows.a @ theta))).mean()
    assert loss == pytest.approx(expected)
    assert fair.objective(fair.init(KEY)._replace(params=theta), rows)[0] > expected + 0.1


def test_users_count_by_their_rows():
    users = users_of(20, 60)
    algorithm = DpSgd(NETWORK, clip=1.0, noise=0.0, batch=60, local_steps=2)
    found = run(algorithm, users, everyone(users), rounds=1, seed=0).state
    start = run(algorithm, users, everyone(users), rounds=0, seed=0).state
    moved = []
    for part, n in ((slice(0, 20), 20), (slice(20, 80), 60)):
        own = (np.asarray(x[part]) for x in (users.a, users.s, users.y))
        alone = make_users(*own, np.zeros(n))
        after = run(algorithm, alone, everyone(alone), rounds=1, seed=0).state
        moved.append(flat(after) - flat(start))
    expected = flat(start) + 0.25 * moved[0] + 0.75 * moved[1]
    np.testing.assert_allclose(flat(found), expected, rtol=1e-8, atol=1e-10)
    assert not np.allclose(flat(found), flat(start) + 0.5 * moved[0] + 0.5 * moved[1], atol=1e-6)


# Fairness


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_fair_loss_is_the_widest_gap_of_a_rate_less_the_slack(notion):
    rows = rows_of()
    p, s, y = (
        1 / (1 + np.exp(-np.asarray(rows.a[:, 0]))),
        np.asarray(rows.s[:, 0]),
        np.asarray(rows.y),
    )
    masks = [np.ones(60, bool)] if notion == "statistical_parity" else [y > 0, y < 0]
    gaps = [abs(p[m & (s == 0)].mean() - p[m & (s == 1)].mean()) for m in masks]
    found = fair_loss(Parity(notion).sums(rows.a[:, 0], rows), 0.01)
    assert found == pytest.approx(max(gaps) - 0.01)
    assert fair_loss(Parity(notion).sums(rows.a[:, 0], rows), 0.9) == 0


def test_a_group_that_a_batch_lacks_makes_no_gap():
    sums = RateSums(jnp.array([[0.0, 7.0]]), jnp.array([[0.0, 10.0]]))
    assert fair_loss(sums, 0.0) == 0
    assert np.isfinite(
        jax.grad(lambda v: fair_loss(sums._replace(values=v), 0.0))(sums.values)
    ).all()


@pytest.mark.parametrize("notion", NOTIONS)
def test_without_clip_and_noise_the_private_teacher_has_the_gradient_of_the_published(notion):
    """Given the sums of the batch itself, and all rows in the batch."""
    rows, parity = rows_of(), Parity(notion)
    published = FairSgd(NETWORK, parity, slack=0.0, kappa=2.0)
    private = PrivateFairSgd(NETWORK, parity, slack=0.0, kappa=2.0, clip=1e6, noise=0.0, batch=60)
    state = private.init(KEY)
    sums = parity.sums(NETWORK.scores(state.params, rows.a), rows)
    told = private.tell(state, sums, rows, KEY)
    expected = jax.grad(lambda p: published.objective(FairState(p, state.kappa), rows)[0])(
        state.params
    )
    np.testing.assert_allclose(
        flat(told.gradients) * 1e6 / 60, flat(expected), rtol=1e-6, atol=1e-10
    )
    assert np.abs(cell_weights(sums, 0.0)).max() > 0  # else the gap would not have entered


@pytest.mark.parametrize("notion", NOTIONS)
def test_one_row_changes_what_the_private_teacher_tells_by_its_sensitivity_at_most(notion):
    rows = rows_of()
    teacher = PrivateFairSgd(NETWORK, Parity(notion), kappa=50.0, clip=0.1, noise=0.0, batch=60)
    state = teacher.init(KEY)
    recent = Parity(notion).sums(rows.a[:, 1], rows)
    without = rows._replace(weight=rows.weight.at[0].set(0.0))
    told = [flat(teacher.tell(state, recent, r, KEY)) for r in (rows, without)]
    assert 1 < np.linalg.norm(told[0] - told[1]) <= SENSITIVITY * (1 + 1e-9)


def gap_of(params, users):
    decided = np.asarray(NETWORK.scores(params, users.a) > 0)
    s = np.asarray(users.s[:, 0])
    return abs(decided[s == 1].mean() - decided[s == 0].mean())


def test_fair_sgd_lowers_the_gap_of_a_table_that_has_one():
    users = users_of(300, 500, gap=2.0)
    plain = FairSgd(NETWORK, batch=100, local_steps=60)
    fair = replace(plain, parity=Parity("statistical_parity"), kappa=2.0)
    b1, b2 = (run(a, users, everyone(users), rounds=3, seed=0).state for a in (plain, fair))
    assert gap_of(b1.params, users) > 0.4
    assert gap_of(b2.params, users) < 0.5 * gap_of(b1.params, users)
    assert b1.kappa == 1.0
    assert b2.kappa > 2.0


def followed(kappa, **variant):
    """Agreement with the teachers, and gap, of students whose gap is 0.64 without fairness."""
    users, parity = users_of(300, 500, gap=2.0), Parity("statistical_parity")
    settings = {"batch": 60, "noise": 0.1, "teacher_epochs": 60, "local_epochs": 20, "clip": 1.0}
    method = two_phase(
        NETWORK,
        parity,
        users,
        learning_rate=2.0,
        kappa=kappa,
        kappa_rate=0.0,
        **settings,
        **variant,
    )
    taught = method.teach(users, seed=0)
    done = run(method.student, taught, everyone(users), rounds=4, seed=0)
    decided = np.asarray(NETWORK.scores(done.state, users.a) > 0)
    return (decided == np.asarray(taught.y > 0)).mean(), gap_of(done.state, users)


@pytest.mark.parametrize("variant", [{}, {"end_to_end": True, "teacher_rate": 0.5}])
def test_students_learn_their_teachers_decisions(variant):
    assert followed(0.5, **variant)[0] > 0.95


def test_students_of_private_fair_teachers_are_fairer():
    """They cannot follow two teachers, each fair on its own user's rows, in all rows."""
    agreement, gap = followed(1.2, end_to_end=True, teacher_rate=0.5)
    assert agreement > 0.7
    assert gap < 0.5


def test_each_user_has_a_teacher_of_its_own():
    """Of users whose labels are all alike, each one's teacher decides so."""
    users = users_of(40, 70, 30)
    owner = np.repeat(np.arange(3), [40, 70, 30])
    wanted = np.array([1.0, -1.0, 1.0])[owner]
    method = two_phase(NETWORK, Parity("statistical_parity"), users, batch=20, teacher_epochs=60)
    taught = method.teach(replace(users, y=jnp.asarray(wanted)), seed=0)
    np.testing.assert_array_equal(taught.y, wanted)


# What is covered


def test_the_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end():
    users = users_of(200, 300)
    settings = {"batch": 20, "local_epochs": 2, "teacher_epochs": 3}
    published = two_phase(NETWORK, Parity("equalized_odds"), users, **settings)
    private = two_phase(NETWORK, Parity("equalized_odds"), users, end_to_end=True, **settings)
    (student,) = published.sums(users, rounds=4)
    assert (student.population, student.sample, student.times) == (200, 20, 4 * 20)
    assert private.sums(users, rounds=4) == (replace(student, times=30), student)
    assert TEACHER_NOT_COVERED in published.not_covered
    assert TEACHER_NOT_COVERED not in private.not_covered
    assert "not an end-to-end guarantee" in TEACHER_NOT_COVERED
    noise = private.for_budget(users, 4, epsilon=2.0, delta=1e-4).student.noise
    spent = composed_epsilon([(sums, noise) for sums in private.sums(users, 4)], 1e-4)
    assert 1.99 < spent <= 2.0
    assert noise > published.for_budget(users, 4, epsilon=2.0, delta=1e-4).student.noise


def test_steps_follow_from_the_smallest_users_rows():
    assert steps_of(users_of(200, 400), batch=20, epochs=5) == 50
    assert steps_of(users_of(5), batch=20, epochs=1) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0.0}, {"clip": math.nan}, {"noise": -1.0}, {"batch": 0}, {"learning_rate": 0.0}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        DpSgd(NETWORK, **wrong)


def test_noise_that_nothing_bounds_is_refused():
    with pytest.raises(InputError, match="noise = 1.3: must be 0 where clip is infinite"):
        DpSgd(NETWORK, clip=math.inf)


@pytest.mark.parametrize(
    "parity", [Parity("equal_opportunity"), Parity("statistical_parity", (2, 2))]
)
def test_notions_that_the_method_has_not_are_refused(parity):
    with pytest.raises(InputError, match="must be one of statistical_parity, equalized_odds"):
        FairSgd(NETWORK, parity)
    with pytest.raises(InputError, match="must be one of"):
        PrivateFairSgd(NETWORK, parity)
