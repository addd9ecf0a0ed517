"""Federated averaging, where its answer is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table

from synthfair.data.encode import encode
from synthfair.distill.inner import train
from synthfair.distill.problem import make_rows
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import run
from synthfair.federated.fedavg import SETTLED, FedAvg, FedAvgRecord, safe_rate
from synthfair.federated.networks import LogisticRegression
from synthfair.federated.engine import Protection
from synthfair.federated.users import make_users
from synthfair.model import LinearModel, Rows


def client(seed, n=150):
    real = encode(make_table(n=n, seed=seed), make_schema())
    return make_rows(real, n_groups=2, intercept=True)


def pooled(clients):
    return Rows(*(jnp.concatenate(parts) for parts in zip(*(c[:3] for c in clients), strict=True)))


def average(clients, *, rounds, protection=Protection(), **settings):  # noqa: B008
    rows = pooled(clients)
    owner = np.repeat(np.arange(len(clients)), [len(c.y) for c in clients])
    users = make_users(*map(np.asarray, rows[:3]), owner)
    algorithm = FedAvg(LogisticRegression(rows.a.shape[1]), lambda_theta=1.0, **settings)
    algorithm = replace(algorithm, learning_rate=float(safe_rate(algorithm, users)))
    everyone = Cohorts(len(users), len(users))
    return run(algorithm, users, everyone, rounds=rounds, seed=0, protection=protection)


def test_one_local_step_is_central_gradient_descent_for_users_of_any_size():
    """Without penalty the mean of the users' losses by rows is the loss of the pooled rows."""
    clients = [client(0), client(1, n=40)]
    found = average(clients, rounds=5000, local_steps=1)
    expected = train(pooled(clients), 1.0, model=LinearModel())
    np.testing.assert_allclose(found.state.params, expected.params, atol=1e-4)


def test_one_client_is_local_training_with_the_penalty():
    rows, penalty = client(0), CovariancePenalty()
    found = average([rows], rounds=3000, penalty=penalty, rho=10.0)
    expected = train(rows, 1.0, model=LinearModel(), penalty=penalty, rho=10.0)
    np.testing.assert_allclose(found.state.params, expected.params, atol=1e-3)


def test_with_momentum_it_settles_where_it_does_without_and_sooner():
    """A steep penalty makes steps short."""
    clients, penalty = [client(0), client(1, n=40)], CovariancePenalty()
    settings = {"penalty": penalty, "rho": 100.0}
    plain = average(clients, rounds=20_000, **settings)
    kept = [average(clients, rounds=500, momentum=m, **settings) for m in (0.0, 0.9)]
    far = [np.linalg.norm(one.state.params - plain.state.params) for one in kept]
    assert far[1] < 1e-4 < far[0] / 5


def test_what_passes_its_optimum_at_full_speed_has_not_settled():
    """Where the users' changes cancel, momentum goes on, and the drift grows again."""
    drift = average([client(0), client(1)], rounds=1500, momentum=0.98).history.drift
    small = np.flatnonzero(drift <= SETTLED)
    passing = next(i for i in small if i + 1 not in small) + 1
    assert not FedAvgRecord(drift[:passing]).settled
    assert FedAvgRecord(drift).settled


def test_users_who_differ_end_elsewhere_with_local_steps_and_settle():
    clients = [client(0), client(1)._replace(y=-client(1).y)]
    expected = train(pooled(clients), 1.0, model=LinearModel()).params
    one, many = (average(clients, rounds=2000, local_steps=steps) for steps in (1, 20))
    assert np.linalg.norm(many.state.params - expected) > 10 * np.linalg.norm(
        one.state.params - expected
    )
    assert many.history.drift[-1] == pytest.approx(0, abs=1e-4)


def test_without_row_weights_users_count_alike():
    """A user's 40 rows given twice, to two users, weigh twice; by rows they would, too."""
    clients = [client(0), client(1, n=40)]
    found = average(clients, rounds=50, by_rows=False, local_steps=1)
    again = average([*clients, clients[1]], rounds=50, by_rows=False, local_steps=1)
    assert not np.allclose(found.state.params, again.state.params)
    three = average(
        [clients[0], clients[0], clients[1], clients[1]], rounds=50, by_rows=False, local_steps=1
    )
    np.testing.assert_allclose(found.state.params, three.state.params, atol=1e-10)


def test_no_user_moves_the_model_further_than_the_clip_allows():
    clip = 1e-3
    done = average(
        [client(0), client(1)], rounds=1, by_rows=False, protection=Protection(clip=clip)
    )
    moved = float(jnp.linalg.norm(done.state.params))
    assert 0.5 * clip < moved <= clip * (1 + 1e-9)  # nothing but the change is clipped


def test_padding_changes_nothing():
    """The small user is filled up to the large one's length in the same cohort."""
    small, large = client(0, n=30), client(1, n=200)
    penalty = CovariancePenalty()
    algorithm = FedAvg(LogisticRegression(small.a.shape[1]), penalty=penalty, rho=5.0, lambda_theta=1.0)
    users = make_users(*map(np.asarray, pooled([small, large])[:3]), np.repeat([0, 1], [30, 200]))
    padded = jax.tree.map(lambda part: part[0], users.take(jnp.array([0]), jnp.array([True])))
    alone = make_users(*map(np.asarray, small[:3]), np.zeros(30))
    exact = jax.tree.map(lambda part: part[0], alone.take(jnp.array([0]), jnp.array([True])))
    assert len(padded.y) == 200
    assert len(exact.y) == 30
    theta = jnp.ones(small.a.shape[1])
    np.testing.assert_allclose(
        jax.grad(algorithm.objective)(theta, padded),
        jax.grad(algorithm.objective)(theta, exact),
        rtol=1e-10,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"rho": -1.0},
        {"lambda_theta": float("nan")},
        {"local_steps": 0},
        {"momentum": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        FedAvg(LogisticRegression(3), **wrong)
