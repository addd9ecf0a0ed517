"""A client's surrogate: near its rows, the same for the same rounded sums, and of large cells."""

import numpy as np
import pytest
from builders import SCHEMA, joined, make_table, part, schema_with
from scipy.optimize import minimize
from scipy.special import expit, softmax

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric
from synthfair.surrogate.records import read_sums, self_play, surrogate_of, tilt_weights
from synthfair.surrogate.sums import SurrogateSpec, TableSums, inputs, smooth_rates

TABLE, CONFIG = make_table(1200), sf.SurrogateConfig(seed=1)
RISING = TABLE["income"].where(TABLE["town"] == "a", 100 - TABLE["income"])  # in one town alone
ROWS = encode(TABLE.assign(age=(TABLE["age"] / 3 + RISING / 2).clip(18, 90)), SCHEMA)
SPEC = SurrogateSpec(CONFIG, SCHEMA)
FLAG, NUMBER = Categorical(categories=("a", "b")), Numeric(lower=0, upper=1)


@pytest.fixture(autouse=True, scope="module")
def _few_problems():
    """A tenth, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 6)
        yield


def spec_with(**features):
    return SurrogateSpec(CONFIG, schema_with(**features))


def sums_of(rows, spec=SPEC):
    batches = rows if isinstance(rows, BatchesInOrder) else in_memory(rows)
    return read_sums(TableSums(batches, spec), spec)


def made_of(rows, spec=SPEC):
    return surrogate_of(sums_of(rows, spec), spec)


def assert_same(one, other):
    for field in ("records", "s", "y", "weight"):
        assert getattr(one, field).tobytes() == getattr(other, field).tobytes()
    assert (one.hidden, one.left_out) == (other.hidden, other.left_out)


def cell_of(rows):
    return 2 * rows.s + (rows.y > 0)


@pytest.fixture(scope="module")
def made():
    return made_of(ROWS)


def test_surrogate_has_the_rates_and_models_of_the_rows(monkeypatch):
    """Rates of other models are nearer than those of other rows, as many, would be."""
    monkeypatch.setattr("synthfair.surrogate.records.PROBLEMS", 60)
    rows = encode(make_table(4000), SCHEMA)
    found = made_of(rows)
    records, ones = found.rows(SCHEMA), np.ones(len(rows.y))
    thetas = self_play(rows, ones, 12, n_groups=2, rng=np.random.default_rng(77))
    for cell in range(4):
        here, there = cell_of(rows) == cell, cell_of(records) == cell
        weight = found.weight[there]
        assert abs(weight.sum() - here.sum()) < 2.6  # a multiple of five
        rates = weight @ smooth_rates(part(records, there), thetas, 2) / weight.sum()
        expected = smooth_rates(part(rows, here), thetas, 2).mean(axis=0)
        assert np.abs(rates - expected).max() < 0.5 / here.sum() ** 0.5


def test_surrogate_has_the_means_and_products_of_the_rows(made):
    rows = made.rows(SCHEMA)
    for cell in range(4):
        here, real = cell_of(rows) == cell, ROWS.x[cell_of(ROWS) == cell]
        x, weight = rows.x[here], made.weight[here] / made.weight[here].sum()
        assert made.weight[here].sum() == pytest.approx(5 * np.rint(len(real) / 5))
        np.testing.assert_allclose(weight @ x, real.mean(axis=0), atol=0.03)
        products = real[:, :2].T @ real[:, :2] / len(real)
        np.testing.assert_allclose((x[:, :2].T * weight) @ x[:, :2], products, atol=0.04)
    assert 0 < made.rate_error < 0.03
    assert (made.hidden, made.left_out) == ((), ())


def test_record_of_next_to_no_weight_is_dropped(monkeypatch):
    """Its file would be refused."""
    last = lambda f, *_: np.append(np.full(len(f) - 1, 1e-12), 1.0)  # noqa: E731
    monkeypatch.setattr("synthfair.surrogate.records.tilt_weights", last)
    assert len(made_of(ROWS).weight) == 4


def test_surrogate_is_the_same_of_rows_in_any_order_and_batches(made):
    order, read = np.random.default_rng(0).permutation(len(ROWS.y)), []

    def batches():
        read.append(1)
        return [part(ROWS, rows) for rows in np.split(order, [1, 100, 100, 801])]

    assert_same(made_of(BatchesInOrder(batches)), made)
    assert len(read) == 3


def test_surrogate_depends_on_rounded_sums_alone(made, monkeypatch):
    """Sums that round to the same give the same bytes; others give others."""
    rng, noted = np.random.default_rng(0), []
    for name in ("sums", "tree"):
        real = getattr(TableSums, name)
        kept = lambda *args, real=real: noted.append(real(*args)) or noted[-1]  # noqa: E731
        monkeypatch.setattr(TableSums, name, kept)
    sums_of(ROWS)
    (counts, moments), (edges, tables), (rates,) = noted

    def moved(total):
        return 5 * np.rint(total / 5) + rng.uniform(-2.4, 2.4, total.shape)

    def joined_by(pairs):
        """A row more of the first cell, where no rounded number shows it."""
        unseen = (pairs[0] % 5 != 2) & (pairs.sum(axis=0) % 5 != 2)
        assert unseen.any()
        return np.concatenate([[pairs[0] + unseen], pairs[1:]])

    def again(moments=moments, rates=rates, change=lambda pairs: pairs):
        answers = [counts, moments], (edges, {e: change(t) for e, t in tables.items()}), [rates]
        left = [*answers]
        for name in ("sums", "tree"):
            monkeypatch.setattr(TableSums, name, lambda *_: left.pop(0))
        return made_of(part(ROWS, slice(0)))

    assert_same(again(moved(moments), moved(rates), joined_by), made)
    for other in (again(1.2 * moments), again(rates=1.2 * rates), again(change=np.sqrt)):
        assert not np.array_equal(other.weight, made.weight)


def test_tree_follows_from_rounded_tables():
    """Of two columns, the second goes with the root's in one row more."""
    n, spec = np.arange(400), spec_with(a=FLAG, b=FLAG, c=FLAG)
    a, b = n % 2, np.where(n < 300, n % 2, 1 - n % 2)
    x = np.column_stack([a, b, np.where(n == 399, a, b)]).astype(float)
    for columns in (x, x[:, [0, 2, 1]]):
        rows = Encoded(columns, np.zeros(400, int), np.ones(400))
        assert sums_of(rows, spec).edges[0] == (0, 1)


