"""The answer that a report leads with, and what it says where it cannot tell."""

import json
import re

import numpy as np
import pytest
from builders import make_schema
from report_runs import copied, edited, page_of, tables, write_run

from synthfair.evaluation import evaluate_scores
from synthfair.fairness.intervals import LabelCounts
from synthfair.fairness.metrics import Metric, Rates, Scored
from synthfair.fairness.target import DEFAULT_FAIR_GAP
from synthfair.metrics_file import (
    Evaluation,
    FrontierLine,
    GroupingMetrics,
    Metrics,
    write_frontier,
)
from synthfair.report.answer import (
    advice,
    answer,
    compared_rates,
    furthest,
    one_label,
    sentence,
)
from synthfair.report.results import overviews, read_results

NAN = float("nan")

pytestmark = pytest.mark.usefixtures("text_only")


def asked(folders, max_gap=None):
    (overview,) = overviews(read_results(folders))
    return answer(overview, max_gap)


def metric(value, low, high):
    return {"value": value, "low": low, "high": high}


def numbers(text):
    return [float(number) for number in re.findall(r"\d\.\d+", text)]


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


@pytest.mark.parametrize(("gap", "verdict"), [
    ((0.03, -0.03, 0.1), "yes"), ((0.03, -0.03, 0.101), "probably"),
    ((0.12, 0.1, 0.2), "probably not"), ((-0.12, -0.2, -0.101), "no"),
    ((None, None, None), "not measured"),
])  # fmt: skip
def test_verdict_is_sure_where_the_whole_interval_is_on_one_side(fair, gap, verdict):
    found = asked([edited(fair, fair, spd=metric(*gap))], 0.1)
    assert found.verdict == verdict
    assert (" probably " in found.sentence) is verdict.startswith("probably")
    assert f'data-verdict="{verdict}"' in page_of(fair, max_gap=0.1)


@pytest.mark.parametrize(("low", "gap", "verdict", "what"), [
    (0.81, 0.08, "yes", ("use", 0.0)), (0.7, 0.08, "probably", ("rows", 0.0)),
    (0.81, 0.02, "no", ("gap", 0.0067)),
])  # fmt: skip
def test_verdict_is_the_worse_one_where_a_ratio_and_a_gap_were_asked(fair, low, gap, verdict, what):
    asks = {"by": "gap", "amounts": [gap], "min_ratio": 0.8}
    changes = {"selection_ratio": metric(0.9, low, 0.95), "spd": metric(0.06, 0.05, 0.07)}
    found = asked([edited(fair, fair, asked=asks, **changes)])
    assert found.verdict == verdict
    assert advice(found, "spd", None)[::4] == what


def test_sentence_holds_gap_limit_and_accuracies(plain, fair):
    found = asked([plain, fair], 0.1)
    told = found.sentence.partition("town=a and town=b differ by")[2]
    assert numbers(told) == [0.03, 0.0, 0.08, 0.1, 0.2, 0.85, 0.9, 0.7]


def test_cost_is_the_accuracy_lost_with_its_interval(plain, fair):
    """The accuracies' intervals are 0.02 to each side: hypot(0.02, 0.02) of their difference."""
    assert asked([plain, fair], 0.1).cost == pytest.approx((0.05, 0.0217, 0.0783), abs=1e-4)
    edited(fair, fair, accuracy=metric(0.91, 0.89, 0.93))
    assert asked([plain, fair], 0.1).cost.value == pytest.approx(-0.01)


def test_cost_is_unknown_without_a_run_that_differs_in_the_penalty_alone(plain, fair, tmp_path):
    other = copied(plain, tmp_path / "other", steps=7)
    more = copied(fair, tmp_path / "more", rho_o=60.0)
    for folders in ([fair], [fair, other], [fair, more]):
        assert np.isnan(asked(folders).cost.value)


