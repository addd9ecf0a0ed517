"""What is summed: the bounds of a client's part, on which the guarantee rests, and its noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from secure_task import COUNTS, PLAIN, ROWS, parties

from synthfair.errors import InputError
from synthfair.privacy.noise import discrete_gaussian, discrete_laplace, seeded
from synthfair.secure import ClippedVectors, GroupCounts, make_uploads, noisy_sum
from synthfair.secure.summands import MAX_FALSE_ALARM

SHORT = ClippedVectors(length=4, clip=10.0, step=1.0, rho=1.0)  # norm at most 11 = 10 + sqrt(4) / 2
BINNED = GroupCounts(**PLAIN | {"model": "1" * 64, "bins": 2})
MOST = ROWS.entries[1]
LEAST = np.iinfo(np.int64).min  # which is its own absolute value
FINE = ClippedVectors(length=100, clip=1.0, step=1e-3, rho=1.0)


@pytest.mark.parametrize(("what", "vector"), [
    (COUNTS, [1000, 0, 0, 0]), (SHORT, [11, 0, 0, 0]), (ROWS, [-MOST, MOST, 0, 0]),
])  # fmt: skip
def test_part_at_its_bounds_passes(what, vector):
    group = parties(what)
    noisy_sum([np.array(vector)], what)
    assert len(make_uploads(group.task, np.array(vector), group.keys[0])) == 2


BEYOND = [
    (COUNTS, [-1, 0, 0, 0], "from -1 to 0; must be from 0 to 1000"),
    (COUNTS, [LEAST, 0, 0, 0], "from 0"), (COUNTS, [0, 0, 0, 1001], "from 0 to 1000"),
    (BINNED, [500, 1, 0, 500] + [0] * 4, "1001 rows; must be at most 1000"),
    (SHORT, [11, 1, 0, 0], "121"), (SHORT, [-6, 6, -6, 6], "121"), (SHORT, [LEAST, 0, 0, 0], "121"),
    (ROWS, [0, 0, 0, -MOST - 1], f"{-MOST - 1} to 0; must be from {-MOST} to {MOST}"),
    (ROWS, [0, 0, 0, MOST + 1], f"{-MOST} to {MOST}"),
    (ROWS, [LEAST, 0, 0, 0], f"{-MOST} to {MOST}"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "vector", "bound"), BEYOND)
def test_part_beyond_its_bounds_is_neither_summed_nor_sent(what, vector, bound):
    group, vector = parties(what), np.array(vector)
    with pytest.raises(InputError, match=bound):
        noisy_sum([vector], what)
    with pytest.raises(InputError, match=bound):
        make_uploads(group.task, vector, group.keys[0])


def test_norm_beyond_floating_point_is_exact():
    """Of about 2^78, floats miss what is below 2^25; here it is less than 2^21."""
    what = ClippedVectors(length=2, clip=2.0**39, step=1.0, rho=1.0)
    edge = math.isqrt(what.largest_square)
    rest = math.isqrt(what.largest_square - edge**2)
    what.require_part(np.array([edge, rest]))
    with pytest.raises(InputError, match="norm"):
        what.require_part(np.array([edge, rest + 1]))


@given(seed=st.integers(0, 2**32), size=st.floats(1e-3, 1e100), equal=st.booleans())
def test_vector_is_clipped_and_rounded_within_the_sensitivity(seed, size, equal):
    """At random; and at the worst rounding, every entry half a step up."""
    random = np.random.default_rng(seed).normal(size=100)
    vector = np.full(100, 0.0995 + 5e-4) * np.sign(random) if equal else size * random
    integers = FINE.integers(vector)
    assert (integers.astype(object) ** 2).sum() <= FINE.largest_square
    wanted = vector / max(np.linalg.norm(vector), 1.0)
    assert integers * FINE.step == pytest.approx(wanted, abs=6e-4)


def test_vector_without_a_norm_is_0():
    for entry in (np.nan, np.inf):
        assert not FINE.integers(np.full(100, entry)).any()


def test_noise_has_the_variance_of_the_sensitivity():
    assert FINE.variance == Fraction(1005**2, 2)  # (1000 + sqrt(100) / 2)^2 / (2 rho)
    assert FINE.model_copy(update={"relation": "replace"}).variance == 4 * FINE.variance
    assert not FINE.model_copy(update={"rho": None}).noise().any()
    assert GroupCounts(**PLAIN | {"epsilon": 0.1}).scale == 10  # the decimal, not its float
    users = GroupCounts(**PLAIN | {"unit": "user", "rows_per_user": 4})
    drawn = (what.noise(seeded(0)).tolist() for what in (users, FINE))
    assert next(drawn) == discrete_laplace(Fraction(4), 4, seeded(0)).tolist()
    assert next(drawn) == discrete_gaussian(FINE.variance, 100, seeded(0)).tolist()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_noise_bound_of_counts_holds_and_is_not_idle(epsilon):
    """Against the distribution of the sum of two, by convolution."""
    what = GroupCounts(**PLAIN | {"epsilon": epsilon})
    k = np.arange(-3000, 3001)
    one = np.exp(-epsilon * np.abs(k)) * np.tanh(epsilon / 2)
    tail = 2 * np.cumsum(np.convolve(one, one)[::-1])[::-1]  # P(|sum| >= k) from k = 1
    bound, middle = what.noise_bound(2), 6000
    assert tail[middle + bound + 1] <= MAX_FALSE_ALARM / what.length < tail[middle + bound // 2]


def test_noise_bound_of_vectors_holds_and_is_not_idle():
    bound, spread = FINE.noise_bound(3), stats.norm(scale=(3 * FINE.variance) ** 0.5)
    assert spread.sf(bound) * 200 <= MAX_FALSE_ALARM < spread.sf(0.9 * bound) * 200
    assert FINE.entries == (-1005, 1005)
