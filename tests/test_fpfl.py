"""The method of multipliers, against its own formula, SciPy and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from synthfair.errors import InputError
from synthfair.federated import engine
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.fpfl import CohortSums, Fpfl, Statistics
from synthfair.federated.networks import LogisticRegression, Network, Perceptron
from synthfair.federated.parity import Parity, RateSums
from synthfair.federated.engine import Protection
from synthfair.federated.users import make_users

N = 300


def problem(seed=0):
    """Rows whose label depends on the group, so that fairness costs accuracy."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, N)
    x = rng.normal(size=(N, 2))
    a = np.column_stack([x, s, np.ones(N)])
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-(2 * x[:, 0] + 3 * s - 1.5))), 1.0, -1.0)
    return a, s, y


def population(users=40, owner=None):
    a, s, y = problem()
    return make_users(a, s, y, np.arange(N) % users if owner is None else owner)


def everyone(users):
    return Cohorts(len(users), len(users))


def rates(theta, notion):
    """Overall rate minus that of each group, straight from the definition."""
    a, s, y = map(jnp.asarray, problem())
    p = jax.nn.sigmoid(a @ theta)
    value, among = (p, jnp.ones(N)) if notion == "statistical_parity" else (1 - p, (y > 0) * 1.0)
    overall = jnp.sum(value * among) / jnp.sum(among)
    group = [jnp.sum(value * among * (s == g)) / jnp.sum(among * (s == g)) for g in (0, 1)]
    return overall - jnp.array(group)


def loss(theta):
    a, _, y = map(jnp.asarray, problem())
    return jnp.mean(jnp.log1p(jnp.exp(-y * (a @ theta))))


@pytest.mark.parametrize("notion", ["statistical_parity", "equal_opportunity"])
@pytest.mark.parametrize("theta", [[0.5, 0.1, 1.0, -0.3], [0.1, 0.0, -2.0, 0.2]])
def test_a_round_of_all_users_is_equation_10(notion, theta):
    """lambda first; then the gradient of L/n + lambda'g + c/2 |g|^2, by differentiation."""
    theta, users = jnp.array(theta), population()
    algorithm = Fpfl(
        LogisticRegression(4), Parity(notion), alpha=0.03, learning_rate=0.2, multiplier_rate=0.5, damping=3.0
    )
    begun = engine.start(algorithm, users, 0)
    multipliers = jnp.array([[0.4, 0.7]])
    state = begun.state._replace(params=theta, multipliers=multipliers)
    done = engine.run(
        algorithm, users, everyone(users), rounds=1, seed=0, progress=begun._replace(state=state)
    )
    g = jnp.maximum(jnp.abs(rates(theta, notion)) - 0.03, 0)
    assert g.max() > 0
    expected = multipliers[0] + 0.5 * g

    def lagrangian(theta):
        g = jnp.maximum(jnp.abs(rates(theta, notion)) - 0.03, 0)
        return loss(theta) + expected @ g + 1.5 * jnp.sum(g**2)

    np.testing.assert_allclose(done.state.multipliers[0], expected, rtol=1e-10)
    np.testing.assert_allclose(
        done.state.params, theta - 0.2 * jax.grad(lagrangian)(theta), rtol=1e-9
    )


def test_it_finds_the_constrained_optimum_that_scipy_finds():
    users = population()
    algorithm = Fpfl(
        LogisticRegression(4),
        Parity("statistical_parity"),
        alpha=0.05,
        learning_rate=0.5,
        multiplier_rate=0.05,
        damping=4.0,
    )
    done = engine.run(algorithm, users, everyone(users), rounds=6000, seed=0)
    theta = np.asarray(done.state.params)
    value_and_grad = jax.jit(jax.value_and_grad(loss))
    gaps = jax.jit(lambda theta: rates(theta, "statistical_parity"))
    slopes = jax.jit(jax.jacobian(gaps))
    found = minimize(
        lambda t: tuple(np.asarray(part, float) for part in value_and_grad(t)),
        np.zeros(4),
        jac=True,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
        constraints=[
            {
                "type": "ineq",
                "fun": lambda t, k=k: 0.05 - k * np.asarray(gaps(t)),
                "jac": lambda t, k=k: -k * np.asarray(slopes(t)),
            }
            for k in (1, -1)
        ],
    )
    assert found.success
    assert np.abs(gaps(np.zeros(4) + found.x)).max() == pytest.approx(0.05, abs=1e-6)
    assert float(loss(theta)) == pytest.approx(found.fun, abs=2e-3)
    assert np.abs(gaps(theta)).max() < 0.055


