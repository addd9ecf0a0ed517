"""The linear model, its loss and Hessian; and what a model is."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.distill.losses import regularized_loss
from synthfair.distill.solvers import regularized
from synthfair.model import LinearModel, Rows, logistic


def test_logistic_derivatives_are_exact_at_any_margin():
    margin = np.concatenate([np.linspace(-600, 600, 1001), np.linspace(-2, 2, 1001), [0.0, 1e-300]])
    functions = [logistic]
    for _ in range(3):
        functions.append(jax.grad(functions[-1]))
    value, slope, curvature, third = jax.jit(
        lambda margins: [jax.vmap(function)(margins) for function in functions]
    )(margin)
    with np.errstate(over="ignore"):
        falling, rising = 1 / (1 + np.exp(margin)), 1 / (1 + np.exp(-margin))
    np.testing.assert_allclose(value, np.logaddexp(0, -margin), rtol=1e-12)
    np.testing.assert_allclose(slope, -falling, rtol=1e-12)
    np.testing.assert_allclose(curvature, falling * rising, rtol=1e-12)
    np.testing.assert_allclose(third, falling * rising * (falling - rising), rtol=1e-9, atol=1e-12)


def test_regularized_loss_is_equation_11():
    rng = np.random.default_rng(0)
    a, y, theta = rng.normal(size=(7, 3)), rng.choice([-1.0, 1.0], 7), rng.normal(size=3)
    rows = Rows(a, np.zeros(7, int), y)
    expected = np.logaddexp(0, -y * (a @ theta)).mean() + 0.3 / (2 * 3**2) * theta @ theta
    assert regularized_loss(LinearModel(), theta, rows, 0.3) == pytest.approx(expected)


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


@dataclass(frozen=True)
class Scaled(LinearModel):
    """Other scores, and no Hessian."""

    hessian = None

    def scores(self, params, a):
        return 2.0 * super().scores(params, a)


@dataclass(frozen=True)
class HalfLoss(LinearModel):
    """Another loss, for which the Hessian of LinearModel is right."""

    def loss(self, scores, y):
        return 0.5 * super().loss(scores, y)


def weighted_rows(weight):
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(30, 4)), rng.choice([-1.0, 1.0], 30)
    return Rows(a, np.zeros(30, int), y, weight)


@pytest.mark.parametrize(
    "weight", [None, np.arange(30.0), np.zeros(30)], ids=["unweighted", "weighted", "weightless"]
)
@pytest.mark.parametrize(
    "model",
    [LinearModel(), LinearModel(squared_hinge), HalfLoss(), Scaled()],
    ids=["logistic", "squared hinge", "half", "scaled"],
)
def test_hessian_is_that_of_automatic_differentiation(model, weight):
    rows, theta = weighted_rows(weight), np.linspace(-1.0, 1.0, 4)
    loss = lambda theta: regularized_loss(model, theta, rows, 0.3)  # noqa: E731
    found, expected = jax.jit(
        lambda theta: (regularized(model, rows, 0.3).hessian(theta), jax.hessian(loss)(theta))
    )(theta)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_model_of_another_loss_has_another_name_and_compiled_code():
    assert LinearModel(squared_hinge).name == "linear, squared_hinge loss"
    assert HalfLoss().name == "linear (HalfLoss), logistic loss"
    assert hash(LinearModel()) == hash(LinearModel())
    assert LinearModel() != LinearModel(jnp.square)


def test_hessian_of_other_scores_is_asked_for():
    """Wherever the scores come from."""

    class Shifted:
        def scores(self, params, a):
            return params @ a.T + 1.0

    for bases in [(LinearModel,), (Scaled,)]:
        own = {"scores": Shifted.scores, "hessian": LinearModel.hessian}
        assert type("Complete", bases, own)
        assert type("Automatic", bases, own | {"hessian": None})
    with pytest.raises(TypeError, match="Wrong has scores of its own"):
        type("Wrong", (LinearModel,), {"scores": Shifted.scores})
    with pytest.raises(TypeError, match="Mixed has scores of its own"):
        type("Mixed", (Shifted, LinearModel), {})
