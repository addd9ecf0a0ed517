"""Federated averaging, where its answer is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table

from synthfair.data.encode import encode
from synthfair.distill.inner import train
from synthfair.distill.problem import make_rows
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.federated.fedavg import fedavg
from synthfair.model import LinearModel


def client(seed):
    real = encode(make_table(n=150, seed=seed), make_schema())
    return make_rows(real, n_groups=2, intercept=True)


def pooled(clients):
    return type(clients[0])(*(jnp.concatenate(parts) for parts in zip(*clients, strict=True)))


def test_clients_of_different_sizes_are_refused():
    few, many = client(0), client(1)
    few = type(few)(*(part[:-1] for part in few))
    with pytest.raises(InputError, match="149, 150"):
        fedavg([few, many], 1.0, model=LinearModel())
    with pytest.raises(InputError, match="not none"):
        fedavg([], 1.0, model=LinearModel())


def test_one_local_step_is_central_gradient_descent():
    """Without penalty the mean of the clients' losses is the loss of the pooled rows."""
    clients = [client(0), client(1)]
    found = fedavg(clients, 1.0, model=LinearModel(), rounds=5000, local_steps=1)
    expected = train(pooled(clients), 1.0, model=LinearModel())
    np.testing.assert_allclose(found.params, expected.params, atol=1e-4)


def test_one_client_is_local_training_with_the_penalty():
    rows, penalty = client(0), CovariancePenalty()
    found = fedavg([rows], 1.0, model=LinearModel(), penalty=penalty, rho=10.0, rounds=3000)
    expected = train(rows, 1.0, model=LinearModel(), penalty=penalty, rho=10.0)
    np.testing.assert_allclose(found.params, expected.params, atol=1e-3)


def test_clients_that_differ_drift_with_local_steps():
    clients = [client(0), client(1)._replace(y=-client(1).y)]
    one, many = (
        fedavg(clients, 1.0, model=LinearModel(), rounds=2000, local_steps=steps)
        for steps in (1, 20)
    )
    assert one.gradient_norm < 1e-5
    assert many.gradient_norm > 10 * one.gradient_norm
    assert many.drift == pytest.approx(0, abs=1e-4)
