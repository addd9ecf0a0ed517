"""The benchmarks' harness, without JAX: what is run again, what is shown; and what counts as beaten."""

from dataclasses import make_dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import chisquare

import synthfair as sf
from benchmarks import __main__ as everything
from benchmarks import fit, harness
from benchmarks.harness import Experiment, fingerprint
from benchmarks.privfairfl.comparison import randomised_response
from benchmarks.runs import Mean, Run, Runs, mean_of
from benchmarks.showing import accuracy_text, mark, table
from benchmarks.table2 import beaten, pages
from benchmarks.table2.cells import TASKS, TableCell, TableValues, cells
from synthfair.data.datasets import Source


class Toy(NamedTuple):
    kind: str
    weight: float
    even: bool


class Found(NamedTuple):
    score: float
    good: bool


TOYS = tuple(Toy(kind, weight, weight == 2) for kind in "ab" for weight in (1.0, 2.0))
calls = []


def run_toy(setting: Toy, seed: int, *, smoke: bool) -> Found:
    calls.append((setting, seed, smoke))
    return Found(setting.weight + seed, setting.even)


def show_toys(runs):
    return {"toys.md": f"{[(*run.setting[:2], run.seed) for run in runs]}\n"}


EXPERIMENT = Experiment(
    name="toys", settings=TOYS, run=run_toy, summary=show_toys, smoke=TOYS[:1], seeds=2,
    float64=False,
)  # fmt: skip


@pytest.fixture
def done():
    calls.clear()
    return calls


def command_line(monkeypatch, *words, experiment=EXPERIMENT, **more):
    monkeypatch.setattr("sys.argv", ["toys", *map(str, words)])
    harness.main(None, "toys", experiment, **more)


def test_runs_survive_the_file(tmp_path):
    runs = [Run(TOYS[0], 0, Found(np.nan, True)), Run(TOYS[1], 3, Found(1 / 3, False), "x")]
    EXPERIMENT.write(tmp_path, runs)
    found = EXPERIMENT.read(tmp_path)
    assert found[1] == runs[1]
    assert (found[0].setting, found[0].values.good) == (TOYS[0], True)
    assert np.isnan(found[0].values.score)


def test_only_what_is_missing_is_run_and_seeds_come_first(tmp_path, done):
    EXPERIMENT.resume(tmp_path, TOYS[:2], seeds=1)
    EXPERIMENT.resume(tmp_path, TOYS[:2], seeds=2)
    EXPERIMENT.resume(tmp_path, TOYS, seeds=None)
    order = [(setting, 0) for setting in TOYS[:2]] + [(setting, 1) for setting in TOYS[:2]]
    order += [(setting, seed) for seed in (0, 1) for setting in TOYS[2:]]
    assert [call[:2] for call in done] == order
    shown = EXPERIMENT.current(EXPERIMENT.read(tmp_path))
    assert [(run.setting, run.seed) for run in shown] == [(t, s) for t in TOYS for s in (0, 1)]


def test_a_line_that_was_cut_off_is_run_again(tmp_path, done):
    EXPERIMENT.resume(tmp_path, TOYS[:2], seeds=1)
    path = tmp_path / "toys.csv"
    path.write_text(path.read_text()[:-4])
    EXPERIMENT.resume(tmp_path, TOYS[:2], seeds=1)
    assert [setting for setting, *_ in done] == [*TOYS[:2], TOYS[1]]


def test_a_run_of_other_settings_is_replaced(tmp_path, done):
    source = Source("a.csv", "0123456789")
    changes = [
        {"behind": lambda _: ["old"]},
        {"behind": lambda _: ["new"]},
        {"version": 2},
        {"sources": lambda _: (source,)},
        {"sources": lambda _: (source._replace(sha256="1" * 64),)},
    ]
    for count, change in enumerate(changes, 1):
        changed = replace(EXPERIMENT, **change)
        assert not changed.current(changed.read(tmp_path))
        changed.resume(tmp_path, TOYS[:1], seeds=1)
        assert [run.made_with for run in changed.read(tmp_path)] == [changed.made_with(TOYS[0])]
        assert len(done) == count
    assert [changed.made_with(TOYS[0]), EXPERIMENT.made_with(TOYS[0])] == ["v1 11111111", "v1"]


