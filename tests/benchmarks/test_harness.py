"""The benchmarks' harness, without JAX: what is run again, and what is shown."""

from dataclasses import make_dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from builders import QUICK

import synthfair as sf
from benchmarks import harness
from benchmarks.harness import Experiment, fingerprint
from benchmarks.runs import Run, Runs, mean_of
from synthfair.data.datasets import Source


class Toy(NamedTuple):
    kind: str
    weight: float
    even: bool = False


class Found(NamedTuple):
    score: float
    good: bool


TOYS = tuple(Toy(kind, weight) for kind in "ab" for weight in (1.0, 2.0))
calls = []


def run_toy(setting: Toy, seed: int, *, smoke: bool) -> Found:
    calls.append((setting, seed, smoke))
    return Found(setting.weight + seed, setting.even)


EXPERIMENT = Experiment(
    name="toys", settings=TOYS, run=run_toy, smoke=TOYS[:1], seeds=2, float64=False,
    summary=lambda runs: {"toys.md": f"{len(runs)} runs\n"},
)  # fmt: skip


@pytest.fixture
def done():
    calls.clear()
    return calls


def command(*words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["toys", *map(str, words)])
        harness.main(None, "toys", EXPERIMENT)


def test_runs_that_are_missing_are_made_and_seeds_come_first(tmp_path, done):
    EXPERIMENT.resume(tmp_path, TOYS[:2], seeds=1)
    path = tmp_path / "toys.csv"
    path.write_text(path.read_text()[:-4])  # a line that was cut off is none
    EXPERIMENT.resume(tmp_path, TOYS, seeds=None)
    order = [*TOYS[:2], *TOYS[1:], *TOYS]
    assert [call[:2] for call in done] == [(toy, int(i > 4)) for i, toy in enumerate(order)]
    shown = EXPERIMENT.current(EXPERIMENT.read(tmp_path))
    wanted = [Found(toy.weight + seed, False) for toy in TOYS for seed in (0, 1)]
    assert [run.values for run in shown] == wanted


def test_run_of_other_settings_code_or_files_is_replaced(tmp_path, done):
    changes = {"behind": lambda _: ["old"]}, {"version": 2}
    changes += ({"sources": lambda _: (Source("a.csv", "1" * 64),)},)
    for count, change in enumerate(changes, 1):
        changed = replace(EXPERIMENT, **change)
        assert not changed.current(changed.read(tmp_path))
        changed.resume(tmp_path, TOYS[:1], seeds=1)
        assert [run.made_with for run in changed.read(tmp_path)] == [changed.made_with(TOYS[0])]
        assert len(done) == count


def test_smoke_runs_are_never_taken_for_others(tmp_path, done):
    command("--smoke", "--output", tmp_path)
    assert done == [(TOYS[0], 0, True)]
    command("--seeds", 1, "--output", tmp_path)
    assert [call[1:] for call in done[1:]] == [(0, False)] * len(TOYS)
    with pytest.raises(SystemExit):
        command("--smoke", "--output", harness.RESULTS / "toys")
    with pytest.raises(SystemExit, match="0 runs"):
        command("--show", "--output", tmp_path / "none")


def test_settings_are_chosen_by_their_entries(tmp_path, done):
    command("--seeds", 1, "--output", tmp_path, "--only", "kind=a", "weight=2")
    assert [setting for setting, *_ in done] == [TOYS[1]]


class Wider(NamedTuple):
    rate: float
    memory: float = 0.0
    steps: int = 10


def test_fingerprint_stays_where_a_new_setting_has_its_default():
    usual, named, other = sf.DistillConfig(), sf.DistillConfig(rho_o=10.0), QUICK
    assert fingerprint(usual) == fingerprint(named) != fingerprint(other)
    older = make_dataclass("Old", [("rate", float), ("steps", int, 10)], frozen=True)
    assert fingerprint(older(0.1, 5)) == fingerprint(Wider(0.1, steps=5))
    assert fingerprint(older(0.1)) != fingerprint(Wider(0.1, memory=0.9))


def test_means_have_errors_and_differences_the_seeds_of_both():
    mean = mean_of([0.7, 0.8, 0.9])
    assert (*mean, mean.error) == pytest.approx((0.8, 0.1, 3, 0.1 / 3**0.5))
    low, high = (
        Runs(Run(TOYS[0], seed, Found(value, True)) for seed, value in enumerate(values))
        for values in ((0.1, 0.2, np.nan, 0.4), (0.2, 0.5, 0.9))
    )
    assert high.less(low, "score") == pytest.approx((0.2, 0.02**0.5, 2))