@pytest.mark.parametrize("cells", [[0, 1], [0, 2], [3]], ids=["group", "label", "cell"])
def test_surrogate_of_one_group_label_or_cell(cells):
    own = part(ROWS, np.isin(cell_of(ROWS), cells))
    found, counts = made_of(own), np.bincount(cell_of(own), minlength=4)
    rows = np.bincount(cell_of(found), found.weight, minlength=4)
    assert rows == pytest.approx(5 * np.rint(counts / 5))
    assert (found.hidden, found.left_out, found.rate_error < 0.1) == ((), (), True)


def of_sizes(*sizes, rows=ROWS):
    """So many rows of each cell, the first of them."""
    chosen = [np.flatnonzero(cell_of(rows) == cell)[:n] for cell, n in enumerate(sizes)]
    return part(rows, np.concatenate(chosen))


def test_group_below_k_min_leaves_no_trace():
    """Whatever its rows hold, and however many they are; one of k_min has records."""
    large, few = of_sizes(60, 70), of_sizes(0, 0, 39, 10)
    other = of_sizes(0, 0, 3, 40, rows=part(ROWS, slice(None, None, -1)))
    found = made_of(joined(large, few))
    assert found.left_out == ((1, -1.0), (1, 1.0))
    assert np.unique(cell_of(found)).tolist() == [0, 1]
    assert_same(made_of(joined(large, other)), found)
    with pytest.raises(sf.InputError, match="town=b with paid=no has 39"):
        made_of(few)
    found = made_of(joined(large, of_sizes(0, 0, 50)))
    assert found.weight[found.s == 1].sum() == pytest.approx(50)


