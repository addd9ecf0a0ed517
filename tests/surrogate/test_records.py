"""A client's surrogate: near its rows, the same for the same rounded sums, and of large cells."""

import copy

import numpy as np
import pytest
from builders import make_schema, make_table
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric
from synthfair.surrogate.records import TooFewRowsError, read_sums, self_play, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums, inputs, smooth_rates

SCHEMA, TABLE, CONFIG = make_schema(), make_table(1200), sf.SurrogateConfig(seed=1)
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


def part(rows, keep):
    return Encoded(*(field[keep] for field in rows))


def joined(one, other):
    return Encoded(*(np.concatenate(both) for both in zip(one, other, strict=True)))


def spec_with(features, config=CONFIG):
    roles = {name: SCHEMA.columns[name] for name in ("town", "paid")}
    return SurrogateSpec(config, SCHEMA.model_copy(update={"columns": features | roles}))


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
    accuracy, gap = [], []
    for table, weight in ((rows, ones), (records, found.weight)):
        model = LogisticRegression().fit(inputs(table, 2), table.y, weight)
        decided = model.predict(inputs(rows, 2)) > 0
        accuracy.append(np.mean(decided == (rows.y > 0)))
        gap.append(decided[rows.s == 1].mean() - decided[rows.s == 0].mean())
    assert accuracy[1] == pytest.approx(accuracy[0], abs=0.005)
    assert gap[1] == pytest.approx(gap[0], abs=0.02)


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
    assert (made.weight > 0).all()
    assert made.hidden == made.left_out == ()


def test_weights_bring_what_a_tree_cannot_hold():
    """Six numbers with a common part: on a tree, two that are not next to each other depend less."""
    rng, spec = np.random.default_rng(0), spec_with({f"n{i}": NUMBER for i in range(6)})
    x = (rng.random((20_000, 1)) + rng.random((20_000, 6))) / 2
    sums = sums_of(Encoded(x, rng.integers(0, 2, 20_000), rng.choice([-1.0, 1.0], 20_000)), spec)
    errors = []
    for found in (sums.drawn, surrogate_of(sums, spec)):
        covariance = np.cov(found.rows(spec.schema).x.T, aweights=found.weight)
        sd = np.diag(covariance) ** 0.5
        errors.append(np.abs(covariance / np.outer(sd, sd) - np.corrcoef(x.T)).max())
    assert errors[0] > 0.2
    assert errors[1] < 0.1


def test_surrogate_is_the_same_of_rows_in_any_order_and_batches(made):
    order, read = np.random.default_rng(0).permutation(len(ROWS.y)), []

    def batches():
        read.append(1)
        return [part(ROWS, rows) for rows in np.split(order, [1, 100, 100, 801])]

    assert_same(made_of(BatchesInOrder(batches)), made)
    assert len(read) == 3


def test_surrogate_of_another_seed_or_count_has_other_records(made):
    other = made_of(ROWS, SurrogateSpec(sf.SurrogateConfig(seed=2), SCHEMA))
    for another in (other, made_of(part(ROWS, slice(1190)))):
        income = np.intersect1d(made.records[:, 0], another.records[:, 0])
        assert (income % 1 == 0).all()


class Noted(TableSums):
    """Notes its answers; or gives noted ones, of no rows."""

    def __init__(self, rows, noted=None):
        super().__init__(in_memory(rows), SPEC)
        self.noted, self.left = [], copy.copy(noted)

    def sums(self, *statistics):
        self.noted.append(self.left.pop(0) if self.left else super().sums(*statistics))
        return self.noted[-1]

    def tree(self, columns, margins):
        self.noted.append(self.left.pop(0) if self.left else super().tree(columns, margins))
        return self.noted[-1]


def test_surrogate_depends_on_rounded_sums_alone(made):
    """Sums that round to the same give the same bytes; a step more gives others."""
    answers, rng = Noted(ROWS), np.random.default_rng(0)
    read_sums(answers, SPEC)
    (counts, moments), (edges, tables), (rates,) = answers.noted

    def moved(total):
        return 5 * np.rint(total / 5) + rng.uniform(-2.4, 2.4, total.shape)

    def exchanged(pairs):
        """A row of the first cell for one of the second, where no rounded number shows it."""
        unseen = np.isin(pairs[0] % 5, (0, 1)) & np.isin(pairs[1] % 5, (1, 2))
        assert unseen.any()
        return np.concatenate([[pairs[0] + unseen], [pairs[1] - unseen], pairs[2:]])

    def scaled(total):
        return total * rng.uniform(0.8, 1.25, total.shape)

    def again(moments=moments, tables=tables, rates=rates):
        noted = [[counts, moments], (edges, tables), [rates]]
        return surrogate_of(read_sums(Noted(part(ROWS, slice(0)), noted), SPEC), SPEC)

    same = {edge: exchanged(pairs) for edge, pairs in tables.items()}
    assert_same(again(moved(moments), same, moved(rates)), made)
    other = {edge: scaled(pairs) for edge, pairs in tables.items()}
    for change in ({"moments": scaled(moments)}, {"tables": other}, {"rates": scaled(rates)}):
        assert not np.array_equal(again(**change).weight, made.weight)


