"""Real rows in parts and in place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_schema, make_table

from synthfair.client.fair_task import _compared
from synthfair.config import DistillConfig
from synthfair.data.batches import gather, other_inputs
from synthfair.data.encode import Encoded, encode, in_content_order
from synthfair.distill.problem import make_penalty, make_problem
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.model import LinearModel


def parts(sizes, n_groups=2):
    everything = encode(make_table(n=sum(sizes), n_groups=n_groups), make_schema(n_groups))
    ends = np.cumsum(sizes)[:-1]
    return everything, [
        Encoded(*some) for some in zip(*(np.split(p, ends) for p in everything), strict=True)
    ]


@pytest.mark.parametrize("sizes", [(120,), (1, 119), (50, 30, 40)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_parts_give_the_model_inputs_of_the_whole(sizes, intercept, n_groups):
    """In whatever order the rows come."""
    everything, some = parts(sizes, n_groups)
    real = gather(iter(some[::-1]), 120, n_groups=n_groups, intercept=intercept)
    everything = in_content_order(everything)
    more = other_inputs(everything.s, n_groups=n_groups, intercept=intercept)
    np.testing.assert_array_equal(real.columns.T, np.column_stack([everything.x, more.T]))
    for found, wanted in zip(real.encoded, everything, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_other_inputs_are_an_indicator_of_each_group_but_the_first_and_one():
    found = other_inputs(np.array([1, 0]), n_groups=2, intercept=True)
    np.testing.assert_array_equal(found, [[1, 0], [1, 1]])
    found = other_inputs(np.array([0, 1, 2]), n_groups=3, intercept=False)
    np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("counted", [119, 121])
def test_a_file_that_changed_while_it_was_read_is_refused(counted):
    _, some = parts((60, 60))
    with pytest.raises(InputError, match=f"table: {counted} rows counted"):
        gather(some, counted, n_groups=2, intercept=True)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="memory of its own")
def test_jax_uses_the_rows_where_they_lie():
    _, some = parts((120,))
    real = gather(some, 120, n_groups=2, intercept=True)
    problem = make_problem(
        real, DistillConfig(n_synthetic=24), n_groups=2, penalty=CovariancePenalty()
    )
    used = problem.objective.columns
    assert used.unsafe_buffer_pointer() == real.columns.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        real.columns[0, 0] = 1.0


def test_more_rows_than_memory_are_refused():
    _, some = parts((120,))
    with pytest.raises(InputError, match="table: .* rows need .* GB of memory"):
        gather(some, 10**15, n_groups=2, intercept=True)


def test_a_problem_of_gathered_rows_is_that_of_the_table():
    everything, some = parts((70, 50))
    config = DistillConfig(n_synthetic=24, start="normal")
    gathered = gather(some, 120, n_groups=2, intercept=True)
    one, other = (make_problem(r, config, n_groups=2) for r in (everything, gathered))
    np.testing.assert_array_equal(one.start, other.start)
    np.testing.assert_array_equal(one.objective.rows.a, other.objective.rows.a)


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_rows_that_pad_a_problem_do_not_count(notion):
    """A penalty that is given sees the real rows alone."""
    real = encode(make_table(n=121), make_schema())
    config = DistillConfig(n_synthetic=24, notion=notion)
    padded = make_problem(real, config, n_groups=2).objective
    penalty = make_penalty(config, n_groups=2)
    plain = make_problem(real, config, n_groups=2, penalty=penalty).objective
    assert [len(each.y) for each in (padded, plain)] == [128, 121]
    theta = jnp.asarray(np.random.default_rng(0).normal(size=len(plain.columns)))
    for measure in (lambda f: f(theta), lambda f: f.covariance(theta), lambda f: f.gap(theta)):
        assert float(measure(padded)) == pytest.approx(float(measure(plain)), rel=1e-12)


def test_a_release_is_compared_on_the_real_rows_alone():
    real = encode(make_table(n=121), make_schema())
    objective = make_problem(real, DistillConfig(n_synthetic=24), n_groups=2).objective
    thetas = np.random.default_rng(0).normal(size=(2, len(objective.columns)))
    a = np.column_stack([real.x, real.s, np.ones(121)])
    selected = a @ thetas.T > 0
    gaps = [abs(one[real.s == 1].mean() - one[real.s == 0].mean()) for one in selected.T]
    share = (real.y > 0).mean()
    expected = (selected[:, 0] == (real.y > 0)).mean(), gaps[0], max(share, 1 - share), gaps[1]
    found = _compared(objective, *map(jnp.asarray, thetas), model=LinearModel())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
