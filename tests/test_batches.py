"""Real rows as a model sees them."""

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table

from synthfair.client.fair_task import _compared
from synthfair.data.batches import gather, other_inputs
from synthfair.data.encode import Encoded, encode, in_content_order
from synthfair.distill.problem import make_problem
from synthfair.fairness.penalties import named_penalty
from synthfair.model import LinearModel
from synthfair.settings import DistillConfig


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_gathered_rows_have_the_model_inputs_in_the_order_of_their_content(intercept, n_groups):
    rows = encode(make_table(n_groups=n_groups), make_schema(n_groups))
    weight, turned = rows.x[:, 0] + 2 * rows.s, Encoded(*(field[::-1] for field in rows))
    real = gather(turned, n_groups=n_groups, intercept=intercept, weight=weight[::-1])
    rows = in_content_order(rows)
    more = other_inputs(rows.s, n_groups=n_groups, intercept=intercept)
    np.testing.assert_array_equal(real.columns.T, np.column_stack([rows.x, more.T]))
    np.testing.assert_array_equal(real.weight, rows.x[:, 0] + 2 * rows.s)
    for found, wanted in zip(real.encoded, rows, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_other_inputs_are_an_indicator_of_each_group_but_the_first_and_one():
    found = other_inputs(np.array([1, 0]), n_groups=2, intercept=True)
    np.testing.assert_array_equal(found, [[1, 0], [1, 1]])
    found = other_inputs(np.array([0, 1, 2]), n_groups=3, intercept=False)
    np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1]])


def test_a_problem_of_gathered_rows_is_that_of_the_table():
    everything = encode(make_table(n=120), make_schema())
    config = DistillConfig(n_synthetic=24, start="normal")
    gathered = gather(everything, n_groups=1, intercept=True)
    one, other = (make_problem(r, config, n_groups=2) for r in (everything, gathered))
    np.testing.assert_array_equal(one.start, other.start)
    np.testing.assert_array_equal(one.objective.rows.a, other.objective.rows.a)


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_rows_that_pad_a_problem_do_not_count(notion):
    """A penalty that is given sees the real rows alone."""
    real = encode(make_table(n=121), make_schema())
    config = DistillConfig(n_synthetic=24, notion=notion)
    padded = make_problem(real, config, n_groups=2).objective
    penalty = named_penalty(config, n_groups=2)
    plain = make_problem(real, config, n_groups=2, penalty=penalty).objective
    assert [len(each.y) for each in (padded, plain)] == [2048, 121]
    theta = jnp.asarray(np.random.default_rng(0).normal(size=len(plain.columns)))
    for measure in (lambda f: f(theta), lambda f: f.covariance(theta), lambda f: f.gap(theta)):
        assert float(measure(padded)) == pytest.approx(float(measure(plain)), rel=1e-12)


def test_a_release_is_compared_on_the_real_rows_alone():
    real = encode(make_table(n=121), make_schema())
    objective = make_problem(real, DistillConfig(n_synthetic=24), n_groups=2).objective
    thetas = np.random.default_rng(1).normal(size=(2, len(objective.columns)))
    a = np.column_stack([real.x, np.ones(121)])
    selected = a @ thetas.T > 0
    gaps = [abs(one[real.s == 1].mean() - one[real.s == 0].mean()) for one in selected.T]
    share = (real.y > 0).mean()
    expected = (selected[:, 0] == (real.y > 0)).mean(), gaps[0], max(share, 1 - share), gaps[1]
    found = _compared(objective, *map(jnp.asarray, thetas), model=LinearModel())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
