"""The answer that a report leads with is right, and says so where it cannot tell."""

import json
import re

import numpy as np
import pytest
from builders import make_schema, make_table
from report_runs import copied, edited, page_of, tables, write_run

import synthfair as sf
from synthfair.fairness.intervals import LabelCounts
from synthfair.fairness.metrics import Metric, Rates
from synthfair.fairness.target import DEFAULT_FAIR_GAP, Target
from synthfair.metrics_file import Evaluation, GroupingMetrics
from synthfair.report.answer import (
    Plain,
    answer,
    one_label,
    sentence,
    verdict,
)
from synthfair.report.figures import answer_series
from synthfair.report.results import overviews, read_results


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
    ("limit", "found"), [(0.1, "yes"), (0.08, "yes"), (0.05, "probably"), (0.0, "probably not")]
)
def test_the_verdict_is_sure_where_the_whole_interval_is_on_one_side(fair, limit, found):
    assert asked([fair], limit).verdict == found


def test_a_gap_that_is_surely_too_large_is_one(plain):
    assert asked([plain], 0.1).verdict == "no"
    assert asked([plain], 0.15).verdict == "probably not"
    assert verdict(Metric(np.nan, np.nan, np.nan), 0.1) == "not measured"


@pytest.mark.usefixtures("text_only")
def test_sentence_and_cost_are_made_of_the_numbers(plain, fair):
    found = asked([plain, fair], 0.1)
    # The accuracies' intervals are 0.02 to each side: hypot(0.02, 0.02) of their difference.
    assert found.cost == pytest.approx((0.05, 0.0217, 0.0783), abs=1e-4)
    assert found.sentence == (
        f"{found.subject.name} (best of 2): Selection rates of town=a and town=b differ by 0.03 (95 %: 0.00 to"
        " 0.08); at most 0.1 was asked: met. Without a penalty 0.20. Accuracy 0.85, 0.90 without; the majority label for"
        " all has 0.70."
    )
    said = "Fairness costs 0.050 [0.022, 0.078] of accuracy. Without"
    assert said in page_of(plain, fair, max_gap=0.1)


SPD = Metric(0.12, 0.02, 0.24)


def said(  # noqa: PLR0917
    gap=SPD, accuracy=0.9, metric="spd", groups=("women", "men"), by=(), constant=np.nan, **known
):
    """The sentence on a model that decides like a coin, of other numbers."""
    rates = dict.fromkeys(groups, Rates(400, 0.5, 0.5, 0.5, 0.5))
    groupings = {name: GroupingMetrics.model_construct(rates=rates) for name in by}
    run = Evaluation.model_construct(by_group=rates, groupings=groupings, groups_by=by)
    means = gap, Metric(accuracy, np.nan, np.nan), constant
    return sentence(metric, run, means=means, **known)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (0.25, "at most 0.25 was asked: met."),
        (0.15, "at most 0.15 was asked: probably met."),
        (0.05, "at most 0.05 was asked: probably missed."),
        (0.01, "at most 0.01 was asked: missed."),
        (None, "no limit was asked, and the rule of thumb of at most 0.1 is probably missed."),
    ],
)
def test_whether_the_limit_is_met_is_said_with_how_sure_it_is(limit, words):
    assert f"women and men differ by 0.12 (95 %: 0.02 to 0.24); {words}" in said(limit=limit)


def test_what_is_not_known_is_not_said():
    assert "without" not in said().lower()
    assert "majority" not in said()
    plain = Plain(Metric(0.92, 0.9, 0.94), Metric(0.2, 0.1, 0.3))
    assert said(plain=plain).endswith("Without a penalty 0.20. Accuracy 0.90, 0.92 without.")
    assert said(constant=0.87).endswith("Accuracy 0.90; the majority label for all has 0.87.")


@pytest.mark.parametrize(("limit", "needless"), [(0.2, True), (0.1, False), (None, False)])
def test_no_penalty_was_needed_where_a_limit_is_met_without(limit, needless):
    found = said(limit=limit, is_plain=True)
    assert ("No penalty was needed." in found) is needless
    assert ("The model was trained without a penalty." in found) is not needless


def test_a_gap_next_to_its_limit_has_as_many_digits_as_tell_them_apart():
    assert "by 0.052 (95 %" in said(gap=Metric(0.052, 0.0, 0.1), limit=0.05)
    assert "by 0.003 (95 %" in said(gap=Metric(0.003, 0.0, 0.1), limit=0.005)


def test_more_groups_and_other_rates_are_named():
    assert "True positive rates of 3 groups differ by up to 0.12" in said(
        metric="equal_opportunity_difference", groups=("a", "b", "c")
    )
    assert "of groups by sex, and by race differ by up to 0.12" in said(by=("sex", "race"))
    assert "False or" not in said(metric="equalized_odds_difference")


