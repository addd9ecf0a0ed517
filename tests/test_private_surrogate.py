"""Private surrogates: what one row can change, the noise, the statement, and what is made of sums."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table, silent
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from test_queries import any_rows

from synthfair.config import DistillConfig, SurrogateConfig
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.model import LinearModel
from synthfair.privacy import mechanism
from synthfair.privacy.accounting import mu_for
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import seeded
from synthfair.privacy.private_sums import private_sums
from synthfair.privacy.statement import Guarantee, make_guarantee, require_true
from synthfair.release.format import make_header
from synthfair.surrogate.fair_training import train_fair
from synthfair.surrogate.private import make_private_surrogate
from synthfair.surrogate.table import WeightedTable

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBER, MISSING = Numeric(lower=-3.0, upper=5.0), Numeric(lower=0.0, upper=1.0, missing="category")
TWO, THREE = Categorical(categories=("a", "b")), Categorical(categories=("a", "b", "c"))
FOUR = Categorical(categories=tuple("abc"), missing="category")


def small(*columns):
    features = {f"c{i}": column for i, column in enumerate(columns)}
    return Schema(name="any", label="y", positive=1, sensitive="s", columns=features | ROLES)


SCHEMAS = [small(NUMBER), small(NUMBER, TWO), small(MISSING, THREE), small(TWO, FOUR)]


def private(**changes):
    return SurrogateConfig(epsilon=1.0, delta=1e-5, **changes)


def corners(schema):
    """One row for each corner of the feature space, in each cell."""

    def values(column):
        bounds = isinstance(column, Numeric)
        allowed = (column.lower, column.upper) if bounds else column.categories
        return [*allowed, None] if column.missing == "category" else list(allowed)

    rows = product(*map(values, schema.columns.values()))
    return encode(pd.DataFrame(rows, columns=list(schema.columns)), schema)


def released(rows, schema, config, *, source=silent):
    """Vectors of all numbers that noise is added to, by mechanism; and the guarantee."""
    guarantee = make_guarantee(config, schema)
    sums = private_sums(in_memory(rows), schema, guarantee, source=source)
    upper = np.triu_indices(sums.moments.shape[-1])
    numbers = (sums.moments[..., *upper].ravel(), sums.binned.ravel())
    return dict(zip(("cell_moments", "histograms"), numbers, strict=True)), guarantee


def part(rows, keep):
    return Encoded(*(field[keep] for field in rows))


def joined(a, b):
    return Encoded(*(np.concatenate(both) for both in zip(a, b, strict=True)))


def changes(schema, config, before):
    """By mechanism, what each corner in each cell adds to a table, [rows, numbers]."""
    rows = corners(schema)
    base, guarantee = released(before, schema, config)
    more = [
        released(joined(before, part(rows, [i])), schema, config)[0] for i in range(len(rows.y))
    ]
    return {
        m.name: (np.array([found[m.name] for found in more]) - base[m.name], m.sensitivity)
        for m in guarantee.mechanisms
    }


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: "+".join(s.encoded_names))
@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_the_largest_change_over_all_neighbours_is_the_sensitivity(schema, relation, before):
    """Found again by trying every corner, in every cell, on an empty and on tiny tables."""
    base = part(corners(schema), slice(before))
    for added, sensitivity in changes(schema, private(relation=relation), base).values():
        if relation == "add_or_remove":
            largest = np.linalg.norm(added, axis=1).max()
        else:
            largest = np.linalg.norm(added[:, None] - added, axis=-1).max()
        # Rounding has no less than a part in 2,000 of it.
        assert largest <= sensitivity * (1 + 1e-12)
        assert largest == pytest.approx(sensitivity, rel=5e-4)


@settings(max_examples=60)
@given(rows=any_rows, relation=st.sampled_from(["add_or_remove", "replace"]))
def test_no_row_whatever_it_holds_changes_a_sum_by_more(rows, relation):
    schema, whole = make_schema(), Encoded(*rows)
    other = Encoded(1 - whole.x[-1:], whole.s[-1:], -whole.y[-1:])
    neighbour = part(whole, slice(-1))
    if relation == "replace":
        with np.errstate(all="ignore"):
            neighbour = joined(neighbour, other)
    first, guarantee = released(whole, schema, private(relation=relation))
    second, _ = released(neighbour, schema, private(relation=relation))
    for m in guarantee.mechanisms:
        assert np.linalg.norm(first[m.name] - second[m.name]) <= m.sensitivity * (1 + 1e-12)


def test_a_row_that_is_not_clipped_would_be_found(monkeypatch):
    monkeypatch.setattr(mechanism, "clip_squares", lambda rows, bound: rows)
    rows = Encoded(np.full((1, 7), 9.0), np.array([0]), np.array([1.0]))
    found, guarantee = released(rows, make_schema(), private())
    assert np.linalg.norm(found["cell_moments"]) > guarantee.mechanism("cell_moments").sensitivity


@pytest.mark.parametrize("n_groups", [2, 3])
def test_without_noise_they_are_the_plain_sums_also_of_a_stream(n_groups):
    """Rows that the schema allows are never clipped."""
    schema = make_schema(n_groups)
    rows = encode(make_table(300, n_groups=n_groups), schema)
    parts = [part(rows, slice(i, i + 70)) for i in range(0, 300, 70)]
    guarantee = make_guarantee(private(), schema)
    found = private_sums(BatchesInOrder(lambda: parts), schema, guarantee, source=silent)
    x = rows.x[(rows.s == 1) & (rows.y < 0)]
    categories = np.repeat([0.5, 0.25], [3, 4])  # (income, age, age is missing), (home)
    b = np.column_stack([x - categories, np.ones(len(x))])
    np.testing.assert_allclose(found.moments[1, 0], b.T @ b, atol=0.01)
    for j in range(2):
        expected = np.histogram(x[:, j], bins=16, range=(0, 1))[0]
        np.testing.assert_array_equal(found.binned[1, 0, j], expected)


def too_small_by(stated, noise):
    """Whether noise numbers are another normal than stated; one false alarm in 10,000."""
    low, high = chi2.ppf([5e-5, 1 - 5e-5], noise.size)
    return not low < ((noise / stated) ** 2).sum() < high


@pytest.mark.parametrize("name", ["cell_moments", "histograms"])
def test_noise_has_the_standard_deviation_that_is_stated(name):
    """Noise that is 10 % too small, or missing, is caught."""
    schema, config = make_schema(), private()
    rows = encode(make_table(30), schema)
    exact, guarantee = released(rows, schema, config)
    noisy = [released(rows, schema, config, source=seeded(i))[0][name] for i in range(15)]
    noise, stated = np.concatenate(noisy - exact[name]), guarantee.mechanism(name).noise
    assert not too_small_by(stated, noise)
    assert too_small_by(stated, 0.9 * noise)
    assert too_small_by(stated, 0.0 * noise)


def test_moments_are_symmetric_and_every_number_has_noise_of_its_own(schema):
    rows = in_memory(encode(make_table(30), schema))
    guarantee = make_guarantee(private(), schema)
    exact = private_sums(rows, schema, guarantee, source=silent)
    noisy = private_sums(rows, schema, guarantee, source=seeded(0))
    np.testing.assert_array_equal(noisy.moments, np.swapaxes(noisy.moments, -1, -2))
    upper = np.triu_indices(8)
    assert len(np.unique((noisy.moments - exact.moments)[..., *upper].round(9))) == 4 * 36


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize(
    ("made", "moments_only", "names"),
    [
        (small(NUMBER, TWO), False, ["cell_moments", "histograms"]),
        (small(NUMBER, TWO), True, ["cell_moments"]),
        (small(TWO, THREE), False, ["cell_moments"]),  # no number: means tell all
    ],
)
def test_the_whole_budget_is_spent(made, moments_only, names, relation):
    config = private(moments_only=moments_only, relation=relation)
    guarantee = make_guarantee(config, made)
    assert [m.name for m in guarantee.mechanisms] == names
    assert guarantee.mu == pytest.approx(mu_for(1.0, 1e-5))


def test_a_statement_comes_back_and_the_ledger_books_it(schema, tmp_path):
    config = private()
    header = make_header(
        config, schema, model=LinearModel(), guarantee=make_guarantee(config, schema)
    )
    found = type(header).model_validate_json(header.model_dump_json())
    assert found == header
    require_true(found.privacy.guarantee, found.config, schema)
    ledger = Ledger(tmp_path / "table.ledger.jsonl")
    ledger.book(Booking(output="a.parquet", run="0" * 64, guarantee=found.privacy.guarantee))
    assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)


def altered(said, **change):
    first, *rest = said.mechanisms
    return {"mechanisms": (first.model_copy(update=change), *rest)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda said: {"mechanisms": said.mechanisms[:1]}, "must be .'cell_moments', 'histograms'"),
        (lambda said: altered(said, sensitivity=0.5), "cell_moments: sensitivity 0.5"),
        (lambda said: altered(said, times=2, noise=1e9), "used 2 times"),
        (lambda said: altered(said, name="moments"), "must be"),
        (lambda said: altered(said, noise=said.mechanisms[0].noise / 8), r"2\^34 or more"),
    ],
)
def test_a_reader_refuses_what_settings_and_schema_do_not_imply(schema, change, complaint):
    config = private()
    said = make_guarantee(config, schema)
    require_true(Guarantee(**dict(said)), config, schema)
    with pytest.raises(ValueError, match=complaint):
        require_true(Guarantee(**(dict(said) | change(said))), config, schema)


def test_a_guarantee_of_one_kind_of_release_is_not_that_of_another(schema):
    fair = make_guarantee(DistillConfig(epsilon=1.0, delta=1e-5), schema)
    with pytest.raises(ValueError, match="must be .'cell_moments'"):
        require_true(fair, private(), schema)


LARGE = encode(make_table(4000), make_schema())


def made_of(rows=LARGE, *, seed=0, epsilon=1.0, **changes):
    config = SurrogateConfig(epsilon=epsilon, delta=1e-5, **changes)
    return make_private_surrogate(in_memory(rows), config, make_schema(), noise=seeded(seed))


def test_the_same_noise_gives_the_same_surrogate_and_other_noise_another():
    first, second, other = made_of(), made_of(), made_of(seed=1)
    for a, b in zip(first.table, second.table, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.table.x, other.table.x)


@pytest.mark.parametrize("moments_only", [True, False])
def test_with_little_noise_it_has_the_moments_of_the_rows(moments_only):
    table = made_of(epsilon=100.0, moments_only=moments_only).table
    for s, y in product((0, 1), (-1.0, 1.0)):
        real, here = LARGE.x[(LARGE.s == s) & (LARGE.y == y)], (table.s == s) & (table.y == y)
        x = table.x[here]
        assert table.weight[here].sum() == pytest.approx(len(real), abs=3)
        np.testing.assert_allclose(x.mean(axis=0), real.mean(axis=0), atol=0.005)
        wanted = np.cov(real.T, bias=True)
        np.testing.assert_allclose(np.cov(x.T, bias=True), wanted, atol=0.006)


def test_with_little_noise_it_has_the_marginals_of_the_numbers():
    """Age, missing in every tenth row and uniform in the others, is far from normal."""

    def distance(moments_only):
        table = made_of(epsilon=100.0, moments_only=moments_only, rows_per_cell=800).table
        here, real = (table.s == 0) & (table.y > 0), LARGE.x[(LARGE.s == 0) & (LARGE.y > 0), 1]
        cuts = np.linspace(0, 1, 40)
        return np.abs(
            (table.x[here, 1] < cuts[:, None]).mean(1) - (real < cuts[:, None]).mean(1)
        ).max()

    assert distance(False) < 0.06 < distance(True)


def test_a_fair_model_of_the_surrogate_is_that_of_the_rows():
    def decided(table):
        rows, penalty = table.rows(n_groups=2), CovariancePenalty()
        theta = train_fair(rows, 1e-3, 10.0, model=LinearModel(), penalty=penalty).params
        a = np.column_stack([LARGE.x, LARGE.s == 1, np.ones(len(LARGE.y))])
        return a @ np.asarray(theta) > 0

    central = decided(WeightedTable(*LARGE, np.ones(len(LARGE.y))))
    private = decided(made_of(epsilon=8.0, moments_only=True).table)
    assert np.mean(central == private) > 0.97


def test_small_cells_are_left_out_by_their_noisy_count():
    keep = ~((LARGE.s == 1) & (LARGE.y > 0)) | (np.arange(4000) % 100 == 0)
    made = made_of(part(LARGE, keep), epsilon=20.0)
    assert made.left_out == ((1, 1.0),)
    assert set(zip(made.table.s, made.table.y, strict=True)) == {(0, -1), (0, 1), (1, -1)}
    with pytest.raises(
        InputError, match=r"pair of .* reaches k_min = 50 and \d+, .* Lower k_min or raise"
    ):
        made_of(part(LARGE, slice(20)), epsilon=20.0)


def test_too_few_rows_a_cell_are_refused_before_anything_is_read(schema):
    def unread():
        raise AssertionError

    with pytest.raises(InputError, match="rows_per_cell = 5"):
        make_private_surrogate(BatchesInOrder(unread), private(rows_per_cell=5), schema)