@pytest.mark.parametrize("owner", [np.arange(N), np.arange(N) % 7, problem()[1]])
def test_who_holds_which_rows_makes_no_difference_where_nothing_is_clipped(owner):
    """Users of one row each are central training; users may hold rows of one group only."""
    users, algorithm = population(owner=owner), Fpfl(LogisticRegression(4), Parity("equal_opportunity"))
    done = engine.run(algorithm, users, everyone(users), rounds=20, seed=0)
    expected = engine.run(algorithm, population(1), Cohorts(1, 1), rounds=20, seed=0)
    np.testing.assert_allclose(done.state.params, expected.state.params, atol=1e-10)


def test_a_clip_that_nothing_reaches_and_no_noise_change_nothing():
    network = Network(Perceptron(4, (5,)))
    for parity in (None, Parity("equalized_odds")):
        run = lambda protection, parity=parity: engine.run(  # noqa: E731
            Fpfl(network, parity, memory=0.5, count_scale=0.3),
            population(),
            Cohorts(40, 11, "poisson"),
            rounds=15,
            seed=2,
            protection=protection,
        )
        plain, clipped = run(Protection()), run(Protection(clip=1e9))
        for one, other in zip(
            jax.tree.leaves(plain.state), jax.tree.leaves(clipped.state), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-9)


def test_without_a_constraint_it_is_gradient_descent():
    users = population()
    done = engine.run(Fpfl(LogisticRegression(4)), users, everyone(users), rounds=30, seed=0)
    theta = jnp.zeros(4)
    for _ in range(30):
        theta = theta - 0.1 * jax.grad(loss)(theta)
    np.testing.assert_allclose(done.state.params, theta, atol=1e-10)


def test_the_constraint_narrows_the_gap_of_a_network():
    users, network = population(), Network(Perceptron(4, (8,)))
    gaps = []
    for parity in (None, Parity("statistical_parity")):
        algorithm = Fpfl(network, parity, learning_rate=0.5, multiplier_rate=0.1, damping=5.0)
        done = engine.run(algorithm, users, everyone(users), rounds=600, seed=0)
        a, s, _ = problem()
        chosen = np.asarray(network.scores(algorithm.params(done.state), jnp.asarray(a))) > 0
        gaps.append(abs(chosen[s == 1].mean() - chosen[s == 0].mean()))
    assert gaps[0] > 0.3
    assert gaps[1] < 0.15


def statistics(right, rows, values, counts):
    one = jnp.ones
    sums = CohortSums(
        RateSums(jnp.array([values]), jnp.array([counts])), jnp.array(right), jnp.array(rows)
    )
    return Statistics(one(4), one((1, 2, 4)), sums)


def test_the_most_accurate_of_the_fair_is_kept_and_else_the_fairest():
    algorithm = Fpfl(LogisticRegression(4), Parity("equal_opportunity"), alpha=0.1)
    state = algorithm.init(jax.random.key(0))
    quality = []
    for k, total in enumerate(
        [
            statistics(90.0, 100.0, [9.0, 1.0], [10.0, 10.0]),  # accurate, very unfair
            statistics(70.0, 100.0, [9.0, 5.0], [10.0, 10.0]),  # less unfair
            statistics(60.0, 100.0, [5.0, 5.0], [10.0, 10.0]),  # fair
            statistics(80.0, 100.0, [5.0, 5.0], [10.0, 10.0]),  # fair and more accurate
            statistics(70.0, 100.0, [5.0, 5.0], [10.0, 10.0]),
            statistics(99.0, 100.0, [9.0, 1.0], [10.0, 10.0]),
        ]
    ):
        state = state._replace(params=jnp.full(4, float(k)))
        state, _ = algorithm.update(state, total, 1.0)
        quality.append(int(state.best[0]))
    assert quality == [0, 1, 2, 3, 3, 3]