def test_without_labels_or_rows_the_sentence_says_so():
    undefined = Metric(np.nan, np.nan, np.nan)
    found = said(undefined, np.nan, "equal_opportunity_difference")
    assert "True positive rates of women and men cannot be compared: there are no labels." in found
    assert found.endswith("Accuracy is not known without labels.")
    for groups, names in ((("women", "men"), "women and men"), (("men",), "the groups")):
        found = said(undefined, groups=groups)
        assert f"Selection rates of {names} cannot be compared: too few groups have rows" in found


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        # Some bound the difference to the rate of all, so that groups may differ by more.
        (Target(by="tolerance", amounts=(0.02,)), "a tolerance of 0.02 was asked"),
        (Target(by="gap", client_gap=0.05), "at most 0.05 at each client was asked"),
        (Target(by="weight", amounts=(3.0,)), "no limit was asked"),
    ],
)
def test_what_is_asked_in_place_of_a_gap_over_all_rows_is_said(asked, words):
    assert asked.max_gap is None
    found = said(target=asked)
    assert f"; {words}, and the rule of thumb of at most 0.1 is" in found


@pytest.mark.usefixtures("text_only")
def test_a_gain_is_no_loss_and_a_small_one_may_be_chance(plain, fair):
    edited(fair, fair, accuracy=metric(0.91, 0.89, 0.93))
    said = "Fairness costs -0.010 [-0.038, 0.018] of accuracy, so it may be chance"
    assert said in page_of(fair, plain)


@pytest.mark.usefixtures("text_only")
def test_without_a_reference_no_cost_is_made_up(plain, fair, tmp_path):
    alone = asked([fair])
    assert np.isnan(alone.cost.value)
    assert "ithout" not in alone.sentence
    assert "give this report a run without a penalty" in page_of(fair)
    other = copied(plain, tmp_path / "other", steps=7)  # unlike in more than the weight
    assert np.isnan(asked([fair, other]).cost.value)
    assert "The model was trained without a penalty." in asked([plain]).sentence


def test_the_cost_is_known_from_the_servers_own_model_without_a_penalty(plain, fair, tmp_path):
    part = json.loads((plain / "metrics.json").read_text())
    names = ["accuracy", "spd", "equal_opportunity_difference", "equalized_odds_difference"]
    edited(fair, fair, without_penalty={name: part[name] for name in [*names, "covariance"]})
    found = asked([fair])
    assert found.cost == pytest.approx((0.05, 0.0217, 0.0783), abs=1e-4)
    assert "Without a penalty 0.20. Accuracy 0.85, 0.90 without" in found.sentence
    (overview,) = overviews(read_results([fair]))
    (series,) = (one for one in answer_series(found, overview) if one.hollow)
    assert series.x == [Metric(0.2, 0.15, 0.25)]
    assert series.y == [Metric(0.9, 0.88, 0.92)]
    ((_, *rows),) = tables(page_of(fair), "accuracy and gap")
    assert ("no penalty", "0.900 [0.880, 0.920]", "0.200 [0.150, 0.250]") in rows


def test_the_limit_is_the_users_then_the_runs_then_the_rule_of_thumb(fair, tmp_path):
    wished = copied(fair, tmp_path / "wished", max_gap=0.07)
    assert asked([fair]).limit == DEFAULT_FAIR_GAP
    assert asked([wished]).limit == 0.07
    assert asked([wished], 0.2).limit == 0.2


def test_a_missed_gap_is_said(plain, tmp_path):
    missed = copied(plain, tmp_path / "missed", max_gap=0.05)
    assert "at most 0.05 was asked: missed." in asked([missed]).sentence  # the limit is its own


def test_that_the_weight_found_is_0_is_said(fair, tmp_path):
    wished = edited(copied(fair, tmp_path / "wished", max_gap=0.07), tmp_path / "zero", rho=0.0)
    assert "No penalty was needed." in asked([wished]).sentence
    edited(wished, wished, rho=2.0)
    assert "No penalty" not in asked([wished]).sentence


@pytest.mark.parametrize(
    ("constant", "said"), [(0.87, "less than"), (0.84, "not clearly more than"), (0.82, None)]
)
def test_a_model_near_the_constant_classifier_is_named(fair, constant, said):
    """Its accuracy is 0.85, with an interval from 0.83."""
    edited(fair, fair, constant_classifier={"accuracy": constant})
    found = asked([fair]).sentence
    near = f"Accuracy 0.85, {said} the {constant:.2f} of the majority label for all"
    assert (near in found) is (said is not None)


