"""Private surrogates: what one row can change, the noise, and that all else is made of noisy sums."""

import copy
from itertools import product

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, silent
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.mechanism import NoisySum, PrivateChoice
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import TooFewRowsError, find_margins, read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums, histograms

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBER, MISSING = Numeric(lower=-3.0, upper=5.0), Numeric(lower=0.0, upper=1e4, missing="category")
TWO = Categorical(categories=("a", "b"))
FOUR = Categorical(categories=tuple("abc"), missing="category")


def small(*columns):
    features = {f"c{i}": column for i, column in enumerate(columns)}
    return Schema(name="any", label="y", positive=1, sensitive="s", columns=features | ROLES)


SCHEMAS = [small(NUMBER), small(TWO, FOUR), small(NUMBER, TWO, MISSING), small(MISSING, FOUR)]


def private(**changes):
    return SurrogateConfig(**{"epsilon": 1.0, "delta": 1e-5} | changes)


def part(rows, keep):
    return Encoded(*(field[keep] for field in rows))


def joined(a, b):
    return Encoded(*(np.concatenate(both) for both in zip(a, b, strict=True)))


def corners(schema):
    """One row for each corner of the feature space, in each cell."""

    def values(column):
        bounds = isinstance(column, Numeric)
        allowed = (column.lower, column.upper) if bounds else column.categories
        return [*allowed, None] if column.missing == "category" else list(allowed)

    rows = product(*map(values, schema.columns.values()))
    return encode(pd.DataFrame(rows, columns=list(schema.columns)), schema)


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


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: "+".join(s.encoded_names))
@pytest.mark.parametrize(
    ("relation", "before"), [("add_or_remove", 0), ("replace", 1), ("add_or_remove", 5)]
)
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
ANY_ROWS = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        arrays(float, (n, 7), elements=NUMBERS),  # far outside of the schema, too
        arrays(int, n, elements=st.integers(0, 1)),
        arrays(float, n, elements=st.sampled_from([-1.0, 1.0])),
    )
)


@settings(max_examples=25)
@given(rows=ANY_ROWS, relation=st.sampled_from(["add_or_remove", "replace"]))
def test_sensitivity_holds_whatever_a_row_has(rows, relation):
    schema, whole, config = make_schema(), Encoded(*rows), private(relation=relation)
    neighbour = part(whole, slice(-1))
    with np.errstate(all="ignore"):
        if relation == "replace":
            other = Encoded(1 - whole.x[-1:], 1 - whole.s[-1:], -whole.y[-1:])
            neighbour = joined(neighbour, other)
        one, other = (exact_sums(table, schema, config) for table in (whole, neighbour))
    for stated in make_guarantee(config, schema).mechanisms:
        assert change(one, other, stated) <= 1 + 1e-12


def is_standard(noise):
    """Whether the variance may be 1; a false alarm once in 1,000,000."""
    low, high = chi2.ppf([5e-7, 1 - 5e-7], noise.size)
    return low < (noise**2).sum() < high


def test_noise_of_each_sum_is_what_is_stated(monkeypatch):
    """In whole steps; noise that is 10 % too small, or missing, is caught."""
    noise = {}

    class Noted(NoisySum):
        def release(self, total):
            found, stated = super().release(total), self._mechanism
            steps = found / stated.grid
            assert (steps == np.rint(steps)).all()
            noise.setdefault(stated.name, []).append((steps - total.astype(float)) / stated.steps)
            return found

    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", Noted)
    monkeypatch.setattr("synthfair.surrogate.records.self_play", steep)
    rows = encode(make_table(2000), make_schema())
    for seed in range(11):
        sums_of(rows, private(), make_schema(), seeded(seed))
    stated = make_guarantee(private(), make_schema()).mechanisms
    assert noise.keys() == {mechanism.name for mechanism in stated} - {"tree"}
    every = {name: np.concatenate(found).astype(float) for name, found in noise.items()}
    for values in every.values():
        assert is_standard(values)
        assert not is_standard(0.5 * values)
        assert len(np.unique(values)) == values.size  # each number has its own
    assert not is_standard(0.9 * np.concatenate([*every.values()]))


LARGE = encode(make_table(4000), make_schema())