def test_cost_is_that_of_the_servers_own_model_without_a_penalty(plain, fair):
    part = json.loads((plain / "metrics.json").read_text())
    edited(fair, fair, without_penalty={name: part[name] for name in Metrics.model_fields})
    assert asked([fair]).cost == pytest.approx((0.05, 0.0217, 0.0783), abs=1e-4)
    write_frontier([FrontierLine(3.0, 0.9, 0.1, 0.8, 0.25, 1.0)], fair / "frontier.csv")
    ((_, *rows),) = tables(page_of(fair), "accuracy and gap")
    assert ("no penalty", "0.900 [0.880, 0.920]", "0.200 [0.150, 0.250]") in rows
    assert ("penalty weight 3", "0.800", "0.250") in rows


def test_limit_is_the_users_then_the_runs_then_the_rule_of_thumb(fair, tmp_path):
    wished = copied(fair, tmp_path / "wished", max_gap=0.07)
    looser = copied(fair, tmp_path / "looser", max_gap=0.09)
    for runs, given, limit in (
        ([fair], None, DEFAULT_FAIR_GAP), ([wished], 0.2, 0.2), ([looser, wished], None, 0.07),
    ):  # fmt: skip
        assert asked(runs, given).limit == limit


@pytest.mark.parametrize(("rho", "needless"), [(0.0, True), (2.0, False)])
def test_penalty_not_needed_is_said_where_the_weight_found_is_0(fair, tmp_path, rho, needless):
    run = edited(copied(fair, tmp_path / "wished", max_gap=0.07), tmp_path / "found", rho=rho)
    assert ("No penalty was needed." in asked([run]).sentence) is needless


def test_seeds_give_means(fair, tmp_path):
    twin = copied(fair, tmp_path / "twin", seed=7)
    edited(twin, twin, spd=metric(0.05, -0.02, 0.12), selection_ratio=metric(0.0, 0.0, 0.0))
    assert asked([fair, twin]).subject.gap_size == pytest.approx((0.01, 0.0, 0.07))
    assert asked([twin, fair]).subject.ratio == asked([fair, twin]).subject.ratio


@pytest.mark.parametrize(("limit", "accuracy"), [(0.3, 0.9), (0.22, 0.85), (0.01, 0.85)])
def test_best_is_the_most_accurate_that_is_surely_within_the_limit(plain, fair, limit, accuracy):
    assert asked([plain, fair], limit).subject.accuracy.value == accuracy


@pytest.mark.parametrize("method", ["central", "local", "constant", "exponentiated_gradient"])
def test_best_is_no_central_training(plain, fair, tmp_path, method):
    central = edited(plain, tmp_path / "central", method=method, spd=metric(0.01, 0.0, 0.02))
    assert asked([central, fair], 0.1).subject.runs[0].metrics.method == "single_shot"


@pytest.mark.parametrize(("constant", "verdict"), [(0.84, "no better"), (0.82, "yes")])
def test_model_not_clearly_above_the_constant_classifier_gets_no_yes(fair, constant, verdict):
    """Its accuracy is 0.85, with an interval from 0.83."""
    found = asked([edited(fair, fair, constant_classifier={"accuracy": constant})], 0.1)
    assert found.verdict == verdict
    assert found.subject.constant == constant
    assert asked([fair], 0.01).verdict == "probably not"


def run_of(*groups):
    """An evaluation of groups with so many rows that are selected and positive: all four counts."""
    rates, rows = {}, {}
    for i, (refused, false, missed, true) in enumerate(groups):
        n = refused + false + missed + true
        rates[f"g{i}"] = Rates(n, (false + true) / n, np.nan, np.nan, np.nan)
        rows[f"g{i}"] = LabelCounts(refused + false, missed + true)
    return Evaluation.model_construct(by_group=rates, rows={"client": rows})


@pytest.mark.parametrize(("groups", "said"), [
    ([(500, 0, 300, 1), (100, 0, 73, 0)], "everybody (selects 1 of 974)"),
    ([(0, 500, 2, 300), (0, 100, 0, 98)], "everybody (selects 998 of 1,000)"),
    ([(300, 50, 100, 300), (60, 0, 20, 0)], "in g1 (selects 0 of 80)"),
    ([(300, 50, 100, 300), (10, 0, 9, 0)], None),  # too few rows to tell
    ([(300, 50, 100, 300), (80, 0, 2, 0)], None),  # nor are three of them positive
    ([(0, 1, 0, 900), (0, 0, 0, 99)], None),  # as are the labels
])  # fmt: skip
def test_one_label_for_everybody_is_seen_in_all_or_a_group(groups, said):
    found = one_label(run_of(*groups))
    assert (said in found) if said else found is None


