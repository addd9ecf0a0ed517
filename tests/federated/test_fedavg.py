"""Federated averaging, where its answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table
from small_problem import make_rows

from synthfair.data.encode import encode
from synthfair.distill.losses import regularized_loss
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.federated.engine import UNPROTECTED, Protection, run
from synthfair.federated.fedavg import MAX_SETTLED_DRIFT, FedAvg, FedAvgRecord, safe_rate
from synthfair.federated.networks import LogisticRegression
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import Cohorts, make_users
from synthfair.model import LinearModel, Rows

PENALTY = CovariancePenalty()


def client(seed, n):
    real = encode(make_table(n=n, seed=seed), make_schema())
    return make_rows(real, n_groups=2, intercept=True)


def pooled(clients):
    return Rows(*(jnp.concatenate(parts) for parts in zip(*(c[:3] for c in clients), strict=True)))


CLIENTS = [client(0, 150), client(1, 40)]
N_INPUTS = CLIENTS[0].a.shape[1]


def users_of(clients):
    owner = np.repeat(np.arange(len(clients)), [len(c.y) for c in clients])
    return make_users(*map(np.asarray, pooled(clients)[:3]), owner)


def average(clients, *, rounds, protection=UNPROTECTED, **settings):
    users = users_of(clients)
    algorithm = FedAvg(model=LogisticRegression(N_INPUTS), lambda_theta=1.0, **settings)
    curved = algorithm.bound(local_steps=1, clip=None)  # which do not matter to it
    algorithm = algorithm.bound(learning_rate=float(safe_rate(curved, users)))
    everyone = Cohorts(len(users), len(users))
    return run(algorithm, users, everyone, rounds=rounds, seed=0, protection=protection)


def slope(clients, params, rho=0.0):
    """Of the pooled clients' problem: 0 at its optimum."""

    @jax.jit
    @jax.grad
    def gradient(params):
        rows = pooled(clients)
        unfair = PENALTY(LinearModel().scores(params, rows.a), rows) if rho else 0.0
        return regularized_loss(LinearModel(), params, rows, 1.0) + rho * unfair

    return np.abs(gradient(params)).max()


def test_one_local_step_is_central_gradient_descent_for_users_of_any_size():
    """Without penalty the mean of the users' losses by rows is the loss of the pooled rows."""
    found = average(CLIENTS, rounds=5000, local_steps=1)
    assert slope(CLIENTS, found.state.params) < 1e-6


def test_one_client_is_local_training_with_the_penalty():
    found = average(CLIENTS[:1], rounds=3000, penalty=PENALTY, rho=10.0)
    assert slope(CLIENTS[:1], found.state.params, rho=10.0) < 1e-5


def test_with_momentum_it_settles_where_it_does_without_and_sooner():
    """A steep penalty makes steps short."""
    settings = {"penalty": PENALTY, "rho": 100.0}
    plain = average(CLIENTS, rounds=10_000, **settings).state.params
    ends = [average(CLIENTS, rounds=500, momentum=m, **settings).state.params for m in (0.0, 0.9)]
    far = [np.linalg.norm(end - plain) for end in ends]
    assert far[1] < 1e-4 < far[0] / 5


def test_what_passes_its_optimum_at_full_speed_has_not_settled():
    """Where the users' changes cancel, momentum goes on, and the drift grows again."""
    drift = average(CLIENTS, rounds=1500, momentum=0.98).history.drift
    small = np.flatnonzero(drift <= MAX_SETTLED_DRIFT)
    passing = next(i for i in small if i + 1 not in small) + 1
    method = FedAvg(cohorts=Cohorts(2, 2))
    assert not method.converged(FedAvgRecord(drift[:passing]))
    assert method.converged(FedAvgRecord(drift))


def test_users_who_differ_end_elsewhere_with_local_steps_and_settle():
    clients = [CLIENTS[0], CLIENTS[1]._replace(y=-CLIENTS[1].y)]
    one, many = (average(clients, rounds=2000, local_steps=steps) for steps in (1, 5))
    assert slope(clients, many.state.params) > 10 * slope(clients, one.state.params)
    assert many.history.drift[-1] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(("clip", "weights"), [(None, [150, 40]), (1.0, [1, 1])])
def test_users_count_by_their_rows_or_alike(clip, weights):
    """After one step from zeros, and however the smaller user's rows are padded."""
    algorithm = FedAvg(
        model=LogisticRegression(N_INPUTS),
        learning_rate=0.1,
        local_steps=1,
        lambda_theta=1.0,
        penalty=PENALTY,
        rho=5.0,
    )
    slope = jax.jit(jax.grad(algorithm.objective))
    rows = [UserRows(c.a, c.s[:, None], c.y, jnp.ones(len(c.y))) for c in CLIENTS]
    alone = [slope(jnp.zeros(N_INPUTS), own) for own in rows]
    users, algorithm = users_of(CLIENTS), algorithm.bound(clip=clip)
    found = run(algorithm, users, Cohorts(2, 2), rounds=1, seed=0).state.params
    np.testing.assert_allclose(found, -0.1 * np.average(alone, axis=0, weights=weights), rtol=1e-9)


def test_no_user_moves_the_model_further_than_the_clip_allows():
    protection = Protection(clip=1e-3)
    done = average(CLIENTS, rounds=1, local_steps=1, clip=1e-3, protection=protection)
    moved = float(jnp.linalg.norm(done.state.params))
    assert 0.5e-3 < moved <= 1e-3 * (1 + 1e-9)  # nothing but the change is clipped


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
        FedAvg(**wrong)
