"""Tables of real records hold their numbers and words; nothing in them is markup."""

from types import SimpleNamespace as Fields

import numpy as np
import pytest
from builders import SCHEMA, TABLE, some_model
from printed import plain_text

import synthfair as sf
from synthfair.client.quality import Fit, Quality
from synthfair.data.encode import Clipping, encode
from synthfair.measure.gaps_file import GapsFile
from synthfair.metrics_file import Influence, Influences
from synthfair.privacy.guarantee import Guarantee
from synthfair.report import privacy_words, release_tables, result_tables
from synthfair.report.text_table import Table


def test_table_of_what_is_clipped_says_on_which_side():
    table, seen = TABLE.assign(income=TABLE["income"] * 2 - 20), Clipping()
    encode(table, SCHEMA, clipping=seen)
    below, above = (table["income"] < 0).mean(), (table["income"] > 100).mean()
    (row,) = release_tables.clipping_table(seen).cells
    assert row == ["'income'", "0 to 100", f"{below:.1%}", f"{above:.1%}"]
    private = sf.DistillConfig(epsilon=1.0, delta=1e-6)
    for config, rows, few in ((private, 49, True), (private, 50, False)):
        seen.rows = rows
        found = release_tables.real_rows_warnings(seen, config)
        assert any("noise" in line for line in found) is few


def test_table_of_quality_has_the_columns_that_lie_elsewhere_most_first():
    columns = {
        "age": np.array([[1.0, 0.0], [0.9, 0.1]]),
        "home": np.array([[0.3, 0.7], [0.0, 1.0]]),
    }
    fits = Fit(0.5, 0.9, 0.1), Fit(0.4, 0.8, 0.2)
    *tables, said = release_tables.quality_tables(Quality(columns, *fits, 0.9)).renderables
    assert tables[0].cells == [["home", "30.0%"], ["age", "10.0%"]]
    assert [row[2] for row in tables[1].cells] == ["0.900", "0.800"]
    assert "learns 80 %" in said


def test_table_of_influences_has_the_furthest_first_and_stands_where_one_stands_out():
    moved = Influence(1.0, 0.25, 0.05, outlier=False), Influence(2.0, 0.5, -0.05, outlier=False)
    for changes, stands, outlier in (
        ({}, False, False), ({"outlier": True}, True, True), ({"alone": True}, True, False),
        ({"weight": 0.05}, True, False),
    ):  # fmt: skip
        found = Influences({"a": moved[0], "b": moved[1]._replace(**changes)}, 3.0)
        rows = result_tables.influence_table(found).cells
        assert [row[0] for row in rows] == ["b", "a"]
        assert ("OUTLIER" in rows[0][-1]) is outlier
        assert isinstance(result_tables.influence_summary(found), Table) is stands
        warning = result_tables.outlier_warning(found)
        assert warning.startswith("b: ") if outlier else warning is None


def test_table_of_measured_gaps_says_which_group_is_subtracted():
    gap = {"first": "a", "second": "b", "value": -0.0123, "low": -0.5, "high": 0.4}
    document = GapsFile(
        epsilon=1.0, confidence=0.95, reports=90, gaps=[gap], rejected={"missing": 3, "twice": 4}
    )
    assert result_tables.gap_table(document).cells == [["b - a", "-0.0123 [-0.5000, 0.4000]"]]
    groups, _ = result_tables.estimate_tables(document).renderables
    assert "7 rejected" in groups.caption


def test_warnings_of_rejected_reports_and_of_few():
    tally, collection = Fields(counts=[999.0, 5.0, 2.0]), Fields(compared=[0, 1], groups="abc")
    sums = Fields(rejected={"no": 0, "twice": 3}, examples={"twice": "1"}, tally=tally, ids=None)
    lines = result_tables.rejected_warnings(sums, collection)
    assert [("3, twice" in line, "b (5)" in line) for line in lines] == [(1, 0), (0, 1)]
    assert "a (" not in lines[1]


@pytest.mark.parametrize(("gap", "error", "is_above"), [
    (0.03, 0.01, False), (0.031, 0.01, True), (0.021, 0.0, True), (0.02, 0.0, False),
])  # fmt: skip
def test_warning_of_thresholds_whose_gap_is_above_alpha_and_its_error(gap, error, is_above):
    choice = Fields(gap=Fields(value=gap, error=error), decision=Fields(alpha=0.02))
    assert (result_tables.alpha_warning(choice) is not None) is is_above


def test_warning_of_a_training_that_did_not_converge():
    for converged in (True, None, False):
        model = some_model().model_copy(update={"converged": converged})
        assert (result_tables.untrained_warning(model) is None) is (converged is not False)


def test_guarantee_in_words_says_whose_rows_and_what_is_not_covered():
    given = {"epsilon": 1.0, "relation": "add_or_remove"}
    for changes, words in (
        ({"unit": "row"}, "of one row"), ({"unit": "user"}, "of one user, with all its rows"),
        ({"unit": "row", "adversary": "sees_uploads"}, "of one row of one client"),
    ):  # fmt: skip
        guarantee = Guarantee(**given | changes)
        assert privacy_words.claim(guarantee).endswith(words)
    facts = privacy_words.guarantee_facts(Guarantee(**given, condition="teacher"))
    assert "teacher" in facts["condition"]
    assert len(facts["not_covered"]) > 3
    assert privacy_words.claim(None) == "none"
    training = Fields(
        guarantee=guarantee, counts=None, cost=Fields(users=3, rounds=2, bytes_sent=9)
    )
    for private in (True, False):  # noise of a fixed seed guarantees nothing
        rows = dict(result_tables.training_table(training, private=private).rows)
        assert rows["privacy"].startswith("none") is not private


@pytest.mark.parametrize(("settings", "private", "hides", "said"), [
    ({"epsilon": 1.0, "delta": 1e-6}, True, False, "differential privacy with epsilon = 1"),
    ({"epsilon": 1.0, "delta": 1e-6}, False, False, "fixed seed"),
    ({}, False, True, "sums by label and by group"), ({}, False, False, "not anonymous"),
])  # fmt: skip
def test_release_in_words_discloses_what_no_noise_protects(settings, private, hides, said):
    guarantee = Guarantee(epsilon=1.0, relation="add_or_remove") if private else None
    facts = privacy_words.release_facts(sf.SurrogateConfig(**settings), guarantee, hides)
    text = " ".join(facts["discloses"])
    assert said in text
    assert ("fixed seed" in text, "sums by label" in text) == (said == "fixed seed", hides)


def test_table_takes_nothing_for_markup_or_control():
    table = Table(("a [b]name[/b]", "x"), [("[bold]c\x1b[31m[/bold]", "[1, 2]")], "[red]t[/red]",
                  "[i]said[/i]")  # fmt: skip
    for width in (20, 80):
        text = "".join(plain_text(table, width).split())
        assert "\x1b" not in text
        for part in ("[b]name[/b]", "[red]t[/red]", "[i]said[/i]", "[1,2]", "[bold]c"):
            assert part in text