def test_model_that_selects_nobody_is_not_usable_and_the_last_choice(plain, fair, tmp_path):
    rates = json.loads((fair / "metrics.json").read_text())["by_group"]
    nobody = {"selection_rate": 0.0, "true_positive_rate": 0.0, "false_positive_rate": 0.0}
    run = edited(fair, tmp_path / "nobody", by_group={n: of | nobody for n, of in rates.items()})
    assert asked([run], 0.1).verdict == "not usable"
    assert asked([run, plain], 0.1).subject.runs[0].folder == plain
    ((titles, row),) = tables(page_of(run), "all runs")
    assert row[titles.index("at most 0.1?")] == "not usable"
    said = sentence("spd", read_results([run])[0].metrics, limit=0.1, is_plain=True)
    assert not re.search("is (probably )?met|needed", said)


def test_groups_left_out_are_not_among_those_compared(fair):
    rates = json.loads((fair / "metrics.json").read_text())["by_group"]
    rates["town=c"] = rates["town=a"] | {"n": 7}
    small = {"town=c": {"n": 7, "positive": 3, "negative": 4}}
    changes = {"by_group": rates, "small_groups": small, "min_group_rows": 10, "rows": None}
    run = edited(fair, fair, left_out=["town=green"], **changes)
    found = asked([run]).sentence
    assert "town=a and town=b" in found
    assert "town=c" not in found
    assert "town=green" in found  # which training left out
    assert "town=c (7 rows, 3 of them" in page_of(run)


def test_groups_of_the_page_are_counted_per_100(tmp_path):
    """40 refused and 10 selected without the label; 10 refused and 40 selected with it."""
    y, score = np.repeat([-1.0, 1.0], 50), np.repeat([-1.0, 1.0, -1.0, 1.0], [40, 10, 10, 40])
    rows = Scored(np.tile(y, 2), np.r_[score, y], np.repeat([0, 1], 100))
    run = edited(write_run(tmp_path / "run"), tmp_path / "x", **measured({"a": rows}))
    ((_, *groups),) = tables(page_of(run), "Who is selected")
    assert groups == [
        ("town=a", "100", "50", "50", "20", "20"), ("town=b", "100", "50", "50", "0", "0"),
    ]  # fmt: skip


def measured(scored):
    return evaluate_scores(scored, schema=make_schema()).model_dump(mode="json")


def test_groups_that_differ_most_are_named_of_many():
    shares = {"a": 0.5, "b": 0.2, "c": 0.9}
    groups = {name: Rates(100, p, p / 2, 1 - p, 0.1) for name, p in shares.items()}
    measured = dict.fromkeys(Metrics.model_fields, Metric(0.7, 0.5, 0.8))
    run = Evaluation.model_construct(by_group=groups, **measured)
    assert furthest("spd", run) == ("b", "c")
    assert furthest("equalized_odds_difference", run) == ("c", "b")  # by false positives
    assert furthest("equal_opportunity_difference", run) == ()  # 0.35 is not what was measured
    few = {"d": Rates(29, 0.0, 0.0, 0.0, 0.0)}
    by = {
        "x": {"a": groups["a"], "c": groups["c"]},
        "y": {"b": groups["b"], "c": groups["c"]} | few,
    }
    by = {name: GroupingMetrics.model_construct(rates=rates) for name, rates in by.items()}
    both = run.model_copy(update={"groupings": by, "groups_by": ("x", "y")})
    assert furthest("spd", both) == ("b", "c")
    assert [*map(list, compared_rates(both))] == [["a", "c"], ["b", "c"]]