def made_of(rows=LARGE, *, seed=0, **changes):
    config, schema = private(**changes), make_schema()
    return surrogate_of(sums_of(rows, config, schema, seeded(seed)), SurrogateSpec(config, schema))


class Kept(TableSums):
    """Keeps what is released; or, given that, releases it again, of no rows."""

    def __init__(self, spec, noise, released=None):
        super().__init__(
            in_memory(LARGE if released is None else part(LARGE, slice(0))), spec, noise
        )
        self.released, choose = {"tree": []} if released is None else released, self._choose
        self.replays, self.left = released is not None, copy.deepcopy(self.released["tree"])

        def chosen(scores):
            self.released["tree"].append(choose(scores))
            return self.released["tree"][-1]

        self._choose = (lambda _: self.left.pop(0)) if self.replays else chosen

    def _released(self, statistic, whole):
        if not self.replays:
            self.released[statistic.name] = super()._released(statistic, whole)
        return self.released[statistic.name]


def test_surrogate_is_a_function_of_the_noisy_sums():
    """And other noise gives another surrogate."""
    spec = SurrogateSpec(private(), make_schema())
    answers = Kept(spec, seeded(0))
    first = surrogate_of(read_sums(answers, spec), spec)
    again = surrogate_of(read_sums(Kept(spec, seeded(1), answers.released), spec), spec)
    for name in ("records", "weight", "s", "y"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    exact = surrogate_of(sums_of(LARGE, private(), make_schema(), silent), spec)
    assert not any(np.array_equal(first.weight, o.weight) for o in (made_of(seed=1), exact))


def test_surrogate_with_little_noise_is_near_the_rows():
    found = made_of(epsilon=100.0)
    rows = found.rows(make_schema())
    for s, y in product((0, 1), (-1.0, 1.0)):
        real, here = LARGE.x[(LARGE.s == s) & (LARGE.y == y)], (rows.s == s) & (rows.y == y)
        x, weight = rows.x[here], found.weight[here]
        assert weight.sum() == pytest.approx(len(real), abs=5)
        np.testing.assert_allclose(weight @ x / weight.sum(), real.mean(axis=0), atol=0.02)
        covariance = np.cov(x.T, bias=True, aweights=weight)
        np.testing.assert_allclose(covariance, np.cov(real.T, bias=True), atol=0.015)


@pytest.mark.parametrize(("rows", "is_hidden"), [(49, True), (50, False)])
def test_cell_below_k_min_is_hidden_and_alone_refused(rows, is_hidden):
    """Where noise is less than that; of exact numbers."""
    spec = SurrogateSpec(private(epsilon=100.0, k_min=50), make_schema())
    few = (LARGE.s == 1) & (LARGE.y > 0)
    few[np.flatnonzero(few)[rows:]] = False

    def hidden(mask):
        answers = TableSums(in_memory(part(LARGE, mask)), spec, silent)
        (counts,) = answers.sums(histograms(spec.columns, 2))
        return find_margins(answers, counts.reshape(4, -1), spec).strata.hidden.tolist()

    assert hidden(few | (LARGE.s == 0)) == [False, False, True, is_hidden]
    if is_hidden:
        with pytest.raises(TooFewRowsError, match="k_min = 50"):
            hidden(few)
    else:
        assert hidden(few) == [True, True, True, False]


def test_cell_that_noise_hides_has_about_its_rows():
    """Whether a group has rows, noise hides, too."""
    keep = ~((LARGE.s == 1) & (LARGE.y > 0)) | (np.arange(4000) % 50 == 0)
    found, real = made_of(part(LARGE, keep), epsilon=20.0), part(LARGE, keep)
    count = ((real.s == 1) & (real.y > 0)).sum()
    assert found.hidden == ((1, 1.0),)
    assert found.weight[(found.s == 1) & (found.y > 0)].sum() == pytest.approx(count, abs=9)
    empty = made_of(part(LARGE, LARGE.s == 0), epsilon=20.0)
    assert empty.hidden == ((1, -1.0), (1, 1.0))
    assert empty.weight[empty.s == 1].sum() < 9


def test_rows_of_another_precision_are_refused():
    with pytest.raises(InputError, match="float32"):
        made_of(LARGE._replace(x=LARGE.x.astype(np.float32)))
