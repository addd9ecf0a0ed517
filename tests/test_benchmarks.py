"""The benchmarks' own logic: what is skipped, what counts as beaten."""

import numpy as np
import pytest
from scipy.stats import chisquare

from benchmarks import cold, table2
from benchmarks.table2 import (
    Run,
    Unit,
    append_runs,
    fingerprint,
    grid,
    missing,
    read_runs,
    scaling_of,
    settings,
    units,
)
from benchmarks.table2_show import Cell, answer, gaps_to_ceiling, means, published
from synthfair.data.encode import Encoded


def some_run(rho_o=10.0, seed=0, accuracy=0.8, spd=0.05, **changes):
    run = Run(
        "ours", "single_shot", "dutch_gender", "small", rho_o, seed, accuracy, spd, 0.1, np.nan, 0.3,
        True, 1.5, "abc",
    )  # fmt: skip
    return run._replace(**changes)


def test_runs_survive_the_file(tmp_path):
    runs = [some_run(), some_run(seed=1, converged=False, excess=1e-9)]
    append_runs(tmp_path / "x.csv", runs[:1])
    append_runs(tmp_path / "x.csv", runs[1:])
    for found, run in zip(read_runs(tmp_path / "x.csv"), runs, strict=True):
        assert found._replace(excess=0) == run._replace(excess=0)
        assert found.excess == pytest.approx(run.excess, nan_ok=True)


UNIT = Unit("ours", "single_shot", "dutch_gender", "small", 0)


def as_run(rho_o, **changes):
    key = fingerprint(settings(UNIT, rho_o, **changes), scaling_of("ours"))
    return some_run(rho_o=rho_o, settings=key)


def test_only_what_is_missing_is_run():
    runs = [as_run(0.0), as_run(10.0), as_run(100.0)._replace(task="law_school_race")]
    assert missing(UNIT, (0.0, 10.0, 100.0), runs) == (100.0,)
    assert missing(UNIT._replace(seed=1), (0.0, 10.0), runs) == (0.0, 10.0)


def test_runs_of_other_settings_are_not_taken_for_these():
    with pytest.raises(SystemExit, match="other settings"):
        missing(UNIT, (0.0, 10.0), [as_run(10.0, temperature=1.5)])


def test_the_grid_of_a_unit():
    assert grid(UNIT, smoke=False) == table2.RHO_OURS
    assert grid(UNIT._replace(method="local", size=""), smoke=False) == table2.RHO_OTHERS
    assert grid(UNIT._replace(recipe="faithful"), smoke=False) == table2.RHO_FAITHFUL


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    path = tmp_path / "x.csv"
    append_runs(path, [some_run(seed=0), some_run(seed=1)])
    path.write_text(path.read_text()[:-30])
    assert [run.seed for run in read_runs(path)] == [0]
    append_runs(path, [some_run(seed=1)])
    assert [run.seed for run in read_runs(path)] == [0, 1]


def test_one_seed_claims_no_error():
    curve = means([some_run(accuracy=0.8001, spd=0.0499)])
    assert str(answer(Cell("dutch_gender", "small", 10.0, 0.8, 0.05), curve)) == "yes, on one seed"
    assert "±" not in str(curve[0])


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
        (0.75, 0.01, "no"),
        (0.85, 0.09, "no"),
        (0.85, -0.09, "no"),
        (0.8003, 0.01, "yes, within one standard error"),
        (0.85, 0.0503, "no, within one standard error"),
    ],
)
def test_a_cell_is_beaten_in_both_or_not_at_all(accuracy, spd, verdict):
    curve = means([some_run(accuracy=accuracy + e, spd=spd + e) for e in (-0.001, 0, 0.001)])
    cell = Cell("dutch_gender", "small", 10.0, 0.8, 0.05)
    found = answer(cell, [*curve, *means([some_run(rho_o=99.0, accuracy=0.1, spd=0.9)])])
    assert str(found) == verdict
    assert found.mean.rho_o == 10.0
    assert answer(cell, []) is None


def test_the_ceiling_is_compared_on_common_seeds():
    single = [some_run(seed=s, accuracy=0.8 + s / 100, spd=0.05 - s / 10) for s in (0, 1, 2)]
    central = [some_run(seed=s, accuracy=0.804 + s / 100, spd=0.02) for s in (0, 1, 7)]
    (gap,) = gaps_to_ceiling(single, central)
    assert gap.seeds == 2
    assert gap.accuracy == pytest.approx(-0.004)
    assert gap.accuracy_error == pytest.approx(0)
    assert gap.spd == pytest.approx(-0.02)  # |0.0| - |0.02|
    assert gap.met
    assert not gap._replace(accuracy=-0.0051).met
    assert not gap._replace(spd=0.0101).met
    assert gaps_to_ceiling(single, [some_run(rho_o=1.0)]) == []


def test_the_published_table_is_whole():
    cells = published()
    assert len(cells) == 30
    assert {cell.task for cell in cells} == set(table2.TASKS)
    assert Cell("dutch_gender", "small", 1000.0, 0.7670, 0.0390) in cells


def test_units_are_whole_tables():
    found = list(units("ours", 3))
    assert {unit.seed for unit in found} == {3}
    assert Unit("ours", "fedavg", "law_school_race", "", 3) in found
    assert {(u.task, u.size) for u in units("faithful", 0)} == {
        (task, size) for task in table2.TASKS for size in table2.SIZES
    }


def test_randomised_response_keeps_its_odds():
    """The pair told is the true one exp(epsilon) times as often as each other pair; the features
    are as they were. One false alarm in 10,000."""
    from benchmarks.privacy.__main__ import randomised

    n, epsilon = 40_000, 1.0
    real = Encoded(np.arange(n)[:, None] / n, np.ones(n, int), -np.ones(n))
    told = randomised(real, epsilon, 2, seed=0)
    counts = np.bincount(2 * told.s + (told.y > 0), minlength=4)
    odds = np.array([1, 1, np.e, 1]) / (np.e + 3)
    assert chisquare(counts, n * odds).pvalue > 1e-4
    assert chisquare(counts, n * np.array([1, 1, 2.5, 1]) / 5.5).pvalue < 1e-4
    np.testing.assert_array_equal(told.x, real.x)


def test_the_table_of_epsilons_says_whether_goals_are_met():
    from benchmarks.privacy.__main__ import Run
    from benchmarks.privacy.show import table

    base = [Run("t", "plain", np.inf, seed, 0.9, 0.02) for seed in range(2)]
    good = [Run("t", "private", 1.0, seed, 0.896, 0.03) for seed in range(2)]
    bad = [Run("t", "private", 0.5, seed, 0.896, 0.06) for seed in range(2)]
    text = table([*base, *good, *bad])
    assert "0.005 and 0.02: met" in text
    assert "0.01 and 0.03: MISSED" in text


def test_the_table_of_starts_says_whether_goals_are_met():
    fast, slow = cold.Communication(2.4, 300.0), cold.Communication(2.6, 350.0)
    warm, other = "N_s = 800, warm", "N_s = 8319, warm"
    lines = cold.table({warm: [slow, fast, slow], other: [fast], cold.HELP: [fast]}).splitlines()
    assert lines[2] == f"| {warm} | 2.40 | 2.60 | 350 | 2.5: met |"
    assert lines[3] == f"| {other} | 2.40 | 2.40 | 300 |  |"
    assert lines[4].endswith("| 0.4: MISSED |")
    assert "MISSED" in cold.table({warm: [slow]})