@pytest.mark.parametrize(
    ("changes", "what"), [
        ({"spd": (-0.03, -0.08, 0.02)}, ("use", "", 0, 0, 0.0)),
        ({"equal_opportunity_difference": (-0.2, -0.3, -0.1)}, ("use", "", 0, 0, 0.0)),
        ({"spd": (-0.03, -0.12, 0.02)}, ("rows", "town=b", 140, 290, 0.0)),
        ({"spd": (-0.1, -0.2, 0.02)}, ("gap", "", 0, 0, 0.08)),  # the gap is the limit
        ({"spd": (0.2, 0.05, 0.35)}, ("gap", "", 0, 0, 0.05)),
        ({"spd": (0.2, 0.15, 0.25)}, ("gap", "", 0, 0, 0.05)),
        ({"accuracy": (0.71, 0.68, 0.713)}, ("refuse", "", 0, 0, 0.0)),
        ({"accuracy": (0.71, 0.6, 0.8)}, ("rows", "town=b", 0, 0, 0.0)),
        ({"accuracy": (0.71, 0.6, 0.8), "spd": (0.2, 0.15, 0.2)}, ("refuse", "", 0, 0, 0.0)),
        ({"spd": (0.0, 0.0, 0.8)}, ("rows", "town=b", 7700, 16000, 0.0)),
        ({"spd": (None, None, None)}, ("rows", "town=b", 0, 0, 0.0)),
    ],
)  # fmt: skip
def test_next_step_follows_from_the_verdict(fair, changes, what):
    run = edited(fair, fair, **{name: metric(*values) for name, values in changes.items()})
    assert advice(asked([run], 0.1), "spd", None) == what
    page = page_of(run, max_gap=0.1)
    assert f'data-next="{what[0]}"' in page
    assert ("Decide whether that is right" in page) is ("equal_opportunity_difference" in changes)
    if what[4] == 0.05:  # half of what was asked for; else of the gap on the pooled rows
        lower = asked([edited(run, run, pooled_gap=0.04)], 0.1)
        assert advice(lower, "spd", None).limit == 0.02


@pytest.mark.parametrize(("limits", "verdict", "what"), [
    ({"min_ratio": 0.8}, "no", ("ratio", 0.87)), ({"min_ratio": 0.4}, "yes", ("use", 0.0)),
    ({"min_ratio": 0.65}, "probably", ("rows", 0.0)),
    ({"client_gap": 0.05}, "probably not", ("at each client", 0.0)),
    ({"client_gap": 0.2}, "yes", ("use", 0.0)), ({"client_gap": 0.09}, "probably", ("rows", 0.0)),
])  # fmt: skip
def test_verdict_is_on_what_was_asked(fair, limits, verdict, what):
    gaps = {"spd": {"client_0": metric(0.01, -0.01, 0.03), "client_1": metric(-0.08, -0.1, 0.0)}}
    changes = {"selection_ratio": metric(0.7, 0.6, 0.75), "client_gaps": gaps}
    asks = {"by": "gap", "amounts": [], **limits}
    found = asked([edited(fair, fair, asked=asks, **changes)])
    step = advice(found, "spd", None)
    assert (found.verdict, (step.what, step.limit)) == (verdict, what)


def test_next_step_is_a_smaller_gap_at_a_client_where_one_is_unfair(fair):
    gaps = {"client_0": metric(0.5, 0.4, 0.6), "client_1": metric(0.0, -0.1, 0.1)}
    run = edited(fair, fair, client_gaps={"spd": gaps})
    for limit, what in ((0.1, "at each client"), (0.7, "use")):
        assert f'data-next="{what}"' in page_of(run, max_gap=limit)


def test_next_step_asks_for_rows_of_the_smallest_group_or_less_than_was_asked(fair, tmp_path):
    run = edited(fair, fair, spd=metric(None, None, None), min_group_rows=100)
    sizes = {name: of.n for name, of in read_results([run])[0].metrics.by_group.items()}
    name = min(sizes, key=sizes.get)
    assert advice(asked([run]), "spd", None)[:3] == ("rows", name, 100 - sizes[name])
    wished = edited(copied(fair, tmp_path / "w", max_gap=0.04), fair, spd=metric(0.2, 0.15, 0.25))
    assert advice(asked([wished], 0.1), "spd", None).limit == 0.02
