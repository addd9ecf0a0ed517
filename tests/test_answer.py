"""The answer that a report leads with is right, and says so where it cannot tell."""

import json

import numpy as np
import pytest
from report_runs import copied, edited, write_run
from scipy.stats import binomtest

from synthfair.fairness.metrics import Metric
from synthfair.report.answer import RULE_OF_THUMB, answer, verdict
from synthfair.report.figures import answer_figure
from synthfair.report.overview import overviews
from synthfair.report.page import write_report
from synthfair.report.results import read_results

HEADER = "rho,accuracy,gap,test_accuracy,test_gap,converged\n"


def asked(folders, max_gap=None):
    (overview,) = overviews(read_results(folders))
    return answer(overview, max_gap)


def metric(value, low, high):
    return {"value": value, "low": low, "high": high}


@pytest.fixture
def plain(tmp_path):
    """Without a penalty: accuracy 0.9, gap 0.2."""
    run = write_run(tmp_path / "run")
    changes = {"accuracy": metric(0.9, 0.88, 0.92), "spd": metric(0.2, 0.15, 0.25)}
    return edited(run, tmp_path / "plain", constant_classifier={"accuracy": 0.7}, **changes)


@pytest.fixture
def fair(plain, tmp_path):
    """With one: accuracy 0.85, gap -0.03 with an interval around 0."""
    folder = copied(plain, tmp_path / "fair", rho_o=30.0)
    changes = {"accuracy": metric(0.85, 0.83, 0.87), "spd": metric(-0.03, -0.08, 0.02)}
    return edited(folder, folder, **changes)


@pytest.mark.parametrize(
    ("limit", "found"), [(0.1, "yes"), (0.08, "yes"), (0.05, "cannot tell"), (0.0, "cannot tell")]
)
def test_the_verdict_is_that_of_the_whole_interval(fair, limit, found):
    assert asked([fair], limit).verdict == found


def test_a_gap_that_is_surely_too_large_is_one(plain):
    assert asked([plain], 0.1).verdict == "no"
    assert asked([plain], 0.15).verdict == "cannot tell"
    assert verdict(Metric(np.nan, np.nan, np.nan), 0.1) == "not measured"


def test_sentence_and_cost_are_made_of_the_numbers(plain, fair):
    found = asked([plain, fair], 0.1)
    assert found.cost is not None
    # The accuracies' intervals are 0.02 to each side: hypot(0.02, 0.02) of their difference.
    assert found.cost == pytest.approx((0.05, 0.0217, 0.0783), abs=1e-4)
    assert found.sentence == (
        "On 120 test rows the selection rates of town=a and town=b differ by 0.030 (95 %"
        " interval 0.000 to 0.080), where at most 0.1 is fair enough; accuracy is 0.850 (95 %"
        " interval 0.830 to 0.870); fairness costs 0.050 (95 % interval 0.022 to 0.078);"
        " one decision for everybody has 0.700."
    )


def test_a_gain_is_no_loss_and_a_small_one_may_be_chance(plain, fair):
    edited(fair, fair, accuracy=metric(0.91, 0.89, 0.93))
    said = asked([fair, plain]).sentence
    assert "fairness costs -0.010 (95 % interval -0.038 to 0.018), so it may be chance" in said


def test_without_a_reference_no_cost_is_made_up(plain, fair, tmp_path):
    alone = asked([fair])
    assert alone.cost is None
    assert "what fairness costs is not known" in alone.sentence
    assert any("run without a penalty" in note for note in alone.notes)
    other = copied(plain, tmp_path / "other", steps=7)  # unlike in more than the weight
    assert asked([fair, other]).cost is None
    assert "trained without a fairness penalty or constraint" in asked([plain]).sentence


def test_the_cost_is_known_from_a_frontier(fair):
    (fair / "frontier.csv").write_text(HEADER + "0,0.9,0.2,0.9,0.2,1\n10,0.8,0.1,0.8,0.1,1\n")
    found = asked([fair])
    interval = binomtest(108, 120).proportion_ci()
    low = 0.05 - np.hypot(0.9 - interval.low, 0.02)
    assert found.cost is not None
    assert found.cost[:2] == pytest.approx((0.05, low), abs=1e-4)
    (overview,) = overviews(read_results([fair]))
    (series,) = (one for one in answer_figure(found, overview, "spd").series if one.hollow)
    assert series.x == [0.2]
    assert series.y[0] == pytest.approx((0.9, interval.low, interval.high), abs=1e-6)


