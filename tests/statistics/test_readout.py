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
from benchmarks import disclosure
from benchmarks.disclosure import STEP, numeric_features, singled_out
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


def parts_of(table, schema, number, *, numbers_only):
    """Return so many clients, with numbers or all columns, and their schema."""
    roles, columns = (schema.label, schema.sensitive), schema.columns
    if numbers_only:
        columns = {n: c for n, c in columns.items() if n in roles or isinstance(c, Numeric)}
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


@pytest.fixture(scope="module")
def clients():
    """Twenty-five clients with numbers; categories would only make a test slow."""
    return parts_of(*like_adult(), 25, numbers_only=True)


def sets_of(rows, schema, k_min):
    """Each set of a file with what can be solved for in it, and its records and real rows."""
    spec = SurrogateSpec(sf.SurrogateConfig(k_min=k_min), schema)
    sums = read_sums(TableSums(in_memory(rows), spec), spec)
    file = surrogate_of(sums, spec)
    real, mine = (2 * part.s + (part.y > 0) for part in (rows, file))
    x = file.rows(schema).x
    for here, total, terms in weight_terms(file, sums, spec):
        for i in sorted({term.of for term in terms}):
            inside = sums.margins.strata.sets[i]
            sent = inside[mine]
            sums_of_set = Part(file.weight[here], total, terms, i)
            yield sums_of_set, (x[sent], file.weight[sent]), rows.x[inside[real]]


class Part:
    """What whoever has a file and knows the models computes of records weighted together."""

    def __init__(self, weight, total, terms, i):
        self.total, self.terms, self.i = total, terms, i
        self.f = np.hstack([term.f for term in terms])
        self.wanted = np.concatenate([term.mean for term in terms])
        self.variance = np.concatenate([np.full(len(term.mean), term.v) for term in terms])
        p = weight / weight.sum()
        self.met, self.log = p @ self.f, np.log(p)

    def moments(self):
        """Of the functions those of the sums of numbers over the set."""
        ends = np.cumsum([len(term.mean) for term in self.terms])
        mine = [(term.name, term.of) == ("column_moments", self.i) for term in self.terms]
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

    def reads(self, k, numbers, column):
        """Whether one value or two are solved for, where all other rows of a column are constant.

        From the sums of z^2 and z; or for one value from a combination of these, if the records do
        not tell more.
        """
        constant, others = singled_out(column)
        moments, n = self.moments(), len(column)
        of_group = len(moments) == 2 * numbers
        alone = np.arange(2 * numbers) if of_group else squares_and_means(numbers)
        directions, total = self.solved(moments[[alone[k], alone[numbers + k]]])
        if len(total) == 2:
            second, first = np.linalg.solve(directions, total) / n
            guesses = disclosure.solved(n, first + 0.5, second - first**2, constant)[
                len(others) - 1
            ]
            return np.allclose(guesses, others, rtol=0, atol=4 * STEP)
        if len(total) == len(others) == 1:
            a, b = directions[0]
            rest = (n - 1) * (a * (constant - 0.5) ** 2 + b * (constant - 0.5))
            roots = np.roots([a, b, rest - total[0]]).real + 0.5
            return np.abs(roots - others[0]).min() < 4 * STEP
        return False


def numbers_read(rows, schema, k_min):
    """How many values of persons: from the sums that are solved for, and from the file alone."""
    numeric, found = numeric_features(schema), 0
    for part, (x, weight), real in sets_of(rows, schema, k_min):
        assert len(real) >= k_min
        numbers = real[:, numeric]
        for k, column in enumerate(np.rint(numbers / STEP).T * STEP):
            found += bool(singled_out(column)) and part.reads(k, len(numeric), column)
        found += disclosure.read_out(x[:, numeric], weight, numbers)
    return found


@pytest.mark.parametrize("k_min", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_readout_finds_no_number_of_a_person(clients, k_min):
    rows, schema = clients
    assert sum(numbers_read(part, schema, k_min) for part in rows) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
def test_readout_finds_no_number_of_a_person_of_adult():
    rows, schema = parts_of(*sf.load_dataset("adult"), 100, numbers_only=True)
    assert sum(numbers_read(part, schema, 10) for part in rows) == 0


def test_readout_finds_many_numbers_where_sums_are_not_rounded(clients, monkeypatch):
    """The attack works."""
    monkeypatch.setattr("synthfair.surrogate.sums.ROW_STEP", 2.0**-20)
    rows, schema = clients
    assert sum(numbers_read(part, schema, 10) for part in rows) > 10


def test_readout_finds_no_person_in_the_categories_of_others():
    """Sums are off by a row or so: one in thousands of guesses is right by chance."""
    parts, schema = parts_of(*like_adult(), 2, numbers_only=False)
    widths = [len(encoded_as(*column)) for column in schema.features.items()]
    column, numeric = np.repeat(np.arange(len(widths)), widths), numeric_features(schema)
    found = sum(
        disclosure.read_records(x, weight, real, numeric, column)
        for rows in parts
        for _, (x, weight), real in sets_of(rows, schema, 50)
    )
    assert found <= 1
