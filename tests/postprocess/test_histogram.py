"""Histograms, weights that follow from them, and decisions by group: steps and coins."""

import hashlib
from fractions import Fraction
from operator import attrgetter

import hypothesis.strategies as st
import numpy as np
import pytest
from builders import CERTAIN, KEY, MIXED
from hypothesis import given

from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.postprocess import GroupDecision, RowWeights, ScoreHistogram, coins
from synthfair.postprocess.histogram import count_scores, make_weights, require_rows, score_bins
from synthfair.privacy.noise import laplace_variance


def logit(probability):
    return np.log(probability / (1 - probability))


FIELDS = {"schema_hash": "0" * 64, "model": "1" * 64, "groups": ["a", "b"]}


def test_score_bins_are_of_the_probability_and_hold_extremes():
    z = np.array([-1e308, -np.inf, np.nan, logit(0.39), logit(0.41), 1e308, np.inf])
    assert score_bins(z, 10).tolist() == [0, 0, 0, 3, 4, 9, 9]


def test_count_scores_counts_each_row_once_by_group_label_and_bin():
    bins, s, y = np.array([0, 1, 1, 2]), np.array([0, 1, 1, 1]), np.array([-1.0, 1, 1, -1])
    expected = np.zeros((2, 2, 3))
    expected[[0, 1, 1], [0, 1, 0], [0, 1, 2]] = 1, 2, 1
    np.testing.assert_array_equal(count_scores(bins, s, y, 2, 3), expected)


def test_probabilities_are_those_of_the_last_step_at_or_below_the_bin():
    z, s = logit(np.array([0.15, 0.25, 0.65, 0.75, 0.45, 0.55])), np.array([0, 0, 0, 0, 1, 1])
    expected = [0, 0.25, 0.25, 1, 0, 0.5]
    assert GroupDecision(**MIXED).probabilities(z, s).tolist() == expected
    assert GroupDecision(**CERTAIN).decide(z, s).astype(int).tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(("changes", "key"), [
    ({"steps": (((5, 0.5), (5, 0.7)), ())}, "must rise"),
    ({"steps": (((5, 0.5), (6, 0.4)), ())}, "must rise"),
    ({"steps": (((5, 0.5), (10, 0.7)), ())}, "below 10"),
    ({"steps": (((0, 1.0),), ((0, 0.5),)), "key": None}, "key must be"), ({"steps": (((-1, 0.5),), ())}, "steps.0.0.0"),
    ({"steps": (((0, 1.5),), ())}, "steps.0.0.1"), ({"steps": (((0, 0.0),), ())}, "steps.0.0.1"),
    ({"steps": (((0, float("nan")),), ())}, "steps.0.0.1"), ({"steps": (((0, 0.5),),)}, "steps"),
    ({"key": None}, "key must be"), ({"steps": (((0, 1.0),), ())}, "key must be"),
    ({"n_bins": 10**6}, "n_bins"), ({"alpha": 1.0}, "alpha"),
])  # fmt: skip
def test_decision_that_is_none_is_refused(changes, key):
    with pytest.raises(InputError, match=key):
        GroupDecision(**(MIXED | changes))


def test_coins_are_the_first_53_bits_of_a_hash():
    digest = hashlib.sha256(bytes.fromhex(KEY) + "zoë".encode()).hexdigest()
    assert coins(KEY, ["zoë"]).tolist() == [(int(digest[:16], 16) >> 11) / 2**53]


def test_coins_below_the_probability_select():
    ids, s = [str(i) for i in range(800)], np.repeat([0, 1], 400)
    found = GroupDecision(**MIXED).decide(np.full(800, logit(0.6)), s, ids)
    np.testing.assert_array_equal(found, coins(KEY, ids) < np.array([0.25, 0.5])[s])


