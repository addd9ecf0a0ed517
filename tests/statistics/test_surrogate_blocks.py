"""A block hides its small cells where a rule of columns gives the label, or the group.

Whoever knows the rule, and all rounded sums of a surrogate, solves integer programmes for the
smallest and the largest number of rows that a hidden cell may have. Of the solutions that are
found, both are tables with the same sums: a programme that is cut off claims less.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from builders import part
from scipy.optimize import Bounds, LinearConstraint, milp

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical, Schema
from synthfair.surrogate import records
from synthfair.surrogate.sums import SurrogateSpec, TableSums, histograms, smooth_rates

K_MIN, NODES, TELLS = 50, 2000, records.tells
"""The least rows of a sum; nodes of an integer programme, at most; the rule that is tested."""

HALF = 2.5 + 1e-3
"""By how much a sum may differ from its rounded one, the grid of the terms included."""

RULES = (
    lambda x: x.sum(axis=1) == 0,
    lambda x: x.sum(axis=1) % 2 == 0,
    lambda x: x.sum(axis=1) >= x.shape[1] - 1,
    lambda x: (x[:, 0] == 0) & (x[:, 1:].min(axis=1) == 0),
)


class RuleTable(NamedTuple):
    """Rows, a row for each pattern that the rule allows, and the small cell with its size."""

    spec: SurrogateSpec
    rows: sf.Encoded
    allowed: sf.Encoded
    cell: int
    size: int

    @property
    def answers(self):
        return TableSums(in_memory(self.rows), self.spec)


def spec_of(columns):
    """Of so many columns with two values."""
    two = dict.fromkeys([*(f"c{i}" for i in range(columns)), "town", "paid"],
                        Categorical(categories=(0, 1)))  # fmt: skip
    schema = Schema(name="rule", columns=two, label="paid", positive=1, sensitive="town")
    return SurrogateSpec(sf.SurrogateConfig(k_min=K_MIN), schema)


def cell_of(rows):
    return 2 * rows.s + (rows.y > 0)


def rule_table(kind, columns, number):
    """A table that has a block, if no pairs of columns are looked at."""
    rng = np.random.default_rng(100 * columns + number + 5000 * (kind == "group"))
    x = np.array(list(itertools.product((0.0, 1.0), repeat=columns)))
    while True:
        rule = RULES[rng.integers(len(RULES))](x)
        known = np.stack([rule == 0, rule], axis=1)
        both = known[:, None] if kind == "label" else known[:, ::-1, None]
        place, s, y = np.argwhere(np.broadcast_to(both, (len(x), 2, 2))).T
        allowed = sf.Encoded(x[place], s, 2.0 * y - 1)
        if kind == "label":
            sizes = rng.integers(90, 300), rng.integers(500, 1100)
            each = [rng.multinomial(n, rng.dirichlet(np.full(len(x), 1.5))) for n in sizes]
            counts = np.stack(each, axis=1)[place, s]
        else:
            size = rng.integers(700, 1300)
            each = rng.multinomial(size, rng.dirichlet(np.full(len(x), 1.5)))
            yes = rng.binomial(each, rng.uniform(0.1, 0.6, len(x)))
            counts = np.stack([each - yes, yes], axis=1)[place, y]
        cells = np.bincount(cell_of(allowed), counts, minlength=4).astype(int)
        few, rows = cells < K_MIN, part(allowed, np.repeat(np.arange(len(counts)), counts))
        if few[:2].sum() != 1 or few[2:].any() or not cells[few].all() or cells[:2].sum() < K_MIN:
            continue
        rows, cell = part(rows, rng.permutation(len(rows.y))), int(few.argmax())
        table = RuleTable(spec_of(columns), rows, allowed, cell, int(cells[few][0]))
        (first,) = table.answers.sums(histograms(table.spec.columns, 2))
        with pytest.MonkeyPatch.context() as patch:
            ignore_pairs_of_columns(patch)
            try:
                margins = records.find_margins(table.answers, first.reshape(4, -1), table.spec)
            except sf.InputError:
                continue
        if len(margins.strata.tilted):
            return table


def ignore_pairs_of_columns(patch):
    patch.setattr("synthfair.surrogate.records.tells", lambda *args: TELLS(*args[:2], [], args[3]))


def has_block(table):
    return len(records.read_sums(table.answers, table.spec).margins.strata.tilted) > 0


def numbers_left(table, *, rates_of_groups=False):
    """How many numbers of rows the small cell may have, of 1 to K_MIN - 1, for who knows the rule.

    ``rates_of_groups`` plants sums that link columns over the groups of the block.
    """
    spec, real, allowed, own = table.spec, table.rows, table.allowed, cell_of(table.allowed)
    sums, functions, rounded = records.read_sums(table.answers, spec), [], []

    def add(f, total):
        functions.append(f.reshape(len(own), -1))
        rounded.append(np.atleast_1d(5 * np.rint(total / 5)))

    every = records.Surrogate(*allowed, np.ones(len(own)), (), (), 0.0)
    for here, total, terms in records.weight_terms(every, sums, spec):
        for term in terms:
            f = np.zeros((len(own), len(term.mean)))
            f[here] = term.f
            add(f, term.mean * total)
    levels = [spec.columns.levels(rows) for rows in (allowed, real)]
    for edge, members in itertools.product(sums.edges, sums.margins.strata.drawn):
        for pair in itertools.product((0, 1), repeat=2):
            f, g = ((level[:, list(edge)] == pair).all(axis=1) for level in levels)
            add(f * members[own] * 1.0, (g * members[cell_of(real)]).sum())
    for members in sums.margins.strata.tilted if rates_of_groups else ():
        f, g = (smooth_rates(rows, sums.thetas, 2) * members[cell_of(rows), None]
                for rows in (allowed, real))  # fmt: skip
        add(f, g.sum(axis=0))
    f, total, target = np.hstack(functions).T, np.concatenate(rounded), (own == table.cell) * 1.0
    limits = [
        LinearConstraint(f, total - HALF, total + HALF),  # type: ignore[arg-type]
        LinearConstraint(target[None], 1.0, K_MIN - 1.0),  # type: ignore[arg-type]
    ]
    ends = []
    for sign in (1, -1):
        found = milp(sign * target, integrality=np.ones(len(own)), bounds=Bounds(0, np.inf),
                     constraints=limits, options={"node_limit": NODES, "mip_rel_gap": 0})  # fmt: skip
        ends.append(table.size if found.x is None else round(target @ found.x))
    return ends[1] - ends[0] + 1


@pytest.mark.parametrize("kind", ["label", "group"])
def test_block_is_none_where_two_columns_are_a_rule(kind, monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.records.PROBLEMS", 2)
    tables = [rule_table(kind, 2, i) for i in range(7)]
    assert not any(map(has_block, tables))
    assert {numbers_left(table) for table in tables} == {K_MIN - 1}


def test_block_of_a_rule_of_three_columns_for_the_label_leaves_25_numbers():
    tables = [rule_table("label", 3, i) for i in range(7)]
    assert has_block(tables[1])
    assert min(map(numbers_left, tables)) >= 25
    assert numbers_left(tables[1], rates_of_groups=True) < 10  # what a planted sum would tell


def test_block_of_a_rule_of_three_columns_for_the_group_may_leave_fewer():
    """As docs/privacy.md says: where two columns do not tell, a block stays."""
    left = sorted(numbers_left(rule_table("group", 3, i)) for i in range(7))
    assert [left[0] < 10, left[1] < 10, left[1] < 25, left[2] < 25] == [True, False, True, False]


def test_block_without_a_look_at_pairs_of_columns_would_leave_few_numbers(monkeypatch):
    ignore_pairs_of_columns(monkeypatch)
    assert numbers_left(rule_table("group", 2, 0)) < 10
