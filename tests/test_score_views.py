"""Counts of scores give the thresholds' metrics and the calibration that the rows give."""

import numpy as np
import pytest
from conftest import make_schema
from score_rows import metrics

from synthfair.config import ServerConfig
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.postprocess.histogram import ScoreCounts, group_score_counts
from synthfair.report.answer import COMPARED
from synthfair.report.scores import THRESHOLDS, at_thresholds, calibration, has_scores


def rows(n_groups=2, n=400):
    rng = np.random.default_rng(n_groups)
    z, s = rng.normal(size=n) * 2, rng.integers(n_groups, size=n)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-z + 0.4 * s)), 1.0, -1.0)
    return Scored(y, z, s, n_groups)


def counted(scored):
    return {f"g={i}": found for i, found in enumerate(group_score_counts(scored))}


@pytest.mark.parametrize("gap", [name for name in COMPARED if name != "accuracy_difference"])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_threshold_is_what_the_rows_with_shifted_scores_give(n_groups, gap):
    scored = rows(n_groups)
    accuracies, gaps, rates = at_thresholds(counted(scored), gap)
    lines = zip(THRESHOLDS, accuracies, gaps, *rates.values(), strict=True)
    for threshold, accuracy, difference, *selected in lines:
        shift = np.log(threshold / (1 - threshold))
        there = scored._replace(score=scored.score - shift)
        found = metrics(there)
        assert accuracy.value == pytest.approx(found["accuracy"])
        assert difference.value == pytest.approx(abs(found[gap]))
        expected = [rate.selection_rate for rate in group_rates(there)]
        assert [rate.value for rate in selected] == pytest.approx(expected)
        assert difference.low <= difference.value <= difference.high


def test_calibration_is_that_of_the_rows():
    scored = rows()
    for group, found in enumerate(counted(scored).values()):
        mine = scored.take(scored.s == group)
        p, hit = 1 / (1 + np.exp(-mine.score)), mine.y > 0
        bins = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
        (ours, whole, stated), error = calibration(found), 0.0
        for one, b in zip(ours, np.unique(bins), strict=True):
            inside = bins == b
            assert (one.predicted, one.observed.value) == pytest.approx(
                (p[inside].mean(), hit[inside].mean()),
                abs=1e-3,  # stored to three digits
            )
            error += inside.mean() * abs(p[inside].mean() - hit[inside].mean())
        assert stated == pytest.approx(error, abs=1e-3)
        assert (whole.predicted, whole.observed.value) == pytest.approx(
            (p.mean(), hit.mean()), abs=1e-3
        )


def test_labels_are_counted_by_group():
    scored = rows(3)
    counted = evaluate_scores(
        {"all": scored}, ServerConfig(resamples=1), schema=make_schema(3)
    ).rows["all"]
    for group, found in enumerate(counted):
        mine = scored.y[scored.s == group]
        assert found == (np.sum(mine < 0), np.sum(mine > 0))


def test_decisions_without_scores_have_no_thresholds():
    signs = rows()._replace(score=np.sign(rows().score))
    assert has_scores(counted(rows()))
    assert not has_scores(counted(signs))
    assert not has_scores(None)


def test_a_group_without_rows_has_an_undefined_gap():
    empty = ScoreCounts((0,) * 20, (0,) * 20, (np.nan,) * 20)
    first, _ = counted(rows()).values()
    _, gaps, _ = at_thresholds({"a": first, "b": empty}, "spd")
    assert all(np.isnan(gap.value) for gap in gaps)
    assert np.isnan(calibration(empty)[-1])
