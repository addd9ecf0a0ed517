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
from membership_audit import DELTA, EPSILON, audited_epsilon
from scipy.stats import chi2

from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.errors import InputError
from synthfair.privacy import mechanism
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.mechanism import NoisySum, PrivateChoice
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBER, MISSING = Numeric(lower=-3.0, upper=5.0), Numeric(lower=0.0, upper=1e4, missing="category")
TWO, FOUR = (
    Categorical(categories=("a", "b")),
    Categorical(categories=tuple("abc"), missing="category"),
)


def small(*columns):
    features = {f"c{i}": column for i, column in enumerate(columns)}
    return Schema(name="any", label="y", positive=1, sensitive="s", columns=features | ROLES)


SCHEMAS = [small(NUMBER), small(TWO, FOUR), small(NUMBER, TWO, MISSING), small(MISSING, FOUR)]


def private(**changes):
    return SurrogateConfig(**{"epsilon": 1.0, "delta": 1e-5} | changes)


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


class Asked(NoisySum):
    """Notes each exact sum, and releases the same whatever it is."""

    exact: dict = {}  # noqa: RUF012 - shared on purpose

    def release(self, total):
        Asked.exact[self._mechanism.name] = total.astype(object)
        return np.full(total.shape, 100.0)


class Scored(PrivateChoice):
    """Notes scores, and chooses the first."""

    def choose(self, scores):
        Asked.exact.setdefault("tree", []).append(scores)
        return 0


def steep(rows, weight, n_problems, *, n_groups, rng):
    """Models that saturate all rates at the corners of the first feature."""
    theta = np.zeros(rows.x.shape[1] + n_groups)
    theta[[0, -1]] = 2000, -1000
    return np.tile(theta, (n_problems, 1))


@pytest.fixture
def _replayed(monkeypatch):
    replay(monkeypatch)


def replay(patch):
    patch.setattr("synthfair.surrogate.sums.NoisySum", Asked)
    patch.setattr("synthfair.surrogate.sums.PrivateChoice", Scored)
    patch.setattr("synthfair.surrogate.records.self_play", steep)


def asked(rows, schema, config):
    """Exact sums and scores by mechanism, where all that was released before is the same."""
    Asked.exact = {}
    sums_of(rows, config, schema)
    steps = {m.name: m.grid for m in make_guarantee(config, schema).mechanisms}
    return {
        name: np.concatenate(found) if name == "tree" else (found, steps[name])
        for name, found in Asked.exact.items()
    }


def change(one, other, name):
    """Largest, of scores; Euclidean, of sums."""
    if name == "tree":
        return np.abs(one[name] - other[name]).max()
    (a, step), (b, _) = one[name], other[name]
    return step * np.linalg.norm((a - b).astype(float))


def part(rows, keep):
    return Encoded(*(field[keep] for field in rows))


def joined(a, b):
    return Encoded(*(np.concatenate(both) for both in zip(a, b, strict=True)))


def most(guarantee, name):
    """Of a score, what is left for rounding is not a row's."""
    stated = guarantee.mechanism(name)
    return stated.sensitivity - stated.grid if name == "tree" else stated.sensitivity


@pytest.mark.usefixtures("_replayed")
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: "+".join(s.encoded_names))
@pytest.mark.parametrize(
    ("relation", "before"), [("add_or_remove", 0), ("replace", 1), ("add_or_remove", 5)]
)
def test_the_largest_change_over_all_neighbours_is_the_sensitivity(schema, relation, before):
    """By trying every corner, in every cell, on an empty and on tiny tables."""
    rows, config = corners(schema), private(relation=relation)
    guarantee, base = make_guarantee(config, schema), part(rows, slice(before))
    first = asked(base, schema, config)
    more = [asked(joined(base, part(rows, [i])), schema, config) for i in range(len(rows.y))]
    others = [first] if relation == "add_or_remove" else more
    assert first.keys() == {m.name for m in guarantee.mechanisms}
    for name in first:
        largest = max(change(one, other, name) for one in more for other in others)
        assert largest <= most(guarantee, name) * (1 + 1e-12)
        if relation == "add_or_remove" or name not in ("tree", "column_moments"):
            assert largest == pytest.approx(most(guarantee, name), rel=5e-4)


numbers = st.floats(-1e3, 1e3) | st.sampled_from([1e200, np.inf, -np.inf, np.nan])

