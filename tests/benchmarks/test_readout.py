"""No number of a single person can be solved for from all that a surrogate's file holds.

Weights are p = exp(const + lambda'f) with functions f of records that everybody can compute, and
where a weighted mean misses its target, lambda = (target - mean) / variance. So whoever has the
file regresses log p on f, and has every target: sums over rows, but for their rounding. A number
that is constant in a cell but for one row or two gives these away if its sums are exact: two
equations for one unknown or two.
"""

import numpy as np
import pytest
from builders import invented_rows

import synthfair as sf
from benchmarks.disclosure import (
    STEP,
    numeric_features,
    read_out,
    read_records,
    singled_out,
    solved,
)
from synthfair.data.batches import in_memory
from synthfair.data.datasets import dataset_schema
from synthfair.data.schema import Numeric, encoded_as
from synthfair.surrogate.records import read_sums, surrogate_of, weight_terms
from synthfair.surrogate.sums import SurrogateSpec, TableSums, squares_and_means


@pytest.fixture(autouse=True, scope="module")
def _few_problems():
    """For speed; more functions would leave less to solve for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 3)
        yield


def parts_of(table, schema, number, keep):
    """Return so many clients with some of the columns, and their schema."""
    roles = schema.label, schema.sensitive
    columns = {n: c for n, c in schema.columns.items() if n in roles or keep(c)}
    ignored = tuple(name for name in table if name not in columns)
    schema = schema.model_copy(update={"columns": columns, "ignored": ignored})
    parts = np.random.default_rng(0).permutation(len(table)) % number
    return [sf.encode(table[parts == i], schema) for i in range(number)], schema


def like_adult():
    """Return rows in the columns of Adult, and the schema.

    Gains and losses are 0 but for a few persons, as there, and few of one group have the positive
    label.
    """
    schema, rng = dataset_schema("adult"), np.random.default_rng(0)
    table = invented_rows(schema, 12_200)
    numbers = [name for name, c in schema.features.items() if isinstance(c, Numeric)]
    table[numbers] = table[numbers].round()
    for name, share in (("capital_gain", 0.08), ("capital_loss", 0.05)):
        table[name] = table[name].where(rng.random(len(table)) < share, 0.0)
    chance = table["age"] / 500 + 0.2 * (table["sex"] == "Male")
    table["income"] = np.where(rng.random(len(table)) < chance, ">50K", "<=50K")
    return table, schema


def is_number(column):
    """Return whether a column is kept; categories would only make a test slow."""
    return isinstance(column, Numeric)


@pytest.fixture(scope="module")
def clients():
    """Twenty-five clients with numbers."""
    return parts_of(*like_adult(), 25, is_number)


@pytest.fixture(scope="module")
def with_categories():
    """Two clients with all columns."""
    return parts_of(*like_adult(), 2, lambda column: True)


def file_of(rows, schema, k_min):
    spec = SurrogateSpec(sf.SurrogateConfig(k_min=k_min), schema)
    sums = read_sums(TableSums(in_memory(rows), spec), spec)
    return surrogate_of(sums, spec), sums, spec


def cell_of(rows):
    return 2 * rows.s + (rows.y > 0)


class Part:
    """What whoever has a file and knows the models computes of records weighted together."""

    def __init__(self, file, here, total, terms):
        self.weight, self.total, self.terms = file.weight[here], total, terms
        self.f = np.hstack([term.f for term in terms])
        self.wanted = np.concatenate([term.mean for term in terms])
        self.variance = np.concatenate([np.full(len(term.mean), term.v) for term in terms])
        p = self.weight / self.weight.sum()
        self.met, self.log = p @ self.f, np.log(p)

    def columns(self, name, of):
        """Of the functions those of a sum over a set."""
        ends = np.cumsum([len(term.mean) for term in self.terms])
        mine = [term.name == name and term.of == of for term in self.terms]
        return np.flatnonzero(np.repeat(mine, np.diff(ends, prepend=0)))

    def solved(self, some):
        """Directions [r, k] in which targets ``some`` [k] are determined, if all others are known.

        And the sums over rows in these directions.
        """
        others = np.setdiff1d(np.arange(len(self.met)), some)
        slopes = (self.wanted - self.met)[others] / self.variance[others]
        rest = self.log - self.f[:, others] @ slopes
        f = self.f[:, some] - self.f[:, some].mean(axis=0)
        u, size, directions = np.linalg.svd(f, full_matrices=False)
        seen = size > 1e-8 * max(size[0], 1e-8)
        slope = (u.T @ (rest - rest.mean()))[seen] / size[seen]
        directions = directions[seen]
        means = directions @ self.met[some] + self.variance[some[0]] * slope
        return directions, self.total * means


def sets_of(file, sums, spec, rows):
    """Each set with its part, its records, and the real rows of it."""
    strata, real, mine = sums.margins.strata, cell_of(rows), cell_of(file)
    for here, total, terms in weight_terms(file, sums, spec):
        for i in sorted({term.of for term in terms}):
            yield Part(file, here, total, terms), i, strata.sets[i][mine], strata.sets[i][real]


def persons_read(part, i, k, numbers, column):
    """Whether one value or two are solved for, where all other rows of a column are at a constant.

    From the sums of z^2 and z; or for one value from a combination of these, if the records do not
    tell more.
    """
    constant, others = singled_out(column)
    moments, n = part.columns("column_moments", i), len(column)
    of_group = len(moments) == 2 * numbers
    alone = np.arange(2 * numbers) if of_group else squares_and_means(numbers)
    directions, total = part.solved(moments[[alone[k], alone[numbers + k]]])
    if len(total) == 2:
        second, first = np.linalg.solve(directions, total) / n
        guesses = solved(n, first + 0.5, second - first**2, constant)[len(others) - 1]
        return np.allclose(guesses, others, rtol=0, atol=4 * STEP)
    if len(total) == len(others) == 1:
        a, b = directions[0]
        rest = (n - 1) * (a * (constant - 0.5) ** 2 + b * (constant - 0.5))
        roots = np.roots([a, b, rest - total[0]]).real + 0.5
        return np.abs(roots - others[0]).min() < 4 * STEP
    return False


def numbers_read(rows, schema, k_min):
    """How many values of persons: from the sums that are solved for, and from the file alone."""
    file, sums, spec = file_of(rows, schema, k_min)
    numeric, found = numeric_features(schema), 0
    for part, i, here, there in sets_of(file, sums, spec, rows):
        real = rows.x[there][:, numeric]
        assert len(real) >= k_min
        found += sum(
            persons_read(part, i, k, len(numeric), column)
            for k, column in enumerate(np.rint(real / STEP).T * STEP)
            if singled_out(column)
        )
        found += read_out(file.rows(schema).x[here][:, numeric], file.weight[here], real)
    return found


@pytest.mark.parametrize("k_min", [10, 50])
def test_sums_are_solved_for_and_are_multiples_of_five_rows(clients, k_min):
    """The attack works: the sums that it finds are the rounded ones, where records tell them."""
    rows, schema = clients
    file, sums, spec = file_of(rows[0], schema, k_min)
    assert bool(file.hidden) == (k_min == 50)
    sets = sums.margins.strata.sets
    for part, i, *_ in sets_of(file, sums, spec, rows[0]):
        some = part.columns("column_moments", i)
        directions, found = part.solved(some)
        np.testing.assert_allclose(found, directions @ part.wanted[some] * part.total, atol=0.5)
        assert len(found) > 10
        exact = sets[i] @ sums.moments
        if len(some) < len(exact):  # a group of the block
            exact = exact[squares_and_means(len(spec.columns.numbers))]
        assert np.abs(found - directions @ exact).max() > 0.5


@pytest.mark.parametrize("k_min", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_no_number_of_a_person_is_read_out(clients, k_min):
    rows, schema = clients
    assert sum(numbers_read(part, schema, k_min) for part in rows) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
def test_no_number_of_a_person_is_read_out_of_adult():
    rows, schema = parts_of(*sf.load_dataset("adult"), 100, is_number)
    assert sum(numbers_read(part, schema, 10) for part in rows) == 0


def test_the_attack_reads_many_where_sums_are_not_rounded(clients, monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.sums.ROW_STEP", 2.0**-20)
    rows, schema = clients
    assert sum(numbers_read(part, schema, 10) for part in rows) > 10


def records_read(clients, k_min=50):
    """Numbers of persons who alone have a category."""
    parts, schema = clients
    widths = [len(encoded_as(*column)) for column in schema.features.items()]
    column, found = np.repeat(np.arange(len(widths)), widths), 0
    for rows in parts:
        file, sums, spec = file_of(rows, schema, k_min)
        for _, _, here, there in sets_of(file, sums, spec, rows):
            x = file.rows(schema).x[here]
            found += read_records(
                x, file.weight[here], rows.x[there], numeric_features(schema), column
            )
    return found


def test_no_person_is_read_out_of_the_categories_of_others(with_categories):
    """Sums are off by a row or so: one in thousands of guesses is right by chance."""
    assert records_read(with_categories) <= 1


def count_bounds(counts, groups, step=5):
    """Least and largest whole numbers that give the same rounded sums over groups of them."""
    low, high = np.zeros(len(counts), int), np.full(len(counts), 10**9)
    sums = [step * int(np.rint(counts[group].sum() / step)) for group in groups]
    for _ in range(30):
        for group, total in zip(groups, sums, strict=True):
            least, most, half = low[group], high[group], step // 2
            low[group] = np.maximum(least, total - half - (most.sum() - most))
            high[group] = np.minimum(most, total + half - (least.sum() - least))
    assert ((low <= counts) & (counts <= high)).all()
    return low, high


def counts_read(rows, schema, step=5):
    """How many of the numbers of 1 to 4 persons at a level of a column are known for certain, if
    all sums over levels that are rounded are known: more than a file tells. And how many there are.
    """
    _, sums, spec = file_of(rows, schema, 10)
    margins, ends = sums.margins, spec.columns.ends
    known = small = 0
    for begin, end, coarse in zip(ends[:-1], ends[1:], margins.coarse, strict=True):
        table = np.rint(margins.strata.drawn @ sums.histograms[:, begin:end]).astype(int)
        at = np.arange(table.size).reshape(table.shape)
        groups = [*at.reshape(-1, 1), *at, *at.T]  # each level, each cell, all cells together
        for level in range(coarse.max() + 1):
            groups += [*at[:, coarse == level], at[:, coarse == level].ravel()]
        low, high = count_bounds(table.ravel(), groups, step)
        rare = (table.ravel() > 0) & (table.ravel() < 5)
        small, known = small + rare.sum(), known + (rare & (low == high)).sum()
    return known, small


def test_few_numbers_of_persons_below_five_follow_from_all_rounded_sums(clients):
    """In one of 200 at most; where they are not rounded, all do."""
    rows, schema = clients
    known, small = np.sum([counts_read(part, schema) for part in rows[:3]], axis=0)
    assert small > 300
    assert known <= small / 200
    assert counts_read(rows[0], schema, step=1)[0] > 20