def test_groups_left_out_of_the_gap_are_named(fair):
    rows = {"town=c": {"n": 7, "positive": 3, "negative": 4}}
    rates = json.loads((fair / "metrics.json").read_text())["by_group"]
    rates["town=c"] = rates["town=a"] | {"n": 7}
    edited(fair, fair, by_group=rates, small_groups=rows, min_group_rows=10, rows=None)
    found = asked([fair])
    assert "of town=a and town=b differ by 0.03 (95 %" in found.sentence


@pytest.mark.usefixtures("text_only")
def test_several_seeds_give_means_and_say_so(fair, tmp_path):
    twin = copied(fair, tmp_path / "twin", seed=7)
    edited(twin, twin, spd=metric(-0.05, -0.12, 0.02))
    found = asked([fair, twin])
    assert found.subject.gap_size == pytest.approx((0.04, 0.0, 0.1))
    assert "Means over 2 seeds" in page_of(fair, twin)


def test_the_best_of_several_is_the_most_accurate_within_the_limit(plain, fair, tmp_path):
    both = asked([plain, fair], 0.3)  # the gap of 0.2 is within it
    assert both.subject.accuracy.value == 0.9
    assert "is the most accurate of 2 with a gap within 0.3." in both.why
    assert "No penalty was needed." in both.sentence
    assert asked([plain, fair], 0.1).subject.accuracy.value == 0.85
    # What is surely within the limit goes before what is probably, and more accurate.
    assert asked([plain, fair], 0.22).subject.accuracy.value == 0.85
    none = asked([plain, fair], 0.01)
    assert none.subject.accuracy.value == 0.85
    assert "is the one with the smallest gap; none is within 0.01." in none.why
    # Central training needs all rows in one place, and is not chosen.
    central = edited(plain, tmp_path / "central", method="central", spd=metric(0.01, 0.0, 0.02))
    found = asked([central, fair], 0.1)
    assert found.subject.runs[0].metrics.method == "single_shot"
    assert "best of" not in found.sentence


def lines(folders, limit=None):
    """The texts of the page's tiles."""
    text = page_of(*folders, max_gap=limit)
    parts = re.findall(r"<section><h2>(?:Diff|Acc|Test).*?</h2>(.*?)</section>", text)
    return [tuple(re.findall(r"<p[^>]*>(.*?)</p>", part)) for part in parts]


@pytest.mark.usefixtures("text_only")
def test_the_tiles_have_the_gap_the_accuracy_and_the_rows(plain, fair):
    gap, accuracy, rows = lines([plain, fair], 0.05)
    probably = "Probably within the limit of 0.05", "Without a penalty: 0.200"
    assert gap == ("0.030", "95 %: 0.000 to 0.080", *probably)
    known = "Without a penalty: 0.900", "One decision for all: 0.700"
    assert accuracy == ("0.850", "95 %: 0.830 to 0.870", *known)
    # The upper end is 0.05 from the gap, and the limit 0.02: (5 / 2)^2 times as many rows bring it
    # there, and twice as many surely.
    n = json.loads((fair / "metrics.json").read_text())["n_test"]
    more = float(re.search("If the true gap is this, ([0-9,]+) more", rows[2])[1].replace(",", ""))
    assert more == pytest.approx((2.04 * 6.25 - 1) * n, rel=0.05)
    assert "They show that the gap is within the limit." in lines([fair], 0.1)[2]
    assert "They show that the gap is above the limit." in lines([plain], 0.1)[2]
    for limit in (0.03, 0.0301):
        assert "More than 100 times as many" in lines([fair], limit)[2][2]


@pytest.mark.usefixtures("text_only")
def test_an_undefined_gap_is_not_measured(fair, tmp_path):
    edited(fair, fair, spd=metric(None, None, None))
    assert asked([fair]).verdict == "not measured"
    gap, _, rows = lines([fair])
    assert gap == ("unknown", "Not measured")
    assert len(rows) == 2
    assert "Not measured." in page_of(fair)


# Models that decide like one label for everybody