any_rows = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        arrays(float, (n, 7), elements=numbers),  # far outside of the schema, too
        arrays(int, n, elements=st.integers(0, 1)),
        arrays(float, n, elements=st.sampled_from([-1.0, 1.0])),
    )
)


@settings(max_examples=25)
@given(rows=any_rows, relation=st.sampled_from(["add_or_remove", "replace"]))
def test_no_row_whatever_it_holds_changes_a_sum_by_more(rows, relation):
    schema, whole, config = make_schema(), Encoded(*rows), private(relation=relation)
    neighbour = part(whole, slice(-1))
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        replay(patch)
        if relation == "replace":
            other = Encoded(1 - whole.x[-1:], 1 - whole.s[-1:], -whole.y[-1:])
            neighbour = joined(neighbour, other)
        one, other = (asked(table, schema, config) for table in (whole, neighbour))
    guarantee = make_guarantee(config, schema)
    for name in one:
        assert change(one, other, name) <= most(guarantee, name) * (1 + 1e-12)


@pytest.mark.usefixtures("_replayed")
def test_a_row_that_is_not_clipped_would_be_found(monkeypatch):
    monkeypatch.setattr(mechanism, "clip_rows", lambda rows, bound: rows)
    row = Encoded(np.full((1, 7), -9.0), np.array([0]), np.array([1.0]))
    found = asked(row, make_schema(), private())
    nothing = asked(part(row, []), make_schema(), private())
    stated = make_guarantee(private(), make_schema()).mechanism("column_moments")
    assert change(found, nothing, "column_moments") > 2 * stated.sensitivity


class Noted(NoisySum):
    """Notes what is released, in steps, and the noise in it as a part of what is stated."""

    noise: dict = {}  # noqa: RUF012 - shared on purpose

    def release(self, total):
        found, stated = super().release(total), self._mechanism
        added = found / stated.grid - total.astype(float)
        assert (found / stated.grid == np.rint(found / stated.grid)).all()
        Noted.noise.setdefault(stated.name, []).append(added / float(stated.steps))
        return found


def not_normal(noise):
    """Whether numbers are another normal than the standard one; one false alarm in 10,000."""
    low, high = chi2.ppf([5e-5, 1 - 5e-5], noise.size)
    return not low < (noise**2).sum() < high


def test_all_sums_have_noise_of_the_deviation_that_is_stated(monkeypatch):
    """In whole steps; noise that is 10 % too small, or missing, is caught."""
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", Noted)
    monkeypatch.setattr("synthfair.surrogate.records.self_play", steep)
    Noted.noise = {}
    rows = encode(make_table(2000), make_schema())
    for seed in range(11):
        sums_of(rows, private(), make_schema(), seeded(seed))
    stated = make_guarantee(private(), make_schema()).mechanisms
    assert Noted.noise.keys() == {m.name for m in stated} - {"tree"}
    for found in Noted.noise.values():
        assert len(found) == 11
        noise = np.concatenate(found)
        assert not not_normal(noise)
        assert len(np.unique(noise)) == noise.size  # each number has its own
    every = np.concatenate([one for found in Noted.noise.values() for one in found])
    assert not_normal(0.9 * every)
    assert not_normal(0.0 * every)


LARGE = encode(make_table(4000), make_schema())


def made_of(rows=LARGE, *, seed=0, **changes):
    config, schema = private(**changes), make_schema()
    sums = sums_of(rows, config, schema, seeded(seed))
    return surrogate_of(sums, SurrogateSpec(config, schema))


class Replayed(TableSums):
    """Releases what was released before, of no rows."""

    def __init__(self, released, spec):
        super().__init__(in_memory(part(LARGE, slice(0))), spec)
        self.left = copy.deepcopy(released)
        self._choose = lambda _: self.left["tree"].pop(0)

    def _released(self, question, whole):
        return self.left[question.name]


