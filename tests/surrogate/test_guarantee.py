"""The guarantee of a surrogate: norms by definition, shares of the budget, and what is refused."""

import itertools

import numpy as np
import pytest

from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.privacy.accounting import mu_for
from synthfair.privacy.guarantee import PRIVATE_PROBLEMS, Guarantee, make_guarantee, require_true
from synthfair.release.settings import SurrogateConfig

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBER = Numeric(lower=-3.0, upper=5.0, missing="category")
THREE = Categorical(categories=("a", "b", "c"))


def schema_of(numbers, categories):
    columns = [NUMBER] * numbers + [THREE] * categories
    features = {f"c{i}": column for i, column in enumerate(columns)}
    return Schema(name="any", label="y", positive=1, sensitive="s", columns=features | ROLES)


def private(**changes):
    return SurrogateConfig(epsilon=1.0, delta=1e-5, **changes)


SIZES = [(1, 0), (0, 1), (0, 3), (4, 2), (9, 0)]
each_size = pytest.mark.parametrize(("numbers", "categories"), SIZES)
each_tree = pytest.mark.parametrize("common_tree", [False, True])


@each_size
@each_tree
@pytest.mark.parametrize(("relation", "rows"), [("add_or_remove", 1), ("replace", 2)])
def test_guarantee_has_the_norms_and_shares_the_budget(
    numbers, categories, common_tree, relation, rows
):
    """A sum over one row has a one for each column or pair, or products and numbers of 1/2."""
    p, z = numbers + categories, np.full(numbers, 0.5)
    products = [z[i] * z[j] for i, j in itertools.combinations_with_replacement(range(numbers), 2)]
    terms = {  # the norm of a row, its share of the budget; another row may stand opposite
        "histograms": (np.ones(p), 175),
        "column_moments": (np.append(products, z), 200),
        "pairs": (np.ones(p - 1), 275),
        "anchors": (np.full(2 * PRIVATE_PROBLEMS, 0.5), 300),
    }
    if common_tree:
        terms["tables"] = np.ones(p * (p - 1) // 2), 50
    terms = {name: term for name, term in terms.items() if term[0].size}
    total = sum(share for _, share in terms.values()) + 50 * (p > 1 and not common_tree)
    config, schema = private(relation=relation), schema_of(numbers, categories)
    guarantee = make_guarantee(config, schema, common_tree=common_tree)
    assert guarantee.mu == pytest.approx(mu_for(1.0, 1e-5), rel=1e-5)
    stated = {m.name: m for m in guarantee.mechanisms}
    if "tree" in stated:
        tree = stated.pop("tree")
        assert (tree.sensitivity, tree.times) == (rows + 2.0**-10, p - 1)
        assert (tree.mu / guarantee.mu) ** 2 == pytest.approx(50 / total, rel=1e-3)
    assert stated.keys() == terms.keys()
    for name, (term, share) in terms.items():
        opposed = {"anchors": 2.0, "column_moments": 2.0}.get(name, 2**0.5)
        norm = np.linalg.norm(term) * (opposed if rows == 2 else 1)
        assert (stated[name].mu / guarantee.mu) ** 2 == pytest.approx(share / total, rel=1e-3)
        assert stated[name].sensitivity == pytest.approx(norm, rel=1e-8)


def test_guarantee_of_the_least_budget_leaves_a_tree_to_chance():
    config = SurrogateConfig(epsilon=1e-6, delta=1e-15)
    guarantee = make_guarantee(config, schema_of(9, 0))
    tree = guarantee.mechanism("tree")
    assert (tree.epsilon, tree.mu) == (0, 0)
    require_true(guarantee, config, schema_of(9, 0))


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        (
            "anchors",
            None,
            r"must be \['histograms', 'tree', 'pairs', 'column_moments', 'anchors'\]",
        ),
        ("pairs", {"name": "tables"}, "must be .*'pairs'"),
        ("pairs", {"sensitivity": 0.5}, "pairs: sensitivity 0.5"),
        ("tree", {"sensitivity": 1.0}, "tree: sensitivity 1; .* 1.00098"),
        ("tree", {"times": 1}, "tree: .* for 2 choices"),
        ("tree", {"epsilon": 0.5}, "delta = .* more than the 1e-05"),
        ("tree", {"epsilon": 1e-9}, "2.-20"),
        ("anchors", {"name": "tree"}, "tree.*epsilon"),
    ],
)
def test_guarantee_that_settings_and_schema_do_not_imply_is_refused(
    schema, name, change, complaint
):
    config = private()
    said = Guarantee(**make_guarantee(config, schema).model_dump()).model_dump()
    require_true(Guarantee(**said), config, schema)
    kept = [m for m in said["mechanisms"] if m["name"] != name or change]
    changed = [m | (change if m["name"] == name else {}) for m in kept]
    with pytest.raises(ValueError, match=complaint):
        require_true(Guarantee(**said | {"mechanisms": tuple(changed)}), config, schema)
