"""Rates and gaps between groups, against NumPy."""

import fairlearn.metrics as fl
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from score_rows import metrics

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored, group_rates, statistical_parity_difference


@st.composite
def scored_rows(draw):
    """Groups may have one row or none; scores may be 0; decisions may be drawn."""
    n_groups, n = draw(st.integers(2, 4)), draw(st.integers(1, 25))
    y, score, s, chance = (
        np.array(draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)))
        for values in ((-1.0, 1.0), (-2.0, -0.0, 0.0, 0.3, 1.5), range(n_groups), (0.0, 0.3, 1.0))
    )
    return Scored(y, score, s, n_groups, draw(st.sampled_from([None, chance])))


ALONE = Scored(np.ones(2), np.array([1.0, 0.0]), np.arange(2))
"""One row a group, and none with the negative label."""
THREE = Scored(np.ones(6), np.array([1.0, -1, 1, 1, -1, 1]), np.array([0, 0, 1, 1, 2, 2]), 3)
"""Rates of 1/2, 1 and 1/2."""

any_rows = given(scored_rows())


def rates_of(rows):
    """Number, selected, selected of y = +1 and of y = -1, wrong; a line of each group."""
    chance, found = rows.probability, []
    chance = (rows.score > 0).astype(float) if chance is None else chance
    wrong = np.where(rows.y == 1, 1 - chance, chance)
    for group in range(rows.n_groups):
        mine = rows.s == group
        amongs = mine & (rows.y == 1), mine & (rows.y == -1)
        parts = chance[mine], *(chance[among] for among in amongs), wrong[mine]
        found.append([mine.sum(), *(part.mean() if len(part) else np.nan for part in parts)])
    return np.array(found)


def gap_of(rates):
    """Second minus first; of more, the largest minus the smallest; unknown where one is."""
    return rates[1] - rates[0] if len(rates) == 2 else np.max(rates) - np.min(rates)


@any_rows
@example(ALONE)
@example(THREE)
def test_group_rates_and_metrics_of_any_rows_are_numpys(rows):
    np.testing.assert_allclose(np.array(group_rates(rows)), rates_of(rows), atol=1e-12)
    size, selected, hits, false, wrong = rates_of(rows).T
    covariances = [np.cov(rows.s == g, rows.score, bias=True)[0, 1] for g in range(rows.n_groups)]
    expected = {
        "accuracy": 1 - np.nansum(wrong * size) / len(rows.y),
        "spd": gap_of(selected),
        "selection_ratio": np.min(selected) / np.max(selected) if np.max(selected) else np.nan,
        "equal_opportunity_difference": gap_of(hits),
        "equalized_odds_difference": np.max(np.abs([gap_of(hits), gap_of(false)])),
        "covariance": covariances[1] if rows.n_groups == 2 else np.max(np.abs(covariances)),
    }
    assert metrics(rows) == pytest.approx(expected, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_gaps_are_those_of_fairlearn(n_groups):
    y, score, s = np.random.default_rng(0).normal(size=(3, 300))
    y, decided, s = np.sign(y), np.sign(score + (s > 0.3)), np.digitize(s, [0, 1][: n_groups - 1])
    names = {"spd": "demographic_parity_difference", "selection_ratio": "demographic_parity_ratio"}
    for name, value in metrics(Scored(y, decided, s, n_groups)).items():
        if peer := getattr(fl, names.get(name, name), None):
            assert abs(value) == pytest.approx(peer(y, decided, sensitive_features=s))


@any_rows
def test_scored_rows_taken_or_regrouped_are_the_rows_themselves(rows):
    index = np.arange(len(rows.y))[::-2]
    for part, taken in zip(rows, rows.take(index), strict=True):
        np.testing.assert_array_equal(taken, part[index] if isinstance(part, np.ndarray) else part)
    grouping = (0, -1, 2, 0)[: rows.n_groups]
    kept, regrouped = np.flatnonzero(rows.s != 1), rows.grouped(grouping)
    np.testing.assert_array_equal(regrouped.s, [grouping[s] for s in rows.s[kept]])
    np.testing.assert_array_equal(regrouped.selected, rows.take(kept).selected)
    assert regrouped.n_groups == max(grouping) + 1
    assert rows.grouped(range(rows.n_groups)) == rows


def spd(decisions, groups, **positive):
    return statistical_parity_difference(None, decisions, sensitive_features=groups, **positive)


WORDS = ["denied", "granted", "granted", "granted"]


@pytest.mark.parametrize(("decisions", "groups", "positive", "expected"), [
    ([0, 0, 0, 1], "ffmm", 1, 0.5), ([0, 0, 0, 1], "mmff", 1, -0.5),
    ([False, False, True, True], "ffmm", 1, 1.0), ([0, 0, 0, 0], "ffmm", 1, 0.0),
    (WORDS, "ffmm", "granted", 0.5), (WORDS, "ffmm", "denied", -0.5),
    ([1, 0, 0, 0, 1, 1, 0], "aabbcca", 1, 1.0), ([1, 1, 1, 0, 1], "abbcc", 1, 0.5),
    ([0, 1], ["None", "nan"], 1, 1.0), ([0, 1], pd.DataFrame({"s": ["a", "b"]}), 1, 1.0),
    (np.array([0, 1], object), [0, 1], 1, 1.0), ([1, 0], "aa", 1, np.nan),
])  # fmt: skip
def test_spd_is_of_the_last_group_minus_the_first(decisions, groups, positive, expected):
    groups = list(groups) if isinstance(groups, str) else groups
    assert spd(decisions, groups, pos_label=positive) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("decisions", "groups", "positive", "key"), [
    (["yes", "no"], "ab", "Yes", "pos_label"), ([1, 0], "ab", "1", "pos_label"),
    ([0, 1, 2], "aab", 1, "y_pred"), ([1, 0], ["a", None], 1, "sensitive_features"),
    ([1, 0], [0.0, np.nan], 1, "sensitive_features"), ([1.0, np.nan], "ab", 1, "y_pred"),
    ([1, 0, 1], "ab", 1, "y_pred"),
])  # fmt: skip
def test_spd_of_what_would_hide_a_gap_is_refused(decisions, groups, positive, key):
    with pytest.raises(InputError, match=key):
        spd(decisions, list(groups), pos_label=positive)
