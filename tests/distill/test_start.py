import numpy as np
import pytest
from builders import make_schema, make_table

from synthfair.data.encode import encode
from synthfair.distill.problem import choose_start
from synthfair.errors import InputError
from synthfair.release.settings import DistillConfig

REAL = encode(make_table(), make_schema())


def start(real=REAL, **settings):
    config = DistillConfig(**{"group_input": True} | settings)
    return choose_start(config, real, n_groups=2)


def counts(s, y):
    return {(g, v): int(np.sum((s == g) & (y == v))) for g in (0, 1) for v in (-1, 1)}


def test_balanced_has_equally_many_of_each_pair():
    chosen = start(n_synthetic=40)
    assert set(counts(chosen.s, chosen.y).values()) == {10}


def test_default_is_200_of_each_pair():
    assert set(counts(*start()[1:]).values()) == {200}


def test_copy_takes_the_real_groups_and_labels():
    chosen = start(labels="copy")
    np.testing.assert_array_equal(chosen.s, REAL.s)
    np.testing.assert_array_equal(chosen.y, REAL.y)


@pytest.mark.parametrize("labels", ["balanced", "copy"])
@pytest.mark.parametrize("where", ["middle", "normal"])
def test_without_groups_as_inputs_the_start_does_not_depend_on_them(labels, where):
    """Not even the order of labels does; as many rows as with them, half of each label."""
    settings = {"labels": labels, "start": where, "group_input": False}
    one, two = start(**settings), start(real=REAL._replace(s=1 - REAL.s), **settings)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not one.s.any()
    share = {"balanced": 0.5}.get(labels, np.mean(REAL.y > 0))
    assert np.mean(one.y > 0) == pytest.approx(share, abs=1 / len(one.y))
    assert len(one.y) == (len(REAL.y) if labels == "copy" else 800)


@pytest.mark.parametrize(("where", "low", "high"), [("range", 0, 1), ("middle", 0.25, 0.75)])
def test_public_starts_with_balanced_labels_read_nothing_of_the_real_rows(where, low, high):
    other = encode(make_table(n=77, seed=9), make_schema())
    one, two = start(n_synthetic=400, start=where), start(n_synthetic=400, start=where, real=other)
    for mine, theirs in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert low <= one.x.min() < low + 0.01
    assert high - 0.01 < one.x.max() <= high


def test_normal_start_has_the_real_mean_and_spread():
    x = start(n_synthetic=40_000, start="normal").x
    standard_error = REAL.x.std(axis=0) / 200
    assert (np.abs(x.mean(axis=0) - REAL.x.mean(axis=0)) < 5 * standard_error).all()
    np.testing.assert_allclose(x.std(axis=0), REAL.x.std(axis=0), rtol=0.03)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"n_synthetic": 42}, "n_synthetic = 42.*multiple of 4"),
        ({"n_synthetic": 41, "group_input": False}, "n_synthetic = 41.*of 2, the number of labels"),
        (
            {"n_synthetic": 8, "labels": "copy"},
            "n_synthetic = 8.*must be the number of real rows, 120",
        ),
    ],
)
def test_sizes_that_do_not_split(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        start(**settings)