@pytest.mark.parametrize(("rows", "hidden", "n"), [(49, ((1, -1.0),), 400), (50, (), 664)])
def test_cell_below_k_min_is_hidden_in_a_block(rows, hidden, n, monkeypatch):
    """Records of a label of the block stand once for each group: together no more than allowed."""
    monkeypatch.setattr("synthfair.surrogate.records.MAX_RECORDS", 200)
    table = of_sizes(250, 300, rows, 280)
    table = table._replace(x=np.arange(len(table.y))[:, None] % 2 * 1.0)
    sums = sums_of(table, spec := spec_with(a=FLAG))
    assert surrogate_of(sums, spec).hidden == hidden
    assert len(sums.margins.strata.tilted) == 2 * len(hidden)
    assert len(sums.drawn.s) == n


def test_records_of_another_seed_or_number_of_rows_are_drawn_otherwise():
    """Errors of clients that draw alike would add up in the pool."""
    spec, made = spec_with(a=NUMBER), []
    for n, seed in ((200, 1), (200, 1), (240, 1), (200, 2)):
        table = of_sizes(n)._replace(x=np.full((n, 1), 0.3))
        spec.config = CONFIG.model_copy(update={"seed": seed})
        made.append(made_of(table, spec).records[:64])
    np.testing.assert_array_equal(made[0], made[1])
    for other in made[2:]:
        assert np.abs(made[0] - other).max() > 1e-3  # of a level that is 1 / 128 wide


# Weights that meet targets, and the models whose rates are targets.

F = np.random.default_rng(0).normal(size=(60, 4)) + np.arange(4)
TARGET, VARIANCE = np.array([0.3, 0.7, 2.1, 3.4]), np.array([1e-3, 1e-2, 0.05, 2.0])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_tilted_weights_are_the_minimum_that_scipy_finds(scale):
    """In any unit of the functions."""

    def objective(z):
        p = softmax(z)
        return (p * np.log(p * 60)).sum() + ((p @ F - TARGET) ** 2 / (2 * VARIANCE)).sum()

    expected = minimize(objective, np.zeros(60), method="BFGS", options={"gtol": 1e-9})
    p = tilt_weights(scale * F, scale * TARGET, scale**2 * VARIANCE)
    assert objective(np.log(p)) <= expected.fun + 1e-9
    np.testing.assert_allclose(p, softmax(expected.x), atol=1e-5)


def client(n=40):
    """So many rows in each of the four cells; the first feature goes with group and label."""
    s, y = np.repeat([0, 0, 1, 1], n), np.repeat([-1.0, 1.0, -1.0, 1.0], n)
    x = np.random.default_rng(0).random((len(y), 3))
    x[:, 0] += 0.3 * y + 0.2 * s
    return Encoded(x, s, y)


def played(rows, weight=1.0, *, problems=6, seed=3):
    weight, rng = np.resize(weight, len(rows.y)), np.random.default_rng(seed)
    return self_play(rows, weight, problems, n_groups=2, rng=rng)


@pytest.mark.parametrize("cells", [[0, 1, 2, 3], [1, 3], [2, 3], [2]])
def test_random_problems_have_different_models_and_the_same_again(cells):
    rows = part(client(), np.isin(cell_of(client()), cells))
    thetas = played(rows)
    np.testing.assert_array_equal(thetas, played(rows))
    assert thetas.shape == (6, 5)
    assert np.ptp(thetas[:, :3], axis=0).min() > 0
    assert not np.isclose(thetas, played(rows, seed=4)).all(axis=1).any()


def test_random_problems_learn_the_labels_and_some_are_fair():
    rows = client(300)
    scores = inputs(rows, 2) @ played(rows, problems=12).T
    assert min(np.corrcoef(z, rows.y)[0, 1] for z in scores.T) > 0.3
    selected = expit(4 * scores)
    gaps = np.abs(selected[rows.s == 1].mean(axis=0) - selected[rows.s == 0].mean(axis=0))
    assert np.median(gaps) < 0.07  # without penalties twice as much
    assert gaps.max() > 0.1


def test_random_problems_do_not_see_rows_without_weight():
    rows, light = client(), np.arange(160) % 2 == 1
    turned = rows._replace(x=np.where(light[:, None], 1 - rows.x, rows.x))
    weight = np.where(light, 1e-9, 4.0)
    np.testing.assert_allclose(played(rows, weight), played(turned, weight), atol=1e-3)
    assert np.abs(played(turned) - played(turned, weight)).max() > 0.1