def test_the_limit_is_the_users_then_the_runs_then_the_rule_of_thumb(fair, tmp_path):
    wished = copied(fair, tmp_path / "wished", max_gap=0.07)
    assert asked([fair]).limit == RULE_OF_THUMB
    assert asked([wished]).limit == 0.07
    assert asked([wished], 0.2).limit == 0.2
    assert "--max-gap" in asked([fair]).notes[0]


def test_a_missed_gap_is_said_of_every_run_whatever_the_limit(plain, fair, tmp_path):
    wished = copied(fair, tmp_path / "wished", max_gap=0.07)
    missed = copied(plain, tmp_path / "missed", max_gap=0.05)
    said = "0.200 (95 % interval 0.150 to 0.250), and at most 0.05 was asked for."
    for folders, limit in (([wished, missed], None), ([missed], 0.3)):
        assert [note.endswith(said) for note in asked(folders, limit).notes].count(True) == 1
    assert not any("was asked for" in note for note in asked([wished]).notes)
    assert "differ by 0.200 (95 % interval" in asked([missed]).sentence  # the limit is its own


@pytest.mark.parametrize(("limit", "needed"), [(0.19, True), (0.21, False)])
def test_that_no_penalty_was_needed_is_said(plain, fair, limit, needed):
    said = "No penalty was needed: without one the gap is 0.200 (95 % interval 0.150 to 0.250)."
    assert (said in asked([plain, fair], limit).notes) is not needed


def test_that_the_weight_found_is_0_is_said(fair, tmp_path):
    wished = edited(copied(fair, tmp_path / "wished", max_gap=0.07), tmp_path / "zero", rho=0.0)
    assert any(
        "No penalty was needed: without one the gap is 0.030" in n for n in asked([wished]).notes
    )
    edited(wished, wished, rho=2.0)
    assert not any("No penalty" in note for note in asked([wished]).notes)


@pytest.mark.parametrize(
    ("constant", "said"), [(0.87, "not above"), (0.84, "not clearly above"), (0.82, None)]
)
def test_a_model_near_the_constant_classifier_is_named(fair, constant, said):
    """Its accuracy is 0.85, with an interval from 0.83."""
    edited(fair, fair, constant_classifier={"accuracy": constant})
    sentence = asked([fair]).sentence
    near = f"near the constant classifier: its accuracy of 0.850 is {said} the {constant:.3f}"
    assert (near in sentence) is (said is not None)
    assert ("near the constant" in sentence) is (said is not None)


def test_groups_left_out_of_the_gap_are_named(fair):
    rows = {"town=c": {"n": 7, "positive": 3, "negative": 4}}
    rates = json.loads((fair / "metrics.json").read_text())["by_group"]
    rates["town=c"] = rates["town=a"] | {"n": 7}
    edited(fair, fair, by_group=rates, small_groups=rows, min_group_rows=10, rows=None, scores=None)
    found = asked([fair])
    assert "of town=a and town=b differ by 0.030" in found.sentence
    assert "The gap leaves out groups with fewer than 10 test rows that count." in found.notes
    assert "Groups with few test rows, in all or of a label: town=c (7 rows)." in found.notes


def test_several_seeds_give_means_and_say_so(fair, tmp_path):
    twin = copied(fair, tmp_path / "twin", seed=7)
    edited(twin, twin, spd=metric(-0.05, -0.12, 0.02))
    found = asked([fair, twin])
    assert found.gap == pytest.approx((0.04, 0.0, 0.1))
    assert any("Means over 2 runs" in note for note in found.notes)


def test_an_undefined_gap_is_not_measured(fair, tmp_path):
    edited(fair, fair, spd=metric(None, None, None))
    assert asked([fair]).verdict == "not measured"
    write_report(read_results([fair]), tmp_path / "r.html")
    assert "Not measured." in (tmp_path / "r.html").read_text()
