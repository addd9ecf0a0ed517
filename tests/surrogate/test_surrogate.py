"""A client's surrogate: near its rows, the same for the same rows, and of large cells alone."""

import copy

import numpy as np
import pytest
from builders import make_schema, make_table
from scipy.optimize import minimize

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric
from synthfair.errors import InputError
from synthfair.surrogate import records
from synthfair.surrogate.records import read_sums, self_play, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums, inputs, smooth_rates

SCHEMA = make_schema()
TABLE = make_table(1200)
RISING = TABLE["income"].where(TABLE["town"] == "a", 100 - TABLE["income"])  # in one town alone
ROWS = encode(TABLE.assign(age=(TABLE["age"] / 3 + RISING / 2).clip(18, 90)), SCHEMA)
CONFIG = sf.SurrogateConfig(seed=1)


@pytest.fixture(autouse=True, scope="module")
def _few_problems():
    """A tenth, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 6)
        yield


def part(rows, keep):
    return Encoded(*(field[keep] for field in rows))


def made_of(rows, config=CONFIG, schema=SCHEMA):
    batches = rows if isinstance(rows, BatchesInOrder) else in_memory(rows)
    spec = SurrogateSpec(config, schema)
    return surrogate_of(read_sums(TableSums(batches, spec), spec), spec)


def assert_same(one, other):
    for field in ("records", "s", "y", "weight"):
        assert getattr(one, field).tobytes() == getattr(other, field).tobytes()
    assert one.hidden == other.hidden
    assert one.left_out == other.left_out


def cell_of(rows):
    return 2 * rows.s + (rows.y > 0)


@pytest.fixture(scope="module")
def made():
    return made_of(ROWS)


@pytest.fixture(scope="module")
def many():
    """Four thousand rows, and their surrogate with all problems."""
    rows = encode(make_table(4000), SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 60)
        return rows, made_of(rows), SCHEMA


def test_rates_of_models_that_it_was_not_made_for_are_near(many):
    """Nearer than those of other rows, as many, would be: a standard deviation of these."""
    rows, found, schema = many
    others = found.rows(schema)
    thetas = self_play(
        rows, np.ones(len(rows.y)), 12, n_groups=len(schema.groups), rng=np.random.default_rng(77)
    )
    for cell in np.unique(cell_of(rows)):
        here, there = cell_of(rows) == cell, cell_of(others) == cell
        wanted = smooth_rates(part(rows, here), thetas, 2).mean(axis=0)
        weight = found.weight[there]
        assert abs(weight.sum() - here.sum()) < 2.6  # a multiple of five
        rates = weight @ smooth_rates(part(others, there), thetas, 2) / weight.sum()
        assert np.abs(rates - wanted).max() < 0.5 / here.sum() ** 0.5


def logistic(rows, weight):
    """Model by logistic regression."""
    a = inputs(rows, 2)

    def loss(theta):
        z = -rows.y * (a @ theta)
        pull = -weight * rows.y / (1 + np.exp(-z))
        return weight @ np.logaddexp(0, z) + theta @ theta, pull @ a + 2 * theta

    return minimize(loss, np.zeros(a.shape[1]), jac=True).x


def test_a_model_of_records_decides_as_one_of_the_rows(many):
    rows, found, schema = many
    models = [
        logistic(rows, np.ones(len(rows.y))),
        logistic(found.rows(schema), found.weight),
    ]
    decided = [inputs(rows, 2) @ theta > 0 for theta in models]
    accuracy = [np.mean(one == (rows.y > 0)) for one in decided]
    assert accuracy[1] == pytest.approx(accuracy[0], abs=0.005)
    spd = [one[rows.s == 1].mean() - one[rows.s == 0].mean() for one in decided]
    assert spd[1] == pytest.approx(spd[0], abs=0.02)
    assert np.mean(decided[0] == decided[1]) > 0.98


def test_records_have_the_means_and_products_of_the_rows(made):
    rows = made.rows(SCHEMA)
    for cell in range(4):
        here, real = cell_of(rows) == cell, ROWS.x[cell_of(ROWS) == cell]
        x, weight = rows.x[here], made.weight[here] / made.weight[here].sum()
        assert made.weight[here].sum() == pytest.approx(5 * np.rint(len(real) / 5))
        np.testing.assert_allclose(weight @ x, real.mean(axis=0), atol=0.03)
        wanted = real[:, :2].T @ real[:, :2] / len(real)
        np.testing.assert_allclose((x[:, :2].T * weight) @ x[:, :2], wanted, atol=0.04)
    assert 0 < made.rate_error < 0.03
    assert (made.weight > 0).all()
    assert made.hidden == made.left_out == ()


def test_weights_bring_what_a_tree_cannot_hold():
    """Six numbers with a common part: on a tree, two that are not next to each other depend less."""
    numbers = {f"n{i}": Numeric(lower=0, upper=1) for i in range(6)}
    roles = {name: SCHEMA.columns[name] for name in ("town", "paid")}
    schema = SCHEMA.model_copy(update={"columns": numbers | roles})
    rng = np.random.default_rng(0)
    x = (rng.random((20_000, 1)) + rng.random((20_000, 6))) / 2
    rows = Encoded(x, rng.integers(0, 2, 20_000), rng.choice([-1.0, 1.0], 20_000))
    spec = SurrogateSpec(CONFIG, schema)
    sums = read_sums(TableSums(in_memory(rows), spec), spec)
    wanted, errors = np.corrcoef(x.T), []
    for found in (sums.drawn, surrogate_of(sums, spec)):
        covariance = np.cov(found.rows(schema).x.T, aweights=found.weight)
        sd = np.diag(covariance) ** 0.5
        correlation = covariance / np.outer(sd, sd)
        errors.append(np.abs(correlation - wanted).max())
    assert errors[0] > 0.2
    assert errors[1] < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_in_any_order_and_batches_give_the_same_bytes(made, seed):
    order = np.random.default_rng(seed).permutation(len(ROWS.y))
    cut = [part(ROWS, one) for one in np.split(order, [1, 100, 100, 801])]
    assert_same(made_of(BatchesInOrder(lambda: cut)), made)


def test_records_and_problems_are_drawn_from_streams_of_their_own(monkeypatch):
    streams = {}

    def spied(name, original):
        def call(*args, **kwargs):
            given = [*args, *kwargs.values()]
            (rng,) = (one for one in given if isinstance(one, np.random.Generator))
            streams.setdefault(name, copy.deepcopy(rng).integers(2**32, size=4).tolist())
            return original(*args, **kwargs)

        return call

    for name in ("draw", "self_play"):
        monkeypatch.setattr(records, name, spied(name, getattr(records, name)))
    made_of(ROWS)
    assert len(streams) == 2
    assert not {*streams["draw"]} & {*streams["self_play"]}


def test_another_seed_and_another_count_give_other_records(made):
    other = made_of(ROWS, sf.SurrogateConfig(seed=2))
    fewer = made_of(part(ROWS, slice(1190)))
    for one in (other, fewer):
        income = np.intersect1d(made.records[:, 0], one.records[:, 0])
        assert (income % 1 == 0).all()


class Noted(TableSums):
    """Notes its answers."""

    def __init__(self, rows, spec):
        super().__init__(in_memory(rows), spec)
        self.noted = []

    def sums(self, *questions):
        self.noted.append(super().sums(*questions))
        return self.noted[-1]

    def tree(self, columns, margins):
        self.noted.append(super().tree(columns, margins))
        return self.noted[-1]


class Replayed:
    """The answers that were noted, and no rows."""

    def __init__(self, noted):
        self.left = copy.deepcopy(noted)

    def sums(self, *_):
        return self.left.pop(0)

    def rated_models(self, thetas):
        return thetas

    tree = sums


def test_all_depends_on_rounded_sums_alone(made):
    """Sums that round to the same give the same bytes; a step more gives others."""
    spec, rng = SurrogateSpec(CONFIG, SCHEMA), np.random.default_rng(0)
    table = Noted(ROWS, spec)
    read_sums(table, spec)
    (counts, moments), (edges, tables), (rates,) = table.noted

    def moved(total):
        return 5 * np.rint(total / 5) + rng.uniform(-2.4, 2.4, total.shape)

    def exchanged(pairs):
        """A row of the first cell for one of the second, where no rounded number shows it."""
        some = np.isin(pairs[0] % 5, (0, 1)) & np.isin(pairs[1] % 5, (1, 2))
        assert some.any()
        return np.concatenate([[pairs[0] + some], [pairs[1] - some], pairs[2:]])

    def again(moments=moments, tables=tables, rates=rates):
        return surrogate_of(
            read_sums(Replayed([[counts, moments], (edges, tables), [rates]]), spec), spec
        )

    same = {edge: exchanged(pairs) for edge, pairs in tables.items()}
    assert_same(again(moved(moments), same, moved(rates)), made)
    other = {edge: pairs * rng.uniform(0.8, 1.25, pairs.shape) for edge, pairs in tables.items()}
    for changed in (
        {"moments": moments * rng.uniform(0.8, 1.25, moments.shape)},
        {"tables": other},
        {"rates": rates * rng.uniform(0.8, 1.25, rates.shape)},
    ):
        assert not np.array_equal(again(**changed).weight, made.weight)


def test_the_tree_follows_from_rounded_tables():
    """Of two columns, the second goes with the root's in one row more."""
    flag = Categorical(categories=("a", "b"))
    roles = {name: SCHEMA.columns[name] for name in ("town", "paid")}
    schema = SCHEMA.model_copy(update={"columns": dict.fromkeys("abc", flag) | roles})
    a = np.arange(400) % 2
    b = np.where(np.arange(400) < 300, a, 1 - a)
    x = np.column_stack([a, b, np.where(np.arange(400) == 399, a, b)]).astype(float)
    for columns in (x, x[:, [0, 2, 1]]):
        rows, spec = (
            Encoded(columns, np.zeros(400, int), np.ones(400)),
            SurrogateSpec(CONFIG, schema),
        )
        assert read_sums(TableSums(in_memory(rows), spec), spec).edges[0] == (0, 1)


