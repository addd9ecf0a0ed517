"""Real rows as a model sees them, and what their order tells."""

import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table

from synthfair.client.fair_task import _compared
from synthfair.data.batches import MAX_BATCH_ROWS, in_memory
from synthfair.data.encode import Encoded, content_sha256, encode, in_content_order
from synthfair.distill.problem import make_problem
from synthfair.fairness.penalties import CovariancePenalty, named_penalty
from synthfair.release.settings import DistillConfig

REAL = encode(make_table(n=121), make_schema())


def test_batches_hold_every_row_once():
    many = Encoded(*(np.resize(field, (MAX_BATCH_ROWS + 5, *field.shape[1:])) for field in REAL))
    assert [len(rows.y) for rows in in_memory(many).read()] == [MAX_BATCH_ROWS, 5]
    total = in_memory(many).sum(lambda rows: rows.x.sum(axis=0))
    np.testing.assert_allclose(total, many.x.sum(axis=0))


def test_content_is_one_in_any_order_and_parts():
    parts = [Encoded(*(f[::-1][cut] for f in REAL)) for cut in (slice(9), slice(9, None))]
    assert content_sha256(parts) == content_sha256([REAL])
    for other in ({"y": -REAL.y}, {"s": 1 - REAL.s}, {"x": REAL.x[:, ::-1]}):
        assert content_sha256([REAL._replace(**other)]) != content_sha256([REAL])
    assert content_sha256(parts[:1]) != content_sha256(parts[:1] * 2)


@pytest.mark.parametrize("intercept", [True, False])
def test_problem_has_the_model_inputs_in_the_order_of_their_content(intercept):
    rows = encode(make_table(n_groups=3), make_schema(3))
    weight, turned = rows.x[:, 0] + 2 * rows.s, Encoded(*(field[::-1] for field in rows))
    given = {"weight": weight[::-1], "penalty": CovariancePenalty(3), "n_groups": 3}
    config = DistillConfig(n_synthetic=24, group_input=True, intercept=intercept)
    real = make_problem(turned, config, **given).objective
    rows = in_content_order(rows)
    inputs = [rows.x, rows.s[:, None] == [1, 2], np.ones((120, int(intercept)))]
    np.testing.assert_allclose(real.columns.T, np.hstack(inputs), rtol=1e-6)
    np.testing.assert_allclose(real.weight, rows.x[:, 0] + 2 * rows.s, rtol=1e-6)
    np.testing.assert_equal((real.s, real.y), (rows.s, rows.y))


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_rows_that_pad_a_problem_do_not_count(notion):
    """A penalty that is given sees the real rows alone."""
    config = DistillConfig(n_synthetic=24, notion=notion)
    padded = make_problem(REAL, config, n_groups=2, by=((0, 1), (0, 1))).objective
    penalty = named_penalty(config, n_groups=2, by=((0, 1), (0, 1)))
    plain = make_problem(REAL, config, n_groups=2, penalty=penalty).objective
    assert [len(each.y) for each in (padded, plain)] == [2048, 121]
    theta = jnp.asarray(np.random.default_rng(0).normal(size=len(plain.columns)))
    for measure in (lambda f: f(theta), lambda f: f.covariance(theta), lambda f: f.gap(theta)):
        assert float(measure(padded)) == pytest.approx(float(measure(plain)), rel=1e-12)


def test_release_is_compared_on_the_real_rows_alone():
    """By a grouping of three groups."""
    s = np.where(np.arange(121) % 2, 2 * REAL.s, 1)
    given = {"n_groups": 3, "by": ((0, 0, 1),)}
    objective = make_problem(REAL._replace(s=s), DistillConfig(n_synthetic=24), **given).objective
    thetas = np.random.default_rng(1).normal(size=(2, len(objective.columns)))
    selected = np.column_stack([REAL.x, np.ones(121)]) @ thetas.T > 0
    gaps = [abs(one[s == 2].mean() - one[s != 2].mean()) for one in selected.T]
    share, right = (REAL.y > 0).mean(), (selected[:, 0] == (REAL.y > 0)).mean()
    found = _compared(objective, *map(jnp.asarray, thetas))
    np.testing.assert_allclose(found, [right, gaps[0], max(share, 1 - share), gaps[1]], rtol=1e-12)


@pytest.mark.parametrize(("labels", "n_synthetic"), [("balanced", 24), ("copy", None)])
@pytest.mark.parametrize("start", ["range", "normal"])
def test_order_of_a_blind_problem_does_not_tell_a_rows_group(labels, n_synthetic, start):
    """Without a penalty a blind model knows no group, and whoever knows x and y learns none."""
    config = DistillConfig(n_synthetic=n_synthetic, labels=labels, start=start, rho_o=0.0)
    for row in (0, 60, 120):
        s = REAL.s.copy()
        s[row] = 1 - s[row]
        one, other = (make_problem(r, config, n_groups=2) for r in (REAL, REAL._replace(s=s)))
        np.testing.assert_array_equal(one.start, other.start)
        np.testing.assert_array_equal(one.y, other.y)