def test_memory_averages_the_cohorts_sums():
    algorithm = Fpfl(LogisticRegression(4), Parity("equal_opportunity"), memory=0.5, count_scale=2.0)
    state = algorithm.init(jax.random.key(0))
    for right in (20.0, 60.0):  # sent at twice their size
        state, record = algorithm.update(
            state, statistics(right, 100.0, [5.0, 5.0], [10.0, 10.0]), 1.0
        )
    assert record.sums.right == 30
    assert record.sums.rows == 50
    assert record.quality == pytest.approx((0.5 * 10 + 30) / (0.5 * 50 + 50))


def test_the_wrong_sign_of_a_constraint_would_be_found_out():
    """The planted bug of Tran et al.'s approximation, spec (15): |grad| instead of sign * grad."""
    users, theta = population(), jnp.array([0.1, 0.0, -2.0, 0.2])
    algorithm = Fpfl(LogisticRegression(4), Parity("statistical_parity"), learning_rate=1e-3, damping=50.0)
    begun = engine.start(algorithm, users, 0)
    state = begun.state._replace(params=theta)
    done = engine.run(
        algorithm, users, everyone(users), rounds=1, seed=0, progress=begun._replace(state=state)
    )
    before = np.abs(rates(theta, "statistical_parity")).max()
    assert np.abs(rates(done.state.params, "statistical_parity")).max() < before
    reflected = 2 * theta - done.state.params
    assert np.abs(rates(reflected, "statistical_parity")).max() > before


def test_the_report_has_the_length_that_is_sent():
    """(A + 1) p + 2 A numbers, as in the paper, and two for accuracy."""
    users, algorithm = population(), Fpfl(LogisticRegression(4), Parity("equal_opportunity"))
    rows = users.take(jnp.arange(1), jnp.ones(1, bool)).merged()
    report = algorithm.report(algorithm.init(jax.random.key(0)), rows, jax.random.key(0))
    assert len(ravel_pytree(report)[0]) == 3 * 4 + 2 * 2 + 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -0.1},
        {"alpha": 1.5},
        {"learning_rate": 0.0},
        {"multiplier_rate": -1.0},
        {"damping": float("nan")},
        {"memory": 1.0},
        {"count_scale": float("inf")},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    name = next(iter(wrong))
    with pytest.raises(InputError, match=f"{name} = "):
        Fpfl(LogisticRegression(3), **wrong)


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_a_group_that_cohorts_seldom_hold_is_not_taken_for_unfairly_treated(memory):
    """Rare people, one in 300, are treated as all are; a rate of 0 for want of them is none."""
    rng = np.random.default_rng(0)
    n = 6000
    s = (rng.random(n) < 1 / 300).astype(int)
    a = np.column_stack([rng.normal(size=(n, 2)), np.ones(n)])
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * a[:, 0])), 1.0, -1.0)
    users = make_users(a, s, y, np.arange(n))
    algorithm = Fpfl(LogisticRegression(3), Parity(), alpha=0.25, memory=memory, multiplier_rate=0.5)
    done = engine.run(algorithm, users, Cohorts(n, 60, "poisson"), rounds=200, seed=1)
    right = np.mean((a @ algorithm.params(done.state) > 0) == (y > 0))
    assert right > 0.78  # 0.80 without a constraint
    if memory == 0:  # nobody rare in four fifths of the cohorts: of these nothing is known
        unknown = done.history.sums.rates.counts[:, 0, 1] < 1
        assert (done.history.quality[unknown] < 0).all()


def test_where_a_group_is_never_known_the_most_accurate_params_are_kept():
    users = population()
    algorithm = Fpfl(LogisticRegression(4), Parity(), learning_rate=1.0, least_count=1e9)
    done = engine.run(algorithm, users, everyone(users), rounds=50, seed=0)
    assert (done.history.quality < -1).all()
    a, _, y = problem()
    assert np.mean((a @ algorithm.params(done.state) > 0) == (y > 0)) > 0.75


def test_a_cohort_of_nobody_meets_nothing():
    algorithm = Fpfl(LogisticRegression(3), Parity())
    none = CohortSums(RateSums(jnp.zeros((1, 2)), jnp.zeros((1, 2))), jnp.zeros(()), jnp.zeros(()))
    assert algorithm._quality(none) < 0