def run_of(*groups):
    """An evaluation of groups with so many rows that are selected and positive: all four counts."""
    rates, rows = {}, {}
    for i, (refused, false, missed, true) in enumerate(groups):
        n = refused + false + missed + true
        rates[f"g{i}"] = Rates(n, (false + true) / n, np.nan, np.nan, np.nan)
        rows[f"g{i}"] = LabelCounts(refused + false, missed + true)
    return Evaluation.model_construct(by_group=rates, rows={"client": rows})


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([(500, 0, 300, 1), (100, 0, 73, 0)], "everybody (selects 1 of 974)."),
        ([(0, 500, 2, 300), (0, 100, 0, 98)], "everybody (selects 998 of 1,000)."),
        ([(300, 50, 100, 300), (60, 0, 20, 0)], "everybody in g1 (selects 0 of 80)."),
        ([(300, 50, 100, 300), (10, 0, 9, 0)], None),  # too few rows to tell
        ([(300, 50, 100, 300), (80, 0, 0, 0)], None),  # nor is any of them positive
        ([(995, 0, 3, 2)], None),
        ([(60, 20, 20, 60)], None),
    ],
)
def test_who_decides_like_one_label_for_everybody(groups, said):
    found = one_label(run_of(*groups))
    assert found == (said and f"Not usable: it decides like one label for {said}")


def test_nobody_is_told_yes_for_a_model_that_selects_nobody(plain, fair, tmp_path):
    rates = json.loads((fair / "metrics.json").read_text())["by_group"]
    nobody = {"selection_rate": 0.0, "true_positive_rate": 0.0, "false_positive_rate": 0.0}
    run = edited(fair, tmp_path / "nobody", by_group={n: of | nobody for n, of in rates.items()})
    found = asked([run], 0.1)
    assert found.verdict == "not usable"
    assert found.sentence.startswith("Not usable: it decides like one label for everybody (selects")
    page = page_of(run)
    assert re.search(r'data-verdict="not usable">Not usable: it decides', page)
    assert "Yes, by this measure" not in page
    assert re.search(r"<td[^>]*>\s*not usable\s*</td>", page)
    texts = [text for part in lines([run], 0.1) for text in part]
    assert "Not usable" in texts
    assert not any("the limit" in text for text in texts)
    assert asked([run, plain], 0.1).subject.runs[0].folder == plain  # the last choice


def test_next_to_a_constant_there_is_no_yes(fair, tmp_path):
    near = edited(fair, tmp_path / "near", constant_classifier={"accuracy": 0.84})
    found = asked([near], 0.1)
    assert found.verdict == "no better"
    assert found.sentence.endswith(
        "Accuracy 0.85, not clearly more than the 0.84 of the majority label for all, which has no"
        " gap."
    )
    less = edited(fair, tmp_path / "less", constant_classifier={"accuracy": 0.9})
    assert "Accuracy 0.85, less than the 0.90 of the majority label" in asked([less], 0.1).sentence
    assert asked([less], 0.01).verdict == "probably not"
    assert "No penalty was needed" not in said(limit=0.2, is_plain=True, constant=0.95)


def test_evaluate_begins_with_it_too():
    schema = make_schema()
    model = sf.TrainedModel(
        schema=schema, version="0", loss="logistic", intercept=True,
        inputs=(*schema.encoded_names, "(intercept)"),
        theta=(0.0,) * len(schema.encoded_names) + (-1.0,), gradient_norm=None, converged=None,
    )  # fmt: skip
    evaluation = sf.evaluate(model, make_table(400), sf.ServerConfig(max_gap=0.05, resamples=10))
    found = sentence("spd", evaluation, limit=0.05)
    assert found.startswith(
        "Not usable: it decides like one label for everybody (selects 0 of 400)"
    )
    assert "No penalty was needed" not in found


def test_a_model_that_reads_the_group_says_so(fair, tmp_path):
    """By its settings, wherever they stand; in the sentence, and on the page of the run."""
    run = json.loads((fair / "metrics.json").read_text())
    config = run["config"]["client_0"]
    surrogate = {"client_0": sf.SurrogateConfig().model_dump(mode="json")}
    server = sf.ServerConfig().model_dump(mode="json")
    train = {"method": "fedavg", "seed": 0, "group_input": False}
    for i, (changes, own) in enumerate([
        ({"config": {"client_0": config}}, config),
        ({"config": surrogate, "server": server}, server),
        ({"config": {}, "train": train}, train),
    ]):  # fmt: skip
        for reads in (False, True):
            own["group_input"] = reads
            folder = edited(fair, tmp_path / f"{i} {reads}", **changes)
            found = asked([folder]).sentence
            assert ("The model reads the group to decide. Accuracy" in found) is reads
            words = f"; the model {'reads' if reads else 'does not read'} the group;"
            assert words in page_of(folder)
    thresholds = {"notion": "statistical_parity", "alpha": 0.1}
    folder = edited(fair, tmp_path / "by", config={}, decision=thresholds)
    assert "The model reads the group to decide." in asked([folder]).sentence


def test_groups_that_training_left_out_are_in_the_sentence(fair, tmp_path):
    run = edited(fair, tmp_path / "left", left_out=["town=green"])
    assert (
        "met. The releases have too few rows of town=green to compare. Acc" in asked([run]).sentence
    )