def test_tree_follows_from_rounded_tables():
    """Of two columns, the second goes with the root's in one row more."""
    n, spec = np.arange(400), spec_with(dict.fromkeys("abc", FLAG))
    a, b = n % 2, np.where(n < 300, n % 2, 1 - n % 2)
    x = np.column_stack([a, b, np.where(n == 399, a, b)]).astype(float)
    for columns in (x, x[:, [0, 2, 1]]):
        rows = Encoded(columns, np.zeros(400, int), np.ones(400))
        assert sums_of(rows, spec).edges[0] == (0, 1)


@pytest.mark.parametrize(
    "keep", [ROWS.s == 0, ROWS.y < 0, (ROWS.s == 1) & (ROWS.y > 0)], ids=["group", "label", "cell"]
)
def test_surrogate_of_one_group_label_or_cell(keep):
    own = part(ROWS, keep)
    found, (cells, counts) = made_of(own), np.unique(cell_of(own), return_counts=True)
    assert np.unique(cell_of(found)).tolist() == cells.tolist()
    rows = np.bincount(cell_of(found), found.weight)[cells]
    assert rows == pytest.approx(5 * np.rint(counts / 5))
    assert found.hidden == found.left_out == ()
    assert found.rate_error < 0.1


@pytest.mark.parametrize(
    "features", [{"a": FLAG}, {"a": NUMBER}, {"a": NUMBER, "b": NUMBER}, {"a": FLAG, "b": FLAG}]
)
def test_surrogate_of_numbers_or_of_one_column(features):
    spec, x = spec_with(features), np.random.default_rng(0).random((1200, len(features)))
    x = np.where([column is FLAG for column in features.values()], x < 0.3, x)
    found = made_of(ROWS._replace(x=x), spec)
    assert found.weight.sum() == pytest.approx(1200)
    mean = found.weight @ found.rows(spec.schema).x / 1200
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=0.05)


def of_sizes(*sizes, last=False):
    """So many rows of each cell, the first or the last of them."""
    chosen = []
    for cell, n in enumerate(sizes):
        rows = np.flatnonzero(cell_of(ROWS) == cell)
        chosen.append(rows[len(rows) - n :] if last else rows[:n])
    return part(ROWS, np.concatenate(chosen))


def test_group_below_k_min_leaves_no_trace():
    """Whatever its rows hold, and however many they are; one of k_min has records."""
    large, few, other = of_sizes(60, 70), of_sizes(0, 0, 39, 10), of_sizes(0, 0, 3, 40, last=True)
    found = made_of(joined(large, few))
    assert found.left_out == ((1, -1.0), (1, 1.0))
    assert np.unique(cell_of(found)).tolist() == [0, 1]
    assert_same(made_of(joined(large, other)), found)
    with pytest.raises(TooFewRowsError, match="town=b with paid=no has 39"):
        made_of(few)
    found = made_of(joined(large, of_sizes(0, 0, 50)))
    assert found.weight[found.s == 1].sum() == pytest.approx(50)


@pytest.mark.parametrize(("rows", "hidden"), [(49, ((1, -1.0),)), (50, ())])
def test_cell_below_k_min_is_hidden_in_a_block(rows, hidden):
    table = of_sizes(250, 300, rows, 280)
    table = table._replace(x=np.arange(len(table.y))[:, None] % 2 * 1.0)
    sums = sums_of(table, spec := spec_with({"a": FLAG}))
    assert surrogate_of(sums, spec).hidden == hidden
    assert len(sums.margins.strata.tilted) == 2 * len(hidden)


def test_records_are_as_many_as_rows_up_to_a_limit(made, monkeypatch):
    assert len(made.weight) == 1200
    monkeypatch.setattr("synthfair.surrogate.records.MAX_RECORDS", 100)
    few = made_of(ROWS)
    assert np.bincount(cell_of(few)).tolist() == [100] * 4
    assert few.weight.sum() == pytest.approx(1200)
