"""A block hides its small cells where a rule of columns gives the label, or the group.

Whoever knows the rule, and all rounded sums of a surrogate, solves integer programmes for the
smallest and the largest number of rows that a hidden cell may have. Of the solutions that are
found, both are tables with the same sums: a programme that is cut off claims less.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical, Schema
from synthfair.surrogate.records import (
    Surrogate,
    find_margins,
    read_sums,
    surrogate_of,
    tells,
    weight_terms,
)
from synthfair.surrogate.sums import SurrogateSpec, TableSums, histograms, smooth_rates

K_MIN = 50

CONFIG = sf.SurrogateConfig(k_min=K_MIN)

HALF = 2.5 + 1e-3
"""By how much a sum may differ from its rounded one, the grid of the terms included."""

SECONDS = 3.0
"""Of an integer programme, at most."""

RULES = (
    lambda x: x.sum(axis=1) == 0,
    lambda x: x.sum(axis=1) % 2 == 0,
    lambda x: x.sum(axis=1) >= x.shape[1] - 1,
    lambda x: (x[:, 0] == 0) & (x[:, 1:].min(axis=1) == 0),
)


class RuleTable(NamedTuple):
    """A table of which a rule of all columns gives the label, or the group.

    Attributes:
        schema: of the rows.
        rows: of two groups; group 0 has fewer than K_MIN rows of one label.
        allowed: a row for each pattern of columns, group and label that the rule allows.
        cell: the small cell.
        size: its number of rows.
    """

    schema: Schema
    rows: sf.Encoded
    allowed: sf.Encoded
    cell: int
    size: int


def schema_of(columns):
    """Return the schema of so many columns with two values."""
    names = *(f"c{i}" for i in range(columns)), "town", "paid"
    two = dict.fromkeys(names, Categorical(categories=(0, 1)))
    roles = {"label": "paid", "positive": 1, "sensitive": "town"}
    return Schema.model_validate({"name": "rule", "columns": two, **roles})


def cell_of(rows):
    return 2 * rows.s + (rows.y > 0)


def repeated(allowed, counts):
    x, s, y = (np.repeat(part, counts, axis=0) for part in allowed)
    return sf.Encoded(x, s, y)


def rule_table(kind, columns, number):
    """Return a table that has a block, if no pairs of columns are looked at."""
    rng = np.random.default_rng(100 * columns + number + 5000 * (kind == "group"))
    x = np.array(list(itertools.product((0.0, 1.0), repeat=columns)))
    while True:
        rule = RULES[rng.integers(len(RULES))](x)
        known = np.stack([rule == 0, rule], axis=1)
        both = known[:, None] if kind == "label" else known[:, ::-1, None]
        at = np.argwhere(np.broadcast_to(both, (len(x), 2, 2)))
        allowed = sf.Encoded(x[at[:, 0]], at[:, 1], 2.0 * at[:, 2] - 1)
        if kind == "label":
            sizes = rng.integers(90, 300), rng.integers(500, 1100)
            parts = [rng.multinomial(n, rng.dirichlet(np.full(len(x), 1.5))) for n in sizes]
            counts = np.stack(parts, axis=1)[at[:, 0], at[:, 1]]
        else:
            size = rng.integers(700, 1300)
            each = rng.multinomial(size, rng.dirichlet(np.full(len(x), 1.5)))
            yes = rng.binomial(each, rng.uniform(0.1, 0.6, len(x)))
            counts = np.stack([each - yes, yes], axis=1)[at[:, 0], at[:, 2]]
        cells = np.bincount(cell_of(allowed), counts, minlength=4).astype(int)
        few, rows = cells < K_MIN, repeated(allowed, counts)
        if few[:2].sum() != 1 or few[2:].any() or not cells[few].all() or cells[:2].sum() < K_MIN:
            continue
        cell, order = int(few.argmax()), rng.permutation(len(rows.y))
        rows = sf.Encoded(*(part[order] for part in rows))
        found = RuleTable(schema_of(columns), rows, allowed, cell, int(cells[cell]))
        if seems_a_block(found):
            return found


def seems_a_block(table):
    spec = SurrogateSpec(CONFIG, table.schema)
    answers = TableSums(in_memory(table.rows), spec)
    (counts,) = answers.sums(histograms(spec.columns, 2))
    with pytest.MonkeyPatch.context() as patch:
        ignore_pairs_of_columns(patch)
        try:
            margins = find_margins(answers, counts.reshape(4, -1), spec)
        except sf.InputError:
            return False
    return len(margins.strata.tilted) > 0


def ignore_pairs_of_columns(patch):
    patch.setattr("synthfair.surrogate.records.tells", lambda *args: tells(*args[:2], [], args[3]))


@pytest.fixture
def one_column_alone(monkeypatch):
    """As if only single columns could tell a small cell's rows."""
    ignore_pairs_of_columns(monkeypatch)


