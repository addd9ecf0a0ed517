"""The guarantee of a surrogate: what one row changes, how the budget is shared, what is refused."""

import itertools

import numpy as np
import pytest

from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.model import LinearModel
from synthfair.privacy.accounting import mu_for
from synthfair.privacy.guarantee import PRIVATE_PROBLEMS, Guarantee, make_guarantee, require_true
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.release.format import make_header
from synthfair.release.settings import SurrogateConfig
from synthfair.report.privacy_words import header_facts
from synthfair.report.text_table import Table

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBER = Numeric(lower=-3.0, upper=5.0, missing="category")
THREE = Categorical(categories=("a", "b", "c"))
RELATIONS = ["add_or_remove", "replace"]


def schema_of(numbers, categories):
    columns = [NUMBER] * numbers + [THREE] * categories
    features = {f"c{i}": column for i, column in enumerate(columns)}
    return Schema(name="any", label="y", positive=1, sensitive="s", columns=features | ROLES)


SCHEMAS = [schema_of(1, 0), schema_of(0, 1), schema_of(0, 3), schema_of(4, 2), schema_of(9, 0)]
by_size = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{len(s.features)} columns")


def private(**changes):
    return SurrogateConfig(epsilon=1.0, delta=1e-5, **changes)


def one_hot(choice, of):
    return np.eye(of)[choice].ravel()


def one_row(schema, rng, *, extreme):
    """The term of a row in each sum, in a cell at random, written down from the sums' definition."""
    p, m = len(schema.features), sum(c is NUMBER for c in schema.features.values())
    z, v = rng.uniform(-0.5, 0.5, (2, m))
    rates = rng.uniform(-0.5, 0.5, 2 * PRIVATE_PROBLEMS)
    if extreme:
        z, v, rates = (np.copysign(0.5, one) for one in (z, v, rates))
    levels, cell = rng.integers(0, 5, p), rng.integers(0, 4)
    both = [5 * levels[i] + levels[j] for i, j in itertools.combinations(range(p), 2)]
    tree = [5 * levels[rng.integers(0, j)] + levels[j] for j in range(1, p)]
    products = [z[i] * z[j] for i in range(m) for j in range(i, m)]
    terms = {
        "histograms": one_hot(levels, 5),
        "pairs": one_hot(tree, 25),
        "tables": one_hot(both, 25),
        "column_moments": np.append(products, v),
        "anchors": rates,
    }
    return {name: np.kron(np.eye(4)[cell], term) for name, term in terms.items() if term.size}


def mechanisms(schema, relation="add_or_remove"):
    """Of a release and of secure sums, each name once."""
    said = [
        make_guarantee(private(relation=relation), schema, common_tree=c) for c in (False, True)
    ]
    return {m.name: m for guarantee in said for m in guarantee.mechanisms if m.name != "tree"}


@by_size
def test_extreme_rows_attain_the_norms_and_no_row_passes_them(schema):
    rng, stated = np.random.default_rng(0), mechanisms(schema)
    for extreme in [True, False] * 20:
        terms = one_row(schema, rng, extreme=extreme)
        assert terms.keys() == stated.keys()
        for name, term in terms.items():
            norm, sensitivity = np.linalg.norm(term), stated[name].sensitivity
            assert norm <= sensitivity
            if extreme:
                assert norm == pytest.approx(sensitivity, rel=1e-8)


@by_size
def test_a_row_in_place_of_another_changes_a_sum_by_the_sensitivity_at_most(schema):
    rng, stated = np.random.default_rng(0), mechanisms(schema, "replace")
    largest = dict.fromkeys(stated, 0.0)
    for _ in range(300):
        one, other = (one_row(schema, rng, extreme=True) for _ in range(2))
        other["anchors"] = -one["anchors"]  # in the same cell
        for name in stated:
            change = np.linalg.norm(one[name] - other[name])
            largest[name] = max(largest[name], change / stated[name].sensitivity)
    assert max(largest.values()) <= 1
    for name in largest.keys() - {"column_moments"}:  # where products are never opposed
        assert largest[name] == pytest.approx(1, rel=1e-8)


@by_size
@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_that_definitions_allow_are_rounded_and_never_shortened(schema, relation):
    rng = np.random.default_rng(0)
    terms = one_row(schema, rng, extreme=True)
    for name, mechanism in mechanisms(schema, relation).items():
        term = terms[name][terms[name] != 0]
        wanted = mechanism.terms(relation)
        found = wanted.whole(term[None])[0] * mechanism.grid
        assert np.abs(found - term).max() <= mechanism.grid / 2
        far = wanted.whole(1e9 * term[None])[0] * mechanism.grid
        assert np.linalg.norm(far) <= mechanism.sensitivity


