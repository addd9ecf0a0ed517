"""Private surrogates: what one row can change, the noise, and that all else is made of noisy sums."""

from contextlib import nullcontext
from itertools import product

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, joined, make_table, part, schema_with, silent
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric
from synthfair.errors import InputError
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.mechanism import NoisySum, PrivateChoice
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import find_margins, most_numbers, read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums, histograms
from synthfair.surrogate.tables import make_margins, one_hot, row_counts

NUMBER, MISSING = Numeric(lower=-3.0, upper=5.0), Numeric(lower=0.0, upper=1e4, missing="category")
TWO = Categorical(categories=("a", "b"))
FOUR = Categorical(categories=tuple("abc"), missing="category")
FEATURES = [{"a": NUMBER}, {"a": TWO, "b": FOUR}, {"a": MISSING, "b": FOUR}]
FEATURES += [{"a": NUMBER, "b": TWO, "c": MISSING}]


def private(**changes):
    return SurrogateConfig(**{"epsilon": 1.0, "delta": 1e-5} | changes)


def corners(schema):
    """One row for each corner of the feature space, in each cell."""

    def values(column):
        bounds = isinstance(column, Numeric)
        allowed = (column.lower, column.upper) if bounds else column.categories
        return [*allowed, None] if column.missing == "category" else list(allowed)

    rows = product(*map(values, schema.columns.values()))
    return encode(pd.DataFrame(rows, columns=[*schema.columns]), schema)


def sums_of(rows, config, schema, noise=system_entropy):
    spec = SurrogateSpec(config, schema)
    return read_sums(TableSums(in_memory(rows), spec, noise), spec)


def steep(rows, weight, n_problems, *, n_groups, rng):
    """Models that saturate all rates at the corners of the first feature."""
    theta = np.zeros(rows.x.shape[1] + n_groups)
    theta[[0, -1]] = 2000, -1000
    return np.tile(theta, (n_problems, 1))


def exact_sums(rows, schema, config):
    """Exact sums and scores by mechanism, where all that was released before is the same."""
    exact = {}

    class Same(NoisySum):
        def release(self, total):
            stated = self._mechanism
            exact[stated.name] = stated.grid * total.astype(object)
            return np.full(total.shape, 100.0)

    class First(PrivateChoice):
        def choose(self, scores):
            exact["tree"] = np.append(exact.get("tree", []), scores)
            return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.sums.NoisySum", Same)
        patch.setattr("synthfair.surrogate.sums.PrivateChoice", First)
        patch.setattr("synthfair.surrogate.records.self_play", steep)
        sums_of(rows, config, schema)
    return exact


def change(one, other, stated):
    """How much of its sensitivity is used: of scores the largest change, of sums the norm."""
    difference = np.abs((one[stated.name] - other[stated.name]).astype(float))
    if stated.name == "tree":  # what is left for rounding is not a row's
        return difference.max() / (stated.sensitivity - stated.grid)
    return np.linalg.norm(difference) / stated.sensitivity


@pytest.mark.parametrize("schema", [schema_with(**features) for features in FEATURES])
@pytest.mark.parametrize(("relation", "before"), [
    ("add_or_remove", 0), ("replace", 1), ("add_or_remove", 5),
])  # fmt: skip
def test_sensitivity_is_the_largest_change_of_all_neighbours(schema, relation, before):
    """By trying every corner, in every cell, on an empty and on tiny tables."""
    rows, config = corners(schema), private(relation=relation)
    mechanisms, base = make_guarantee(config, schema).mechanisms, part(rows, slice(before))
    first = exact_sums(base, schema, config)
    more = [exact_sums(joined(base, part(rows, [i])), schema, config) for i in range(len(rows.y))]
    assert first.keys() == {stated.name for stated in mechanisms}
    for stated in mechanisms:
        others = [first] if relation == "add_or_remove" else more
        largest = max(change(one, other, stated) for one in more for other in others)
        assert largest <= 1 + 1e-12
        if relation == "add_or_remove" or stated.name not in ("tree", "column_moments"):
            assert largest == pytest.approx(1, rel=5e-4)


