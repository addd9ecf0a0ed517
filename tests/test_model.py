import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.model import LinearModel, Rows, model_inputs, regularized_loss, squared_norm


def test_logistic_loss_is_equation_9_at_any_margin():
    a, y = np.array([[0.5], [-2.0], [800.0], [-800.0]]), np.array([1.0, -1.0, 1.0, 1.0])
    losses = LinearModel().loss(jnp.ones(1), a, y)
    np.testing.assert_allclose(losses, np.logaddexp(0, -y * a[:, 0]))


def test_binary_inputs_are_features_group_and_one():
    a = model_inputs(jnp.array([[0.1], [0.2]]), jnp.array([1, 0]), n_groups=2, intercept=True)
    np.testing.assert_allclose(a, [[0.1, 1, 1], [0.2, 0, 1]])


def test_more_groups_get_an_indicator_each_but_the_first():
    a = model_inputs(jnp.zeros((3, 1)), jnp.array([0, 1, 2]), n_groups=3, intercept=False)
    np.testing.assert_allclose(a[:, 1:], [[0, 0], [1, 0], [0, 1]])


def test_regularized_loss_is_equation_11():
    rng = np.random.default_rng(0)
    a, y, theta = rng.normal(size=(7, 3)), rng.choice([-1.0, 1.0], 7), rng.normal(size=3)
    rows = Rows(jnp.array(a), jnp.zeros(7, int), jnp.array(y))
    expected = np.logaddexp(0, -y * (a @ theta)).mean() + 0.3 / (2 * 3**2) * theta @ theta
    assert regularized_loss(LinearModel(), theta, rows, 0.3) == pytest.approx(expected)


def test_squared_norm_sums_over_a_pytree():
    assert squared_norm({"w": jnp.array([3.0]), "b": jnp.array([[4.0]])}) == 25


def test_equal_models_are_one_key_of_compiled_code():
    assert hash(LinearModel()) == hash(LinearModel())
    assert LinearModel() != LinearModel(jnp.square)
