"""Runs are averaged where they differ in the seed alone, and compared where they may be."""

import json

import pytest
from report_runs import copied, edited, write_runs

import synthfair as sf
from synthfair.fairness.target import Target
from synthfair.report.results import overviews, read_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


def test_only_runs_that_differ_in_the_seed_alone_are_averaged(runs, tmp_path):
    twin = copied(runs[0], tmp_path / "twin", seed=7)
    other = copied(runs[0], tmp_path / "other", steps=61)
    search = copied(runs[0], tmp_path / "search", max_gap=0.05)
    (overview,) = overviews(read_results([runs[0], twin, other, search]))
    found = [(s.method, s.setting, len(s.runs)) for s in overview.summaries]
    assert found == [
        ("single-shot; steps = 60", "penalty weight 0", 2),
        ("single-shot; steps = 61", "penalty weight 0", 1),
        ("single-shot; steps = 60", "gap at most 0.05", 1),
    ]
    assert overview.gap == "spd"


def test_other_clients_and_the_same_run_twice_are_not_averaged(runs, tmp_path):
    fewer = copied(runs[0], tmp_path / "fewer", seed=7)
    metrics = json.loads((fewer / "metrics.json").read_text())
    for key in ("per_client", "rows"):
        metrics[key].popitem()
    (fewer / "metrics.json").write_text(json.dumps(metrics))
    (overview,) = overviews(read_results([runs[0], fewer]))
    found = [(s.method, len(s.runs)) for s in overview.summaries]
    assert found == [("single-shot; tables = 2", 1), ("single-shot; tables = 1", 1)]
    twin = copied(runs[0], tmp_path / "twin")
    with pytest.raises(sf.InputError, match="neither in settings nor in seed"):
        overviews(read_results([runs[0], twin]))


def test_tables_and_notions_are_not_mixed(runs, tmp_path):
    notion = copied(runs[0], tmp_path / "notion", notion="equal_opportunity")
    table = edited(runs[0], copied(runs[0], tmp_path / "table"), schema_hash="0" * 64)
    found = overviews(read_results([runs[0], notion, table]))
    gaps = [(overview.schema_hash[:4], overview.gap) for overview in found]
    real = gaps[0][0]
    assert gaps == [(real, "spd"), (real, "equal_opportunity_difference"), ("0000", "spd")]


@pytest.mark.parametrize(
    ("asked", "setting", "fairness"),
    [
        ({"by": "weight", "amounts": [30.0]}, "penalty weight 30", True),
        ({"by": "weight", "amounts": [0.0]}, "penalty weight 0", False),
        ({"by": "weight", "amounts": [1.0, 2.0]}, "penalty weight several", True),
        ({"by": "tolerance", "amounts": [0.1]}, "tolerance 0.1", True),
        ({"by": "tolerance", "amounts": [0.0]}, "tolerance 0", True),
        ({"by": "tolerance", "amounts": []}, "no constraint", False),
        ({"by": "gap", "amounts": [0.05, 0.02]}, "gap at most several", True),
        ({"by": "row_weights", "amounts": []}, "reweighted rows", True),
        ({"by": "nothing", "amounts": []}, "", False),
    ],
)
def test_how_much_fairness_is_what_the_run_says(asked, setting, fairness, runs, tmp_path):
    """Whatever its method is called, and its settings say."""
    folder = edited(runs[0], tmp_path / "x", asked=asked, method="constant")
    (summary,) = overviews(read_results([folder]))[0].summaries
    assert (summary.setting, summary.asked.fairness) == (setting, fairness)
    amounts = asked["amounts"] if asked["by"] == "gap" else []
    assert summary.asked.max_gap == min(amounts, default=None)


def test_of_clients_that_search_for_gaps_those_count():
    settings = [{"rho_o": 3.0}, {"max_gap": 0.1}, {"max_gap": 0.05}, {"max_gap": 0.1}]
    found = Target.of(sf.DistillConfig(**one).asked for one in settings)
    assert found == Target(by="gap", amounts=(0.1, 0.05))
    assert Target.of([]) == Target(by="nothing")
