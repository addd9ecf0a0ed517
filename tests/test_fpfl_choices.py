"""What Fpfl has beyond its paper: averages over rounds, and scales that share out the noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import run, start
from synthfair.federated.fpfl import Fpfl
from synthfair.federated.networks import LogisticRegression
from synthfair.federated.parity import Parity
from synthfair.federated.engine import UNPROTECTED, Protection
from synthfair.federated.users import make_users


@pytest.fixture(scope="module")
def users():
    rng = np.random.default_rng(0)
    s = rng.integers(2, size=300)
    a = np.column_stack([rng.normal(size=(300, 2)), s - 0.5, np.ones(300)])
    y = np.where(a[:, 0] + 2 * a[:, 2] + rng.normal(size=300) > 0, 1.0, -1.0)
    return make_users(a, s, y, np.arange(300) // 3)


def fpfl(**changes):
    return Fpfl(LogisticRegression(4), Parity("equal_opportunity", (2,)), learning_rate=0.5, **changes)


ROUNDS = 12


def path(users, algorithm, protection=UNPROTECTED):
    """Progress after 0, 1, ... rounds."""
    seen = [start(algorithm, users, 3)]
    run(
        algorithm, users, Cohorts(len(users), 20), rounds=ROUNDS, seed=3, protection=protection,
        chunk=1, on_chunk=seen.append,
    )  # fmt: skip
    return seen


def test_the_model_kept_is_the_average_of_the_params_that_its_sums_tell_about(users):
    seen = path(users, fpfl(memory=0.8, multiplier_rate=0.1))
    best = int(np.argmax(seen[-1].history.quality))
    asked_about = [one.state.params for one in seen[: best + 1]]
    expected = np.average(asked_about, axis=0, weights=0.8 ** np.arange(best, -1, -1))
    np.testing.assert_allclose(seen[-1].state.best, expected, rtol=1e-9, atol=1e-12)
    assert best > 0


def test_without_memory_it_is_the_params_of_one_round(users):
    seen = path(users, fpfl())
    best = int(np.argmax(seen[-1].history.quality))
    np.testing.assert_array_equal(seen[-1].state.best, seen[best].state.params)


def test_scales_change_nothing_where_nothing_is_clipped(users):
    far = Protection(clip=1e9)
    plain = path(users, fpfl(memory=0.5), far)[-1]
    scaled = path(users, fpfl(memory=0.5, rate_scale=4.0, count_scale=0.3), far)[-1]
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(scaled), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_scaled_constraint_gets_that_much_less_noise(users):
    state = path(users, fpfl())[3].state
    rows = users.take(jnp.arange(100), jnp.ones(100, bool)).merged()

    def disturbed(scale):
        algorithm = fpfl(rate_scale=scale, alpha=0.0)
        total = algorithm.report(state, rows, jax.random.key(0))
        noisy = total._replace(rate_gradients=total.rate_gradients + 1.0)
        ends = (algorithm.update(state, sent, 100.0)[0].params for sent in (total, noisy))
        return np.subtract(*ends)

    np.testing.assert_allclose(disturbed(1.0), 4 * disturbed(4.0), rtol=1e-9)
    assert np.abs(disturbed(1.0)).max() > 1e-6


def test_scales_must_be_positive():
    with pytest.raises(InputError, match=r"rate_scale = 0: must be positive"):
        fpfl(rate_scale=0)