def test_a_client_reads_its_rows_three_times(made):
    read = []

    def batches():
        read.append(1)
        yield ROWS

    assert_same(made_of(BatchesInOrder(batches)), made)
    assert len(read) == 3


@pytest.mark.parametrize(
    "keep", [ROWS.s == 0, ROWS.y < 0, (ROWS.s == 1) & (ROWS.y > 0)], ids=["group", "label", "cell"]
)
def test_clients_with_one_group_label_or_cell_have_a_surrogate(keep):
    own = part(ROWS, keep)
    found = made_of(own)
    cells, counts = np.unique(cell_of(own), return_counts=True)
    assert np.unique(cell_of(found)).tolist() == cells.tolist()
    stands_for = np.bincount(cell_of(found), found.weight)[cells]
    assert stands_for == pytest.approx(5 * np.rint(counts / 5))
    assert found.hidden == found.left_out == ()
    assert found.rate_error < 0.1


def test_schemas_of_numbers_or_of_one_column_have_a_surrogate():
    roles = {"town": SCHEMA.columns["town"], "paid": SCHEMA.columns["paid"]}
    flag, number = Categorical(categories=("a", "b")), Numeric(lower=0, upper=1)
    for features in (
        {"a": flag},
        {"a": number},
        {"a": number, "b": number},
        {"a": flag, "b": flag},
    ):
        schema = SCHEMA.model_copy(update={"columns": features | roles})
        x = np.random.default_rng(0).random((1200, len(features)))
        x = np.where([column is flag for column in features.values()], x < 0.3, x)
        found = made_of(ROWS._replace(x=x), schema=schema)
        assert found.weight.sum() == pytest.approx(1200)
        mean = found.weight @ found.rows(schema).x / 1200
        np.testing.assert_allclose(mean, x.mean(axis=0), atol=0.05)


def test_small_groups_are_left_out_and_too_few_rows_refused_with_what_helps():
    order = np.argsort(cell_of(ROWS), kind="stable")
    ends = np.searchsorted(cell_of(ROWS)[order], range(4))
    few = [order[end : end + n] for end, n in zip(ends, (60, 70, 39, 10), strict=True)]
    found = made_of(part(ROWS, np.concatenate(few)))
    assert found.left_out == ((1, -1.0), (1, 1.0))
    assert np.unique(cell_of(found)).tolist() == [0, 1]
    others = [*few[:2], few[2][:3], order[ends[3] :][:40]]
    assert_same(made_of(part(ROWS, np.concatenate(others))), found)  # whatever these hold
    said = r"no pair of town and paid has the 50 rows that k_min asks for, nor .*Lower k_min"
    with pytest.raises(InputError, match=said):
        made_of(part(ROWS, few[2]))


def test_records_are_as_many_as_rows_within_bounds(made, monkeypatch):
    assert len(made.weight) == 1200
    monkeypatch.setattr("synthfair.surrogate.records.MAX_RECORDS", 100)
    small = made_of(ROWS)
    assert np.bincount(cell_of(small)).tolist() == [100] * 4
    assert small.weight.sum() == pytest.approx(1200)
