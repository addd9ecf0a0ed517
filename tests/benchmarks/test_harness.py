"""The benchmarks' harness, without JAX: what is run again, and what is shown."""

from dataclasses import make_dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

import synthfair as sf
from benchmarks import __main__ as everything
from benchmarks import harness
from benchmarks.harness import Experiment, fingerprint
from benchmarks.runs import Run, Runs, mean_of
from benchmarks.table2 import beaten
from benchmarks.table2.cells import TableCell, TableValues
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
    assert commands[0][3:] == ["--smoke", "--seeds", "2", "--output", str(tmp_path / "table2")]
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


# Table 2


def some_run(rho_o=10.0, seed=0, accuracy=0.8, spd=0.05, *, method="single_shot", converged=True):
    cell = TableCell("ours", method, "dutch_gender", "small", rho_o)
    return Run(cell, seed, TableValues(accuracy, spd, 0.1, np.nan, 0.3, converged, 1.5))


def published_cell(runs, accuracy=0.8, spd=0.05):
    cell = TableCell("faithful", "single_shot", "dutch_gender", "small", 10.0)
    return beaten.PublishedCell(cell, accuracy, spd, [], beaten.curve(Runs(runs)), None)


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


class Accuracy(NamedTuple):
    accuracy: float


def test_differences_are_of_the_seeds_that_both_have():
    low, high = (
        Runs(Run(TOYS[0], seed, Accuracy(value)) for seed, value in enumerate(values))
        for values in ((0.1, 0.2, np.nan, 0.4), (0.2, 0.5, 0.9))
    )
    assert high.less(low, "accuracy") == pytest.approx((0.2, 0.02**0.5, 2))
    assert high.less(Runs(low[2:]), "accuracy").n == 0


# Privacy, and starts