@by_size
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("common_tree", [False, True])
def test_the_whole_budget_is_shared_among_what_there_is(schema, relation, common_tree):
    p, numbers = len(schema.features), any(c is NUMBER for c in schema.features.values())
    shares = {"histograms": 175, "column_moments": 200 * numbers, "anchors": 300}
    shares |= {"tables" if common_tree else "tree": 50, "pairs": 275}
    if p == 1:
        shares = {k: v for k, v in shares.items() if k not in ("tree", "pairs", "tables")}
    shares = {name: share for name, share in shares.items() if share}
    guarantee = make_guarantee(private(relation=relation), schema, common_tree=common_tree)
    assert guarantee.mu == pytest.approx(mu_for(1.0, 1e-5), rel=1e-5)
    found = {m.name: (m.mu / guarantee.mu) ** 2 for m in guarantee.mechanisms}
    total = sum(shares.values())
    assert found == pytest.approx({n: share / total for n, share in shares.items()}, rel=1e-3)


@pytest.mark.parametrize(("relation", "most"), [("add_or_remove", 1), ("replace", 2)])
def test_a_tree_takes_a_choice_for_each_edge(relation, most):
    tree = make_guarantee(private(relation=relation), schema_of(4, 2)).mechanism("tree")
    assert (tree.sensitivity, tree.times) == (most + 2.0**-10, 5)
    assert "tree" not in {m.name for m in make_guarantee(private(), schema_of(1, 0)).mechanisms}


def test_the_least_budget_leaves_a_tree_to_chance():
    config = SurrogateConfig(epsilon=1e-6, delta=1e-15)
    guarantee = make_guarantee(config, schema_of(9, 0))
    assert guarantee.mechanism("tree").epsilon == 0
    assert guarantee.mechanism("tree").mu == 0
    require_true(guarantee, config, schema_of(9, 0))


def test_a_statement_comes_back_is_shown_and_booked(schema, tmp_path):
    config = private()
    guarantee = make_guarantee(config, schema)
    header = make_header(config, schema, model=LinearModel(), guarantee=guarantee)
    found = type(header).model_validate_json(header.model_dump_json())
    assert found.guarantee == guarantee
    require_true(found.guarantee, config, schema)
    lines = [
        line for name, line in Table.of_facts(header_facts(found)).rows if name == "mechanisms"
    ]
    assert any(line.startswith("name tree, sensitivity 1.001, epsilon ") for line in lines)
    assert any(line.startswith("name pairs, sensitivity 1.414, noise ") for line in lines)
    ledger = Ledger(tmp_path / "table.ledger.jsonl")
    ledger.book(Purchase(output="a.parquet", run="0" * 64, guarantee=found.guarantee))
    assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)


def altered(said, which, **change):
    return tuple(m.model_copy(update=change) if m.name == which else m for m in said.mechanisms)


NAMES = r"must be \['histograms', 'tree', 'pairs', 'column_moments', 'anchors'\]"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda said: said.mechanisms[:1], NAMES),
        (lambda said: altered(said, "pairs", name="tables"), NAMES),
        (lambda said: altered(said, "pairs", sensitivity=0.5), "pairs: sensitivity 0.5"),
        (lambda said: altered(said, "tree", sensitivity=0.5), "tree: sensitivity 0.5; .* 1.00098"),
        (lambda said: altered(said, "tree", sensitivity=1.0), "tree: sensitivity 1; .* 1.00098"),
        (
            lambda said: altered(said, "tree", times=1),
            "mechanism tree: .* for 2 choices",
        ),
        (lambda said: altered(said, "tree", epsilon=0.5), "delta = .* more than the 1e-05"),
        (lambda said: altered(said, "tree", epsilon=1e-9), "multiple of 2.-20"),
        (lambda said: altered(said, "anchors", name="tree"), "mechanisms.*tree.*epsilon"),
    ],
)
def test_a_reader_refuses_what_settings_and_schema_do_not_imply(schema, change, complaint):
    config = private()
    said = make_guarantee(config, schema)
    claimed = {"mechanisms": tuple(mechanism.model_dump() for mechanism in change(said))}
    require_true(Guarantee(**said.model_dump()), config, schema)
    with pytest.raises(ValueError, match=complaint):
        require_true(Guarantee(**said.model_dump() | claimed), config, schema)
