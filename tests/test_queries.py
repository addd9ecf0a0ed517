import jax
import numpy as np
import pytest
from conftest import make_schema, make_table, silent
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from synthfair.config.client_settings import DistillConfig
from synthfair.data.encode import Encoded, encode
from synthfair.distill.problem import make_rows
from synthfair.errors import InputError
from synthfair.model import LinearModel, logistic
from synthfair.privacy import queries as module
from synthfair.privacy.mechanism import NoisySum
from synthfair.privacy.noise import seeded
from synthfair.privacy.queries import PrivateQueries
from synthfair.privacy.statement import make_guarantee

THETA = np.linspace(-2, 2, 9)


class Recording(NoisySum):
    """Notes the exact sums of rounded terms: the guarantee relies on their sensitivity."""

    exact: list = []  # noqa: RUF012 - shared on purpose

    def release(self, total):
        Recording.exact.append(total * self.terms.grid)
        return super().release(total)


def ask(real, schema, config, *, source=silent, intercept=True):
    guarantee, reads = make_guarantee(config, schema), config.group_input
    return PrivateQueries(
        real,
        schema,
        guarantee,
        intercept=intercept,
        group_input=reads,
        loss=logistic,
        source=source,
    ), guarantee


def exact_sums(real, schema, config, theta):
    Recording.exact = []
    queries, guarantee = ask(real, schema, config)
    queries.moments()
    queries.second_moment()
    queries.gradient(theta)
    queries.rates(theta, 4.0)
    return Recording.exact, [m.sensitivity for m in guarantee.mechanisms]


def private(**settings):
    settings = {"penalty": "selection_rate", "group_input": True} | settings
    return DistillConfig(epsilon=1.0, delta=1e-5, **settings)


numbers = st.floats(-1e3, 1e3) | st.sampled_from([1e200, np.inf, -np.inf, np.nan])

any_rows = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        arrays(float, (n, 7), elements=numbers),  # far outside of the schema, too
        arrays(int, n, elements=st.integers(0, 1)),
        arrays(float, n, elements=st.sampled_from([-1.0, 1.0])),
    )
)


@settings(max_examples=60)
@given(
    rows=any_rows,
    scale=st.floats(0, 100),
    relation=st.sampled_from(["add_or_remove", "replace"]),
    clip=st.sampled_from([0.1, 1.0]),
    reads=st.booleans(),
)
def test_no_neighbour_changes_a_sum_by_more_than_its_sensitivity(
    rows, scale, relation, clip, reads
):
    schema, config = make_schema(), private(relation=relation, clip=clip, group_input=reads)
    theta = scale * THETA[: 8 + reads]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NoisySum", Recording)
        whole = Encoded(*rows)
        if relation == "replace":
            neighbour = whole._replace(x=whole.x.copy(), s=whole.s.copy(), y=whole.y.copy())
            neighbour.x[-1], neighbour.s[-1], neighbour.y[-1] = 1 - whole.x[-1], 1, -1.0
        else:
            base = encode(make_table(3), schema)
            neighbour = Encoded(
                *(np.concatenate([a, b[:1]]) for a, b in zip(base, whole, strict=True))
            )
            whole = base
        with np.errstate(all="ignore"):
            first, limits = exact_sums(whole, schema, config, theta)
            second, _ = exact_sums(neighbour, schema, config, theta)
    for a, b, limit in zip(first, second, limits, strict=True):
        assert np.linalg.norm((a - b).astype(float)) <= limit * (1 + 1e-12)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_without_noise_the_answers_are_the_plain_sums(n_groups, intercept, reads):
    schema = make_schema(n_groups)
    real = encode(make_table(500, n_groups=n_groups), schema)
    rows = make_rows(real, n_groups=n_groups if reads else 1, intercept=intercept)
    theta = np.random.default_rng(0).normal(size=rows.a.shape[1])
    config = private(clip=4.0, group_input=reads)
    queries, _ = ask(real, schema, config, intercept=intercept)
    a, z, model = np.asarray(rows.a), np.asarray(rows.a @ theta), LinearModel()
    counts, inputs = queries.moments()
    assert counts[1, 0] == np.sum((real.s == 1) & (real.y < 0))
    np.testing.assert_allclose(inputs[1, 1], a[(real.s == 1) & (real.y > 0)].sum(axis=0))
    np.testing.assert_allclose(queries.second_moment(), a.T @ a, atol=0.02)
    plain = jax.grad(lambda t: model.loss(rows.a @ t, rows.y).sum())(theta)
    np.testing.assert_allclose(queries.gradient(theta), plain, atol=1e-5)
    rates, slopes = queries.rates(theta, 4.0)
    in_cell = (real.s == 0) & (real.y > 0)
    sigma = jax.nn.sigmoid(4 * z[in_cell])
    assert rates[0, 1] == pytest.approx(float(sigma.sum()))
    np.testing.assert_allclose(slopes[0, 1], (4 * sigma * (1 - sigma)) @ a[in_cell], atol=1e-5)


def test_large_tables_are_read_in_parts_and_give_the_same(schema, monkeypatch):
    real = encode(make_table(500), schema)
    whole = ask(real, schema, private())[0].gradient(THETA)
    monkeypatch.setattr(module, "CHUNK", 64)
    np.testing.assert_allclose(ask(real, schema, private())[0].gradient(THETA), whole)


def test_a_budget_cannot_be_spent_twice(schema):
    queries, _ = ask(encode(make_table(20), schema), schema, private(private_steps=2))
    queries.moments()
    with pytest.raises(RuntimeError, match="moments: the budget is spent"):
        queries.moments()
    for _ in range(2):
        queries.gradient(THETA)
    with pytest.raises(RuntimeError, match="gradients: the budget is spent"):
        queries.gradient(THETA)


def test_answers_have_the_noise_that_is_stated(schema):
    """One false alarm in 10,000; noise that is 10 % too small is caught."""
    real, config = encode(make_table(20), schema), private(private_steps=2000)
    exact, guarantee = ask(real, schema, config)
    noisy, _ = ask(real, schema, config, source=seeded(0))
    offsets = np.array([noisy.gradient(THETA) for _ in range(2000)]) - exact.gradient(THETA)
    # Answers are turned from centred coordinates, in which noise is independent, by the constant.
    centre = (offsets[:, :3] - 0.5 * offsets[:, -1:]) / guarantee.mechanism("gradients").noise
    assert kstest(centre.ravel(), "norm").pvalue > 1e-4
    assert kstest(0.9 * centre.ravel(), "norm").pvalue < 1e-4


@pytest.mark.parametrize("double", [True, False])
def test_float32_is_refused(schema, double):
    real = encode(make_table(20), schema)
    real = real if not double else real._replace(x=real.x.astype(np.float32))
    with jax.enable_x64(double), pytest.raises(InputError, match="epsilon: needs .*float64"):
        ask(real, schema, private())
