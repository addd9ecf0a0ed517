"""Weights of rows by group and label: their formulas, and their files."""

import json

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.postprocess import RowWeights, ScoreHistogram, make_weights
from synthfair.postprocess.histogram import Origin

COUNTS = np.array([[30, 10], [20, 40], [7, 13]])


def weights_of(counts=COUNTS, method="published", **fields):
    bins = np.reshape(counts, (*np.shape(counts)[:2], -1)).tolist()
    groups = tuple("abc"[: len(bins)])
    about = {"schema_hash": "0" * 64, "model": None, "groups": groups} | fields
    return make_weights(ScoreHistogram(counts=bins, **about), method)


def test_published_weights_give_every_pair_the_same():
    """N / (4 C) for two groups, as printed."""
    np.testing.assert_allclose(weights_of(COUNTS[:2]).array(), 100 / (4 * COUNTS[:2]))
    np.testing.assert_allclose(weights_of().array() * COUNTS, 120 / 6)


def test_kamiran_and_calders_weights_make_group_and_label_independent():
    weighted = weights_of(method="kamiran_calders").array() * COUNTS
    independent = np.outer(COUNTS.sum(axis=1), COUNTS.sum(axis=0)) / 120
    np.testing.assert_allclose(weighted, independent)


def test_weights_are_of_the_sums_of_all_bins():
    bins = np.random.default_rng(0).multinomial(50, np.full(4, 0.25), (2, 2))
    for method in ("published", "kamiran_calders"):
        many = weights_of(bins, method, model="1" * 64)
        assert many.weights == weights_of(bins.sum(axis=2), method).weights


@pytest.mark.parametrize(("count", "variance"), [(0, 0.0), (-3, 1.0), (42, 200.0)])
def test_weights_of_counts_that_are_noise_are_refused(count, variance):
    """A count must be more than three standard deviations, 42.4 of the last."""
    with pytest.raises(InputError, match=f"'b'.*counted {count}"):
        weights_of([[90, 80], [70, count]], variance=variance)
    assert weights_of([[90, 80], [70, 43]], variance=200.0)


def test_weights_are_read_as_they_were_written(tmp_path):
    found = weights_of(origin=Origin(clients=2, guarantees=(None,)))
    found.write(tmp_path / "w.json")
    assert RowWeights.read(tmp_path / "w.json") == found


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"weights": [[1.0, 2.0]]}, "weights"),
        ({"weights": [[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]]}, "weights.1.0"),
        ({"weights": [[1.0, "2"], [1.0, 1.0], [1.0, 1.0]]}, "weights.0.1"),
        ({"format": "synthfair-histogram/1"}, "format"),
        ({"more": 1}, "more"),
        (None, "w.json"),
    ],
)
def test_weights_file_that_is_none_is_refused(tmp_path, changes, key):
    path = tmp_path / "w.json"
    weights_of().write(path)
    document = json.loads(path.read_text())
    path.write_text("[" * 100_000 if changes is None else json.dumps(document | changes))
    with pytest.raises(InputError, match=key):
        RowWeights.read(path)