def spec_and_sums(rows, schema):
    spec = SurrogateSpec(CONFIG, schema)
    return spec, read_sums(TableSums(in_memory(rows), spec), spec)


def has_block(table):
    _, sums = spec_and_sums(table.rows, table.schema)
    return len(sums.margins.strata.tilted) > 0


def numbers_left(table, *, rates_of_groups=False, to_the_end=False):
    """Return how many numbers of rows the small cell may have, of 1 to K_MIN - 1.

    Args:
        table: of a rule, which is known.
        rates_of_groups: plants sums that link columns over the groups of the block.
        to_the_end: whether every programme must be solved: else few numbers prove nothing.
    """
    allowed, real, own = table.allowed, table.rows, cell_of(table.allowed)
    spec, sums = spec_and_sums(real, table.schema)
    functions, rounded = [], []

    def add(f, total):
        functions.append(f.reshape(len(own), -1))
        rounded.append(np.atleast_1d(5 * np.rint(total / 5)))

    x, s, y = allowed
    every = Surrogate(x, s, y, np.ones(len(own)), (), (), 0.0)
    for here, total, terms in weight_terms(every, sums, spec):
        for term in terms:
            f = np.zeros((len(own), len(term.mean)))
            f[here] = term.f
            add(f, term.mean * total)
    levels = [spec.columns.levels(rows) for rows in (allowed, real)]
    for (i, j), one in itertools.product(sums.edges, sums.margins.strata.drawn):
        for pair in itertools.product((0, 1), repeat=2):
            f, g = ((level[:, [i, j]] == pair).all(axis=1) for level in levels)
            add(f * one[own] * 1.0, (g * one[cell_of(real)]).sum())
    for one in sums.margins.strata.tilted if rates_of_groups else ():
        f, g = (
            smooth_rates(rows, sums.thetas, 2) * one[cell_of(rows), None]
            for rows in (allowed, real)
        )
        add(f, g.sum(axis=0))
    f, total, target = np.hstack(functions).T, np.concatenate(rounded), (own == table.cell) * 1.0
    asked = [(f, total - HALF, total + HALF), (target[None], 1.0, K_MIN - 1.0)]
    ends = []
    for sign in (1, -1):
        found = milp(
            sign * target,
            integrality=np.ones(len(own)),
            bounds=Bounds(0, np.inf),
            constraints=[LinearConstraint(*one) for one in asked],  # type: ignore[arg-type]
            options={"time_limit": SECONDS, "mip_rel_gap": 0},
        )
        assert found.status == 0 or not to_the_end
        ends.append(table.size if found.x is None else round(target @ found.x))
    return ends[1] - ends[0] + 1


@pytest.mark.parametrize("kind", ["label", "group"])
def test_a_rule_of_two_columns_is_seen(kind, monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.records.PROBLEMS", 2)
    tables = [rule_table(kind, 2, i) for i in range(7)]
    assert not any(map(has_block, tables))
    assert {numbers_left(table) for table in tables[:2]} == {K_MIN - 1}


def test_a_rule_of_three_columns_leaves_many_numbers_unless_sums_by_group_link_columns():
    table = rule_table("label", 3, 1)
    assert has_block(table)
    assert numbers_left(table) >= 25
    assert numbers_left(table, rates_of_groups=True, to_the_end=True) < 10


@pytest.mark.usefixtures("one_column_alone")
def test_without_a_look_at_pairs_of_columns_a_rule_of_groups_leaves_few_numbers():
    assert numbers_left(rule_table("group", 2, 0), to_the_end=True) < 10


def test_weights_do_not_tell_the_hidden_pair_of_a_rule():
    """Paid is who has neither of two things; in town 0 these are 31."""
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 2, float)
    s, y = np.repeat([0, 1], 4), np.array([1.0, -1, -1, -1] * 2)
    rows = repeated(sf.Encoded(x, s, y), [31, 87, 93, 207, 120, 248, 255, 559])
    spec, sums = spec_and_sums(rows, schema_of(2))
    found = surrogate_of(sums, spec)
    assert found.left_out == ((0, 1.0),)
    assert set(cell_of(found)) == {0, 2, 3}


@pytest.mark.parametrize("columns", [2, 3])
def test_no_rule_of_the_label_leaves_fewer_than_25_numbers(columns):
    assert min(numbers_left(rule_table("label", columns, i)) for i in range(7)) >= 25


def test_a_rule_of_three_columns_for_the_group_may_leave_fewer_than_25_numbers():
    """As docs/privacy.md says: where two columns do not tell, a block stays."""
    left = [numbers_left(rule_table("group", 3, i), to_the_end=True) for i in range(7)]
    assert sum(one < 25 for one in left) == 2