NUMBERS = st.floats(-1e3, 1e3) | st.sampled_from([1e200, np.inf, -np.inf, np.nan])
X = arrays(float, (3, 7), elements=NUMBERS)  # far outside of the schema, too


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@settings(max_examples=13)
@given(x=X, cells=st.permutations(range(4)))
def test_sensitivity_holds_whatever_a_row_has(relation, x, cells):
    cell, config = np.array(cells[:3]), private(relation=relation)
    whole = Encoded(x, cell // 2, 2.0 * (cell % 2) - 1)
    neighbour = part(whole, slice(-1))
    with np.errstate(all="ignore"):
        if relation == "replace":
            other = Encoded(1 - whole.x[-1:], 1 - whole.s[-1:], -whole.y[-1:])
            neighbour = joined(neighbour, other)
        one, other = (exact_sums(table, SCHEMA, config) for table in (whole, neighbour))
    for stated in make_guarantee(config, SCHEMA).mechanisms:
        assert change(one, other, stated) <= 1 + 1e-12


LARGE = encode(make_table(4000), SCHEMA)


def made_of(rows=LARGE, *, noise=None, **changes):
    config = private(**changes)
    sums = sums_of(rows, config, SCHEMA, noise or seeded(0))
    return surrogate_of(sums, SurrogateSpec(config, SCHEMA))


def test_surrogate_is_a_function_of_what_was_released(monkeypatch):
    """Of noisy sums and choices; and other noise gives another surrogate."""
    left = []
    for owner, name in ((TableSums, "_released"), (PrivateChoice, "choose")):
        real = getattr(owner, name)
        kept = lambda *args, real=real: left.append(real(*args)) or left[-1]  # noqa: E731
        monkeypatch.setattr(owner, name, kept)
    first = made_of()
    for owner, name in ((TableSums, "_released"), (PrivateChoice, "choose")):
        monkeypatch.setattr(owner, name, lambda *_: left.pop(0))
    again = made_of(part(LARGE, slice(0)))
    monkeypatch.undo()
    for name in ("records", "weight", "s", "y"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    assert first.weight.max() < 5 * np.median(first.weight)  # it does not chase noise
    for noise in (seeded(1), silent):
        assert not np.array_equal(first.weight, made_of(noise=noise).weight)


def hidden(spec, rows, others=LARGE.s == 0):
    """Which cells are, of exact numbers of so many rows of the last cell and of others."""
    few = (LARGE.s == 1) & (LARGE.y > 0)
    few[np.flatnonzero(few)[rows:]] = False
    answers = TableSums(in_memory(part(LARGE, few | others)), spec, silent)
    (counts,) = answers.sums(histograms(spec.columns, 2))
    return find_margins(answers, counts.reshape(4, -1), spec).strata.hidden.tolist()


@pytest.mark.parametrize(("rows", "is_hidden"), [(49, True), (50, False)])
def test_cell_below_k_min_is_hidden_and_alone_refused(rows, is_hidden):
    """Where noise is less than that."""
    spec = SurrogateSpec(private(epsilon=100.0, k_min=50), SCHEMA)
    assert hidden(spec, rows) == [False, False, True, is_hidden]
    with pytest.raises(InputError, match="k_min = 50") if is_hidden else nullcontext():
        assert hidden(spec, rows, others=False) == [True, True, True, False]


@pytest.mark.parametrize(("deviations", "is_hidden"), [(2.9, True), (3.1, False)])
def test_cell_of_rows_that_noise_may_explain_is_hidden(deviations, is_hidden):
    """The noise is that of rows as all columns tell them, found by draws."""
    spec, rng = SurrogateSpec(private(k_min=5), SCHEMA), np.random.default_rng(0)
    assert spec.sd("histograms") == spec.guarantee.mechanisms[0].noise
    draws = rng.normal(scale=spec.sd("histograms"), size=(20_000, spec.columns.ends[-1]))
    rows = round(deviations * row_counts(draws, spec.columns).std())
    assert hidden(spec, rows)[3] == is_hidden


def test_surrogate_with_little_noise_is_near_the_rows():
    """A cell that noise hides has about its rows, and a group without rows hardly any."""
    few = ~((LARGE.s == 1) & (LARGE.y > 0)) | (np.arange(4000) % 50 == 0)
    for rows, hidden in ((LARGE, ()), (part(LARGE, few), ((1, 1.0),)),
                         (part(LARGE, LARGE.s == 0), ((1, -1.0), (1, 1.0)))):  # fmt: skip
        found = made_of(rows, epsilon=20.0)
        assert found.hidden == hidden
        assert found.rate_error < 0.02
        assert found.records.size + 3 * len(found.s) <= most_numbers(SCHEMA)
        for s, y in product((0, 1), (-1.0, 1.0)):
            real, here = rows.x[(rows.s == s) & (rows.y == y)], (found.s == s) & (found.y == y)
            x, weight = found.rows(SCHEMA).x[here], found.weight[here]
            assert weight.sum() == pytest.approx(len(real), abs=12)
            if len(real) > 50:
                covariance = np.cov(x.T, bias=True, aweights=weight)
                np.testing.assert_allclose(weight @ x / weight.sum(), real.mean(axis=0), atol=0.05)
                np.testing.assert_allclose(covariance, np.cov(real.T, bias=True), atol=0.03)


def test_largest_surrogate_has_the_most_numbers_that_are_kept(monkeypatch):
    monkeypatch.setattr("synthfair.surrogate.records.MAX_RECORDS", 500)
    found = made_of(epsilon=20.0)
    assert 0 <= most_numbers(SCHEMA) - found.records.size - 3 * len(found.s) <= 16


def test_noisy_tables_bring_margins_nearer_to_the_rows():
    spec, found = SurrogateSpec(private(), SCHEMA), sums_of(LARGE, private(), SCHEMA, seeded(0))
    sd, of = spec.sd("histograms"), found.margins.coarse[0]
    alone = make_margins(found.histograms, found.margins.strata, spec.columns, step=0.0, sd=sd)
    exact = histograms(spec.columns, 2).of(LARGE, abs).reshape(4, -1)[:, : len(of)] @ one_hot(of)
    far, near = (np.abs(margins.rows[0] - exact).sum() for margins in (alone, found.margins))
    assert near < 0.9 * far


def test_rows_of_another_precision_are_refused():
    with pytest.raises(InputError, match="float32"):
        made_of(LARGE._replace(x=LARGE.x.astype(np.float32)))