def test_without_seeds_each_setting_is_run_once_whatever_is_asked(tmp_path, done):
    once = replace(EXPERIMENT, seeds=None)
    once.resume(tmp_path, TOYS, seeds=5)
    assert [setting for setting, *_ in done] == [*TOYS]
    assert (tmp_path / "toys.csv").read_text().startswith("kind,weight,even,score,good,made_with\n")


def test_a_file_may_be_named_by_the_setting(tmp_path):
    named = replace(EXPERIMENT, file="{kind}.csv")
    named.resume(tmp_path, TOYS, seeds=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv"]
    assert len(named.read(tmp_path)) == len(TOYS)


def test_smoke_runs_are_small_and_never_taken_for_others(tmp_path, monkeypatch, done, capsys):
    command_line(monkeypatch, "--smoke", "--output", tmp_path)
    assert done == [(TOYS[0], 0, True)]
    command_line(monkeypatch, "--seeds", 1, "--output", tmp_path)
    assert [call[1:] for call in done[1:]] == [(0, False)] * len(TOYS)
    assert "toys.md" in [path.name for path in tmp_path.iterdir()]
    assert "[('a', 1.0, 0), ('a', 2.0, 0), ('b', 1.0, 0)" in capsys.readouterr().out


def test_smoke_runs_keep_out_of_the_results(monkeypatch, done):
    with pytest.raises(SystemExit):
        command_line(monkeypatch, "--smoke", "--output", harness.RESULTS / "toys")
    assert not done


def test_some_settings_are_chosen_and_all_runs_shown(tmp_path, monkeypatch, done, capsys):
    for kind in "ab":
        chosen = ("--only", f"kind={kind}", "weight=2")
        command_line(monkeypatch, "--seeds", 1, "--output", tmp_path, *chosen)
    assert [setting for setting, *_ in done] == [TOYS[1], TOYS[3]]
    assert capsys.readouterr().out.split("\n")[-3] == "[('a', 2.0, 0), ('b', 2.0, 0)]"
    with pytest.raises(SystemExit, match="must be of kind, weight, even"):
        command_line(monkeypatch, "--output", tmp_path, "--only", "size=2")
    with pytest.raises(SystemExit, match="fits no setting of toys"):
        command_line(monkeypatch, "--output", tmp_path, "--only", "weight=3")


def test_showing_makes_no_run(tmp_path, monkeypatch, done):
    with pytest.raises(SystemExit, match="0 runs, none"):
        command_line(monkeypatch, "--output", tmp_path, "--show")
    assert not done


def test_all_are_run_in_order_and_failures_are_named(tmp_path, monkeypatch, capsys):
    commands = []

    def run(command, **_):
        commands.append(command)
        return type("Done", (), {"returncode": "benchmarks.gap" in command})

    monkeypatch.setattr(everything.subprocess, "run", run)
    words = ["", "all", "--smoke", "--seeds", "2", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="failed: gap$"):
        everything.main()
    assert [command[2] for command in commands] == [f"benchmarks.{n}" for n in everything.NAMES]
    assert commands[2][3:] == ["--smoke", "--seeds", "2", "--output", str(tmp_path / "table2")]
    assert "| gap | 0 | FAILED |" in capsys.readouterr().out


class OneSetting(NamedTuple):
    rate: float
    steps: int = 10


class TwoSettings(NamedTuple):
    rate: float
    memory: float = 0.0
    steps: int = 10


def test_a_setting_that_is_new_changes_no_fingerprint():
    usual, named = sf.DistillConfig(), sf.DistillConfig(rho_o=10.0, start="range")
    assert fingerprint(usual) == fingerprint(named) != fingerprint(sf.DistillConfig(rho_o=9.0))
    assert fingerprint(usual) != fingerprint(usual, "standard")
    assert fingerprint(OneSetting(0.1, 5)) == fingerprint(TwoSettings(0.1, steps=5))
    assert fingerprint(OneSetting(0.1)) != fingerprint(TwoSettings(0.1, memory=0.9))
    as_class = make_dataclass("Old", [("rate", float), ("steps", int, 10)], frozen=True)
    assert fingerprint(as_class(0.1, 5)) == fingerprint(TwoSettings(0.1, steps=5))
    assert fingerprint({"rate": 0.1}) != fingerprint({"rate": 0.2})


@pytest.mark.parametrize("name", harness.NAMES)
def test_the_committed_runs_would_come_out_the_same_today(name):
    """If not, run the benchmark again: its results are older than the code."""
    for one in harness.experiments(name):
        runs = one.read(harness.folder_of(name))
        assert len(one.current(runs)) == len(runs)
        there = {(run.setting, run.seed) for run in runs}
        assert not one.default or {*one.missing([], one.settings, None)} <= there


def test_means_deviations_and_errors():
    mean = mean_of([0.7, 0.8, 0.9])
    assert mean == pytest.approx((0.8, 0.1, 3))
    assert mean.error == pytest.approx(0.1 / 3**0.5)
    assert mean.text(".2f") == "0.80 ± 0.10"
    assert mean.text("+.3f", error=True) == "+0.800 ± 0.058"
    assert mean_of([0.25]).text() == "0.2500"
    assert mean_of([0.25, float("inf")]).text() == "inf"


def test_runs_are_grouped_and_selected():
    runs = Runs(Run(toy, seed, Found(seed, True)) for toy in TOYS for seed in (0, 2))
    assert [*runs.by("weight")] == [1.0, 2.0]
    assert [*runs.by("kind", "even")] == [("a", False), ("a", True), ("b", False), ("b", True)]
    assert [*runs.by()] == [*TOYS]
    assert runs.select(kind="a", weight=2.0).mean("score") == Mean(1.0, 2**0.5, 2)
    assert runs.n_seeds == 2
    assert table("a | b", [(1.0, "x")]) == "| a | b |\n|---|---|\n| 1 | x |"


# Table 2


def some_run(rho_o=10.0, seed=0, accuracy=0.8, spd=0.05, *, method="single_shot", converged=True):
    cell = TableCell("ours", method, "dutch_gender", "small", rho_o)
    return Run(cell, seed, TableValues(accuracy, spd, 0.1, np.nan, 0.3, converged, 1.5))


def published_cell(runs, accuracy=0.8, spd=0.05):
    cell = TableCell("faithful", "single_shot", "dutch_gender", "small", 10.0)
    return beaten.PublishedCell(cell, accuracy, spd, [], beaten.curve(Runs(runs)), None)


def test_one_seed_claims_no_error():
    point, word = published_cell([some_run(accuracy=0.8001, spd=0.0499)]).answer()
    assert word == "yes, on one seed"
    assert "±" not in point.text()


@pytest.mark.parametrize(
    ("accuracy", "spd", "answer"),
    [
        (0.85, 0.01, "yes"),
        (0.85, -0.01, "yes"),
        (0.75, 0.01, "no"),
        (0.85, 0.09, "no"),
        (0.85, -0.09, "no"),
        (0.8003, 0.01, "yes, within one standard error"),
        (0.85, 0.0503, "no, within one standard error"),
    ],
)
def test_a_cell_is_beaten_in_both_or_not_at_all(accuracy, spd, answer):
    runs = [some_run(10.0, i, accuracy + e, spd + e) for i, e in enumerate((-0.001, 0, 0.001))]
    point, word = published_cell([*runs, some_run(99.0, accuracy=0.1, spd=0.9)]).answer()
    assert (word, point.rho_o) == (answer, 10.0)
    assert published_cell([]).answer() is None


def test_cells_are_counted_by_several_rules():
    """Our runs are of the small size; cells of Dutch: 0.7825 / 0.2103 at rho_o = 0, 0.7667 / 0.0478 at rho_o = 10."""
    runs = [
        some_run(10.0, 0, 0.77, 0.06),  # its mean SPD beats the cell at 10, its mean size does not
        some_run(10.0, 1, 0.77, -0.06),
        some_run(99.0, 0, 0.79, 0.1),  # beats the cell at 0, at another weight
        some_run(0.0, 0, 0.76, 0.0, method="constant"),
    ]
    constant = TableCell("ours", "constant", "dutch_gender", "", 0.0)
    some = Runs([*runs[:3], runs[3]._replace(setting=constant)])
    counts = beaten.beaten(beaten.published_next_to(some))
    # 0.77 and a mean of 0 beat the cells of both sizes at rho_o > 0, 0.79 and 0.1 those at 0; there
    # are cells at 10, and none at 99; the constant beats the last cell of size train
    assert [*counts.values()] == [(0, 10), (0, 2), (0, 2), (0, 0), (0, 1)]
    law_school = TableCell("ours", "constant", "law_school_race", "", 0.0)
    some = Runs([some_run(accuracy=0.86)._replace(setting=law_school)])
    counts = beaten.beaten(beaten.published_next_to(some))
    assert counts["by the constant classifier"] == (4, 0)


def test_what_the_constant_classifier_beats_is_marked():
    assert mark(0.8, 0.8) == mark(Mean(0.79, 0.1, 3), Mean(0.8, 0.1, 3)) == " ‡"
    assert mark(0.81, 0.8) == mark(0.8, None) == mark(None, 0.8) == ""
    runs, constant = (
        Runs([Run(toy, 0, Accuracy(value))])
        for toy, value in zip(TOYS[:2], (0.8, 0.9), strict=True)
    )
    assert accuracy_text(runs, constant, ".2f") == "0.80 ‡"
    assert accuracy_text(constant, constant, ".2f") == "0.90"  # the classifier itself


class Accuracy(NamedTuple):
    accuracy: float


def test_differences_are_of_the_seeds_that_both_have():
    low, high = (
        Runs(Run(TOYS[0], seed, Accuracy(value)) for seed, value in enumerate(values))
        for values in ((0.1, 0.2, np.nan, 0.4), (0.2, 0.5, 0.9))
    )
    assert high.less(low, "accuracy") == pytest.approx((0.2, 0.02**0.5, 2))
    assert high.less(Runs(low[2:]), "accuracy").n == 0


def test_the_ceiling_is_compared_on_common_seeds():
    single = Runs(some_run(seed=s, accuracy=0.8 + s / 100, spd=0.05 - s / 10) for s in (0, 1, 2))
    central = Runs(some_run(seed=s, accuracy=0.804 + s / 100, spd=0.02) for s in (0, 1, 7))
    (gap,) = pages.gaps_to_ceiling(single, central)
    assert gap.accuracy == pytest.approx((-0.004, 0, 2))
    assert gap.spd_more == pytest.approx(-0.02)  # |0.0| - |0.02|
    assert gap.met
    assert not gap._replace(accuracy=gap.accuracy._replace(mean=-0.0051)).met
    assert not gap._replace(spd_more=0.0101).met
    assert not [*pages.gaps_to_ceiling(single, Runs([some_run(rho_o=1.0)]))]


def test_the_published_table_is_whole():
    published = beaten.published_cells()
    assert len(published) == 30
    assert {cell.task for cell in published} == set(TASKS)
    cell = TableCell("faithful", "single_shot", "dutch_gender", "small", 1000.0)
    assert published[cell] == (0.7670, 0.0390)
    assert set(published) <= set(cells())


def test_the_page_is_whole_and_names_what_did_not_converge():
    runs = Runs([some_run(), some_run(method="central", converged=False)])
    text = pages.show(runs)["table2.md"]
    assert "| ours | central | dutch_gender | small | 10 | 1 of 1 |" in text
    assert "| 0.8000 | +0.0500 | 10 | yes, on one seed |" in text
    assert "\n\n\n" not in text
    assert len({pages.TABLE2.made_with(cell) for cell in cells()}) > 60


# Privacy, and starts


def test_randomised_response_has_its_odds():
    """The value reported is the true one exp(epsilon) times as often as each other one.

    One false alarm in 10,000, of a fixed seed.
    """
    n, epsilon = 40_000, 1.0
    noisy = randomised_response(np.full(n, 2), 4, epsilon, np.random.default_rng(0))
    counts = np.bincount(noisy, minlength=4)
    odds = np.array([1, 1, np.e, 1]) / (np.e + 3)
    assert chisquare(counts, n * odds).pvalue > 1e-4
    assert chisquare(counts, n * np.array([1, 1, 2.5, 1]) / 5.5).pvalue < 1e-4


def test_the_table_of_commands_says_whether_goals_are_met():
    fast, slow = fit.Usage(1.9, 300.0), fit.Usage(2.1, 350.0)
    other = "client, surrogate"
    found = {"evaluate": [slow, fast, fast], other: [fast], "--help": [fast]}
    runs = [
        Run(fit.CommandSetting(case), seed, usage)
        for case, usages in found.items()
        for seed, usage in enumerate(usages)
    ]
    lines = fit.show_commands(Runs(runs))["commands.md"].splitlines()[6:]
    assert lines[0] == "| evaluate | 1.90 | 1.90 | 350 | 2: met |"
    assert lines[1] == f"| {other} | 1.90 | 1.90 | 300 |  |"
    assert lines[2].endswith("| 0.4: MISSED |")
