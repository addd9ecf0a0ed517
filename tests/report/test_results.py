"""Runs are averaged where they differ in the seed alone, and compared where they may be."""

import json
from math import isnan

import pytest
from report_runs import copied, edited, write_runs

import synthfair as sf
from synthfair.metrics_file import FrontierLine, read_frontier
from synthfair.report.results import ACCURACY_GAP, overviews, read_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


def test_runs_that_differ_in_the_seed_alone_are_averaged(runs, tmp_path):
    twin = copied(runs[0], tmp_path / "twin", seed=7)
    other = copied(runs[0], tmp_path / "other", steps=61)
    search = copied(runs[0], tmp_path / "search", max_gap=0.05)
    fewer = copied(runs[0], tmp_path / "fewer", seed=7)
    metrics = json.loads((fewer / "metrics.json").read_text())
    less = {key: dict([*metrics[key].items()][:-1]) for key in ("per_client", "rows")}
    edited(fewer, fewer, **less)
    (overview,) = overviews(read_results([runs[0], twin, other, search, fewer]))
    assert [len(summary.runs) for summary in overview.summaries] == [2, 1, 1, 1]
    table = {"name": "small", "sensitive": "town", "clients": 5, "skew": 0.3}  # so clients differ
    unlike = [edited(run, tmp_path / f"{i}", table=table) for i, run in enumerate((twin, fewer))]
    unlike[1] = copied(unlike[1], tmp_path / "unlike", seed=8)
    assert len(overviews(read_results(unlike))[0].summaries) == 1


def test_run_given_twice_or_that_differs_in_nothing_is_refused(runs, tmp_path):
    with pytest.raises(sf.InputError, match="more than once"):
        read_results([runs[0], runs[0]])
    with pytest.raises(sf.InputError, match="neither in settings nor in seed"):
        overviews(read_results([runs[0], copied(runs[0], tmp_path / "twin")]))


def test_tables_and_notions_are_not_mixed(runs, tmp_path):
    notion = copied(runs[0], tmp_path / "notion", notion="equal_opportunity")
    table = edited(runs[0], copied(runs[0], tmp_path / "table"), schema_hash="0" * 64)
    found = overviews(read_results([runs[0], notion, table]))
    assert [overview.gap for overview in found] == ["spd", "equal_opportunity_difference", "spd"]
    assert found[2].schema_hash == "0" * 64


@pytest.mark.parametrize(("asked", "setting", "fairness"), [
    (("weight", 30), "penalty weight 30", True), (("weight", 0), "penalty weight 0", False),
    (("tolerance", 0), "tolerance 0", True), (("tolerance",), "no constraint", False),
    (("gap", 0.05, 0.02), "gap at most several", True), (("nothing",), "", False),
])  # fmt: skip
def test_fairness_asked_for_is_what_the_run_says(asked, setting, fairness, runs, tmp_path):
    """Whatever its method is called, and its settings say."""
    asked = {"by": asked[0], "amounts": asked[1:]}
    folder = edited(runs[0], tmp_path / "x", asked=asked, method="constant")
    (summary,) = overviews(read_results([folder]))[0].summaries
    assert (summary.setting, summary.asked.fairness) == (setting, fairness)
    assert summary.asked.max_gap == (0.02 if asked["by"] == "gap" else None)


@pytest.mark.parametrize(("others", "epsilon"), [(2.0, "2"), (0.5, "1"), (None, None)])
def test_epsilon_is_the_largest_unless_a_client_has_none(others, epsilon, runs, tmp_path):
    guarantees = {
        name: value and {"epsilon": value, "relation": "add_or_remove"}
        for name, value in (("client_0", 1.0), ("client_1", others))
    }
    (summary,) = overviews(read_results([edited(runs[0], tmp_path, guarantees=guarantees)]))[0][2]
    assert summary.effort["epsilon"] == epsilon


def test_accuracies_of_groups_left_out_are_not_compared(runs, tmp_path):
    (run,) = read_results(runs[:1])
    sizes = sorted(rates.n for rates in run.metrics.by_group.values())
    gaps = [
        read_results([edited(runs[0], tmp_path, min_group_rows=n)])[0].metric(ACCURACY_GAP).value
        for n in (sizes[0], sizes[0] + 1)
    ]
    errors = [rates.error_rate for rates in run.metrics.by_group.values()]
    assert abs(gaps[0]) == pytest.approx(abs(errors[1] - errors[0]))
    assert isnan(gaps[1])


def test_epsilon_that_rests_on_a_condition_is_not_reported(runs, tmp_path):
    whole = {"epsilon": 1.0, "relation": "add_or_remove", "condition": "teacher"}
    (summary,) = overviews(read_results([edited(runs[0], tmp_path, guarantee=whole)]))[0][2]
    assert summary.effort["epsilon"] is None


@pytest.mark.parametrize(("changes", "key"), [
    ({"surprise": 1}, "surprise"), ({"spd": {"value": 1e300, "low": 0, "high": 0}}, "spd.value"),
    ({"method": "a\x1b[2Jb"}, "method"),
    ({"influence": {"outliers_above": None, "releases": {"a\u202e": {}}}}, "influence"),
    ({"client_gaps": {"spd": {"nobody": {}}}}, "client_gaps"), ({"rows": {"nobody": {}}}, "rows"),
])  # fmt: skip
def test_metrics_file_damaged_is_refused_by_key(runs, tmp_path, changes, key):
    with pytest.raises(sf.InputError, match=f"(?s)metrics.json: .*{key}"):
        read_results([edited(runs[0], tmp_path, **changes)])


def test_frontier_damaged_is_refused_by_line_and_column(tmp_path):
    path, titles = tmp_path / "frontier.csv", ",".join(FrontierLine._fields)
    path.write_text(f"{titles}\n1,0.9,0.1,,,1\n")
    assert read_frontier(path)[0][:3] == (1.0, 0.9, 0.1)
    path.write_text(f"{titles}\n1,1.9,0.1,0.9,0.1,1\n")
    with pytest.raises(sf.InputError, match="frontier.csv: 0.accuracy"):
        read_frontier(path)


def test_model_reads_the_group_by_whatever_settings_say_so(runs, tmp_path):
    surrogates = {"client_0": sf.SurrogateConfig().model_dump(mode="json")}
    for reads in (False, True):
        client, server = (
            made(group_input=reads).model_dump(mode="json")
            for made in (sf.DistillConfig, sf.ServerConfig)
        )
        train = {"method": "fedavg", "seed": 0, "group_input": reads}
        for changes in (
            {"config": {"client_0": client}}, {"config": surrogates, "server": server},
            {"config": {}, "train": train},
        ):  # fmt: skip
            (result,) = read_results([edited(runs[0], tmp_path / "x", **changes)])
            assert result.reads_groups is reads
    decision = {"notion": "statistical_parity", "alpha": 0.1}
    (result,) = read_results([edited(runs[0], tmp_path / "y", config={}, decision=decision)])
    assert result.reads_groups
