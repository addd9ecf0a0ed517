"""The benchmarks' own logic: what is skipped, what counts as beaten."""

import numpy as np
import pytest

from benchmarks import table2
from benchmarks.table2 import Run, Unit, append_runs, read_runs, units
from benchmarks.table2_show import Cell, answer, means, published


def some_run(rho_o=10.0, seed=0, accuracy=0.8, spd=0.05, **changes):
    run = Run(
        "ours", "single_shot", "dutch_gender", "small", rho_o, seed, accuracy, spd, 0.1, np.nan, 0.3,
        True, 1.5,
    )  # fmt: skip
    return run._replace(**changes)


def test_runs_survive_the_file(tmp_path):
    runs = [some_run(), some_run(seed=1, converged=False, excess=1e-9)]
    append_runs(tmp_path / "x.csv", runs[:1])
    append_runs(tmp_path / "x.csv", runs[1:])
    for found, run in zip(read_runs(tmp_path / "x.csv"), runs, strict=True):
        assert found._replace(excess=0) == run._replace(excess=0)
        assert found.excess == pytest.approx(run.excess, nan_ok=True)


def test_only_what_is_missing_is_run(tmp_path, monkeypatch):
    made = []

    def fake(unit, rhos, **_):
        made.append(unit)
        return [some_run(**unit._asdict())]

    monkeypatch.setattr(table2, "curve", fake)
    table2.run("ours", 1, tmp_path, rhos=(0.0,))
    assert made == list(units("ours", 1))
    table2.run("ours", 2, tmp_path, rhos=(0.0,))
    assert made == list(units("ours", 2))


def test_means_and_standard_errors():
    (mean,) = means([some_run(accuracy=a, spd=0.1) for a in (0.7, 0.8, 0.9)])
    assert mean.accuracy == pytest.approx(0.8)
    assert mean.accuracy_error == pytest.approx(0.1 / 3**0.5)
    assert mean.spd_error == pytest.approx(0)


@pytest.mark.parametrize(
    ("accuracy", "spd", "verdict"),
    [
        (0.85, 0.01, "yes"),
        (0.85, -0.01, "yes"),
        (0.75, 0.01, None),
        (0.85, 0.09, None),
        (0.85, -0.09, None),
        (0.8003, 0.01, "yes, within one standard error"),
    ],
)
def test_a_cell_is_beaten_in_both_or_not_at_all(accuracy, spd, verdict):
    curve = means([some_run(accuracy=accuracy + e, spd=spd + e) for e in (-0.001, 0, 0.001)])
    found = answer(Cell("dutch_gender", "small", 10.0, 0.8, 0.05), curve)
    assert (found and found[1]) == verdict


def test_the_published_table_is_whole():
    cells = published()
    assert len(cells) == 30
    assert {cell.task for cell in cells} == set(table2.TASKS)
    assert Cell("dutch_gender", "small", 1000.0, 0.7670, 0.0390) in cells


def test_units_are_whole_tables_first():
    first = list(units("ours", 3))[: len(list(units("ours", 1)))]
    assert {unit.seed for unit in first} == {0}
    assert Unit("ours", "fedavg", "law_school_race", "", 0) in first