def test_all_else_is_a_function_of_the_noisy_sums(monkeypatch):
    """Of what was released; and other noise gives another surrogate."""
    released = {"tree": []}

    class Kept(NoisySum):
        def release(self, total):
            released[self._mechanism.name] = super().release(total)
            return released[self._mechanism.name]

    class Chosen(PrivateChoice):
        def choose(self, scores):
            released["tree"].append(super().choose(scores))
            return released["tree"][-1]

    with monkeypatch.context() as patch:
        patch.setattr("synthfair.surrogate.sums.NoisySum", Kept)
        patch.setattr("synthfair.surrogate.sums.PrivateChoice", Chosen)
        first = made_of()
    spec = SurrogateSpec(private(), make_schema())
    again = surrogate_of(read_sums(Replayed(released, spec), spec), spec)
    for name in ("records", "weight", "s", "y"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    assert not np.array_equal(first.weight, made_of(seed=1).weight)
    exact = surrogate_of(sums_of(LARGE, private(), make_schema(), silent), spec)
    assert not np.array_equal(first.weight, exact.weight)


def test_with_little_noise_it_is_near_the_rows():
    found = made_of(epsilon=100.0)
    rows = found.rows(make_schema())
    for s, y in product((0, 1), (-1.0, 1.0)):
        real, here = LARGE.x[(LARGE.s == s) & (LARGE.y == y)], (rows.s == s) & (rows.y == y)
        x, weight = rows.x[here], found.weight[here]
        assert weight.sum() == pytest.approx(len(real), abs=5)
        np.testing.assert_allclose(
            np.average(x, axis=0, weights=weight), real.mean(axis=0), atol=0.02
        )
        wanted = np.cov(real.T, bias=True)
        np.testing.assert_allclose(np.cov(x.T, bias=True, aweights=weight), wanted, atol=0.015)


def rows_of(found, s, y):
    return found.weight[(found.s == s) & (found.y == y)].sum()


def test_a_cell_that_noise_hides_has_about_its_rows():
    keep = ~((LARGE.s == 1) & (LARGE.y > 0)) | (np.arange(4000) % 50 == 0)
    found, rows = made_of(part(LARGE, keep), epsilon=20.0), part(LARGE, keep)
    assert found.hidden == ((1, 1.0),)
    real = ((rows.s == 1) & (rows.y > 0)).sum()
    assert 10 < real < 50
    assert rows_of(found, 1, 1.0) == pytest.approx(real, abs=9)
    said = r"pair of .* reaches k_min = 50 and \d+, .* a larger epsilon. Lower k_min"
    with pytest.raises(InputError, match=said):
        made_of(part(LARGE, slice(20)), epsilon=20.0)


def test_a_group_without_rows_has_hardly_any():
    """Whether there are some, noise hides; it is named as any other that it hides."""
    found = made_of(part(LARGE, LARGE.s == 0), epsilon=20.0)
    assert found.hidden == ((1, -1.0), (1, 1.0))
    assert rows_of(found, 1, 1.0) + rows_of(found, 1, -1.0) < 9


def test_rows_of_another_precision_are_refused():
    with pytest.raises(InputError, match="float64; these are float32"):
        made_of(LARGE._replace(x=LARGE.x.astype(np.float32)))


AUDITED = small(Numeric(lower=0.0, upper=1.0), TWO)
ALIKE = encode(
    pd.DataFrame(
        {
            "c0": np.tile([0.0, 0.2, 0.9], 400),
            "c1": "a",
            "s": np.repeat(["u", "v"], 600),
            "y": [0, 1] * 600,
        }
    ),
    AUDITED,
)


def outcomes(rows, noise, runs):
    """[runs, k] noisy sums of so many surrogates; those whose layout does not depend on noise."""
    config = private(epsilon=EPSILON, delta=DELTA)
    every = (sums_of(rows, config, AUDITED, noise) for _ in range(runs))
    return np.array([np.hstack([s.histograms, s.moments, s.rates]).ravel() for s in every])


class TooQuiet(NoisySum):
    """Anchors have hardly any noise."""

    def release(self, total):
        found = super().release(total)
        exact = total.astype(float) * self.terms.grid
        return exact + (found - exact) / (50 if self._mechanism.name == "anchors" else 1)


@pytest.mark.slow
def test_an_audit_finds_no_more_than_epsilon_and_finds_noise_that_is_left_out(monkeypatch):
    """By one row more, far outside of the schema; as of fair releases."""
    row = Encoded(np.array([[5000.0, -5000.0]]), np.array([1]), np.array([-1.0]))
    monkeypatch.setattr("synthfair.surrogate.levels.MAX_BINS_PRIVATE", 2)
    monkeypatch.setattr("synthfair.surrogate.records.self_play", steep)
    assert audited_epsilon(outcomes, ALIKE, joined(ALIKE, row)) <= EPSILON
    monkeypatch.setattr("synthfair.surrogate.sums.NoisySum", TooQuiet)
    assert audited_epsilon(outcomes, ALIKE, joined(ALIKE, row)) > EPSILON