@given(st.lists(st.integers(1, 99), min_size=12, max_size=12), st.integers(2, 3))
def test_weights_are_those_of_the_papers_from_the_sums_of_all_bins(numbers, n_groups):
    bins = np.array(numbers[: 4 * n_groups]).reshape(n_groups, 2, 2)
    own = {"groups": list("abc"[:n_groups]), "counts": bins.tolist()}
    histogram = ScoreHistogram(**FIELDS | own)
    counts, total = bins.sum(axis=2), bins.sum()
    found = make_weights(histogram, "published").array()
    np.testing.assert_allclose(found, total / (2 * n_groups * counts))
    found = make_weights(histogram, "kamiran_calders").array()
    independent = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    np.testing.assert_allclose(found * counts, independent)


@pytest.mark.parametrize("label", [0, 1])
def test_histogram_counts_must_exceed_three_deviations_of_their_noise(label):
    """The sum of two bins has the variance 2 * 18: three deviations are 18; of four, 25.5."""
    counts = np.full((3, 2, 2), 20)
    counts[1, label] = 16, 3
    origin = {"clients": 3, "surrogates": True, "guarantees": [CLAIM]}
    own = FIELDS | {"groups": ["a", "c", "b"], "variance": 18.0, "origin": origin}
    enough = ScoreHistogram(**own, counts=counts.tolist())
    kept = "schema_hash", "groups", "origin"
    assert attrgetter(*kept)(make_weights(enough, "published")) == attrgetter(*kept)(enough)
    counts[1, label, 1] = 2
    with pytest.raises(InputError, match=rf"'c' and label [{'-+'[label]}]1: counted 18"):
        make_weights(ScoreHistogram(**own, counts=counts.tolist()), "published")
    counts[1, 1 - label] = 4, 3
    with pytest.raises(InputError, match="'c': counted 25"):
        require_rows(ScoreHistogram(**own, counts=counts.tolist()), [(0, 1)])


def protected(claim, variance=0.0, *others):
    return {"variance": variance, "origin": {"clients": 3, "guarantees": [claim, *others]}}


def bins(*first):
    return {"counts": [[[*first], [1, 2]], [[1, 2], [1, 2]]]}


CLAIM = {"epsilon": 1.0, "relation": "add_or_remove", "aggregators": 2}
NOISE = 2 * laplace_variance(Fraction(1))
"""That of the claim."""


FITS = FIELDS | bins(1, 2) | protected(CLAIM, NOISE)
WEIGHTS = make_weights(ScoreHistogram(**FIELDS | bins(1, 2)), "published").model_dump(mode="json")


@pytest.mark.parametrize(("changes", "key"), [
    ({"groups": ["a", "b", "c"]}, "counts must be"), (bins(2**60, 2), "counts.0.0.0"),
    (bins(1), "counts must be"), ({"model": None}, "scores of a model"), ({"variance": -1}, "variance"),
    (protected(CLAIM), "variance"), (protected(CLAIM | {"epsilon": 0.5}, NOISE), "variance"),
    (protected(CLAIM, NOISE, CLAIM | {"epsilon": 0.5}), "variance"),
    (protected(CLAIM | {"relation": "replace"}, NOISE), "variance"),
    (protected(CLAIM | {"aggregators": None}), "variance"),
    (protected({"epsilon": 1.0}), "guarantees.0.relation"),
    (protected({"guarantee": "rho-zCDP"}), "guarantees.0.epsilon"),
    ({"weights": [[1.0, 2.0]]}, "weights"), ({"weights": [[1, 2], [0.0, 1]]}, "weights.1.0"),
])  # fmt: skip
def test_file_of_a_histogram_or_of_weights_that_is_hostile_is_refused(tmp_path, changes, key):
    kind, fits = (RowWeights, WEIGHTS) if "weights" in changes else (ScoreHistogram, FITS)
    kind(**fits).write(tmp_path / "f.json")
    assert kind.read(tmp_path / "f.json") == kind(**fits)
    write_json(tmp_path / "f.json", fits | changes)
    with pytest.raises(InputError, match=key):
        kind.read(tmp_path / "f.json")
