"""Real rows as a model sees them, and what their order tells."""

import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table

from synthfair.client.fair_task import _compared
from synthfair.data.batches import MAX_BATCH_ROWS, in_memory, other_inputs
from synthfair.data.encode import Encoded, encode, in_content_order
from synthfair.distill.problem import make_problem
from synthfair.fairness.penalties import CovariancePenalty, named_penalty
from synthfair.release.settings import DistillConfig

REAL = encode(make_table(n=121), make_schema())


def test_batches_hold_every_row_once():
    many = Encoded(*(np.resize(field, (MAX_BATCH_ROWS + 5, *field.shape[1:])) for field in REAL))
    sizes = [len(rows.y) for rows in in_memory(many).read()]
    assert sizes == [MAX_BATCH_ROWS, 5]
    total = in_memory(many).sum(lambda rows: rows.x.sum(axis=0))
    np.testing.assert_allclose(total, many.x.sum(axis=0))


@pytest.mark.parametrize(("n_groups", "intercept"), [(2, True), (3, False)])
def test_problem_has_the_model_inputs_in_the_order_of_their_content(n_groups, intercept):
    rows = encode(make_table(n_groups=n_groups), make_schema(n_groups))
    weight, turned = rows.x[:, 0] + 2 * rows.s, Encoded(*(field[::-1] for field in rows))
    given = {"weight": weight[::-1], "penalty": CovariancePenalty(n_groups), "n_groups": n_groups}
    config = DistillConfig(n_synthetic=24, group_input=True, intercept=intercept)
    real = make_problem(turned, config, **given).objective
    rows = in_content_order(rows)
    more = other_inputs(rows.s, n_groups=n_groups, intercept=intercept)
    np.testing.assert_allclose(real.columns.T, np.column_stack([rows.x, more.T]), rtol=1e-6)
    np.testing.assert_allclose(real.weight, rows.x[:, 0] + 2 * rows.s, rtol=1e-6)
    np.testing.assert_equal((real.s, real.y), (rows.s, rows.y))


def test_other_inputs_are_an_indicator_of_each_group_but_the_first_and_one():
    found = other_inputs(np.array([1, 0]), n_groups=2, intercept=True)
    np.testing.assert_array_equal(found, [[1, 0], [1, 1]])
    found = other_inputs(np.array([0, 1, 2]), n_groups=3, intercept=False)
    np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_rows_that_pad_a_problem_do_not_count(notion):
    """A penalty that is given sees the real rows alone."""
    config = DistillConfig(n_synthetic=24, notion=notion)
    padded = make_problem(REAL, config, n_groups=2).objective
    penalty = named_penalty(config, n_groups=2)
    plain = make_problem(REAL, config, n_groups=2, penalty=penalty).objective
    assert [len(each.y) for each in (padded, plain)] == [2048, 121]
    theta = jnp.asarray(np.random.default_rng(0).normal(size=len(plain.columns)))
    for measure in (lambda f: f(theta), lambda f: f.covariance(theta), lambda f: f.gap(theta)):
        assert float(measure(padded)) == pytest.approx(float(measure(plain)), rel=1e-12)


def test_release_is_compared_on_the_real_rows_alone():
    objective = make_problem(REAL, DistillConfig(n_synthetic=24), n_groups=2).objective
    thetas = np.random.default_rng(1).normal(size=(2, len(objective.columns)))
    selected = np.column_stack([REAL.x, np.ones(121)]) @ thetas.T > 0
    gaps = [abs(one[REAL.s == 1].mean() - one[REAL.s == 0].mean()) for one in selected.T]
    share = (REAL.y > 0).mean()
    expected = (selected[:, 0] == (REAL.y > 0)).mean(), gaps[0], max(share, 1 - share), gaps[1]
    found = _compared(objective, *map(jnp.asarray, thetas))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("labels", ["balanced", "copy"])
@pytest.mark.parametrize("start", ["range", "normal"])
def test_order_of_a_blind_problem_does_not_tell_a_rows_group(labels, start):
    """Without a penalty a blind model knows no group, and whoever knows x and y learns none."""
    n_synthetic = None if labels == "copy" else 24
    config = DistillConfig(n_synthetic=n_synthetic, labels=labels, start=start, rho_o=0.0)
    for row in (0, 60, 120):
        s = REAL.s.copy()
        s[row] = 1 - s[row]
        one, other = (make_problem(r, config, n_groups=2) for r in (REAL, REAL._replace(s=s)))
        np.testing.assert_array_equal(one.start, other.start)
        np.testing.assert_array_equal(one.y, other.y)
