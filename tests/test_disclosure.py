"""The attacker of the benchmark of disclosures, on tables whose counts are plain to see."""

import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from benchmarks import disclosure, trainers
from synthfair.compare import Federation
from synthfair.data.encode import Encoded
from synthfair.surrogate import WeightedTable

ONE_OF_EACH = np.array([[1.0, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 1]])
"""Four rows: a 0/1 column, and a category of two, of which the third feature is the other one."""
COLUMN = np.array([0, 1, 1])


def test_the_rows_themselves_give_all_counts():
    """Two rows have the first feature, and differ in the others; the last two are alike."""
    found = disclosure.counts_given(ONE_OF_EACH, np.ones(4), ONE_OF_EACH, COLUMN)
    assert found == (2, 2, 0, 4, 2)


def test_weights_count_as_rows():
    distinct, weight = ONE_OF_EACH[:3], np.array([1.0, 1.0, 2.0])
    assert disclosure.counts_given(distinct, weight, ONE_OF_EACH, COLUMN) == (2, 2, 0, 4, 2)


def test_a_category_without_a_row_has_no_count_and_one_that_all_have_does():
    real = np.array([[1.0, 0, 1], [1, 0, 1]])
    assert disclosure.counts_given(real, np.ones(2), real, COLUMN)[:3] == (1, 1, 0)


@pytest.mark.parametrize(("shift", "found"), [(0.3, (0, 0)), (1.0, (0, 2)), (0.004, (2, 0))])
def test_counts_are_given_if_they_are_near_and_wrong_if_they_are_near_another(shift, found):
    """One row more of a weight that has both features."""
    sent = np.vstack([ONE_OF_EACH, [1.0, 1, 1]])
    weight = np.array([1.0, 1, 1, 1, shift])
    assert disclosure.counts_given(sent, weight, ONE_OF_EACH, COLUMN)[1:3] == found


def test_a_cell_that_is_left_out_gives_nothing():
    none = ONE_OF_EACH[:0]
    assert disclosure.counts_given(none, np.ones(0), ONE_OF_EACH, COLUMN) == (2, 0, 0, 4, 0)


def test_the_attack_solves_for_one_value_and_for_two():
    for others in ([0.3], [0.3, 0.9], [0.2, 0.2]):
        column = np.array([0.5] * 60 + others)
        constant, differing = disclosure.singled_out(column) or pytest.fail("none singled out")
        guess = disclosure.solved(len(column), column.mean(), column.var(), constant)
        np.testing.assert_allclose(guess[len(others) - 1], differing, atol=1e-6)
        weight = np.ones(len(column))
        assert disclosure.read_out(column[:, None], weight, column[:, None]) == 1
    assert disclosure.singled_out(np.array([0.5] * 60 + [0.1, 0.2, 0.3])) is None


def test_cells_are_those_of_the_real_rows_and_weights_give_their_size():
    """Two groups with one label each; of the second the file says one row too many."""
    schema = make_schema()
    real = sf.encode(make_table(40), schema)
    real = real._replace(s=np.repeat([0, 1], 20), y=np.repeat([-1.0, 1.0], 20))
    file = WeightedTable(*real, weight=np.where(real.s == 1, 1.05, 1.0))
    found = disclosure.disclosed(file, real, schema)
    assert (found.cells, found.cells_given, found.rows) == (2, 1, 40)
    alone = disclosure.disclosed(WeightedTable(*(part[:20] for part in file)), real, schema)
    assert alone[:2] == found[:2]


def test_a_small_run_of_surrogates_is_stored_and_shown(tmp_path):
    experiment, kind = disclosure.DISCLOSURE.small(), "surrogate --k-min 10"
    experiment.resume(tmp_path, [disclosure.FileKind(kind)], seeds=1, smoke=True)
    runs = experiment.read(tmp_path)
    (run,) = runs
    assert run.values.cells == 4
    assert (run.values.numbers, run.values.rows) == (0, 397)
    assert run.values.singled_out < 0.05 * run.values.rows  # by chance
    line = f"| `{kind}` | {run.values.cells_given} of 4 |"
    assert line in experiment.summary(runs)["disclosure.md"]


@pytest.mark.parametrize("trainer", trainers.TRAINERS)
def test_a_trainer_is_measured_on_the_test_rows(monkeypatch, trainer):
    """Labels follow the one feature; group 1 has three positive rows of four, group 0 one."""
    x, s = np.array([[0.0, 0, 0, 1, 0, 1, 1, 1]]).T, np.repeat([0, 1], 4)
    y = 2 * x[:, 0] - 1
    test = Encoded(x, s, y)
    inputs = np.column_stack([x, np.ones(len(y))]), s, y
    rows = sf.Rows(*(np.tile(part, (20, 1)[: part.ndim]) for part in inputs))
    alone = Federation(make_schema(), (test,), (test,), ("only",), (test,))
    monkeypatch.setattr(trainers, "federation", lambda _: alone)
    monkeypatch.setattr(trainers, "given_rows", lambda *_, **__: rows)
    setting = trainers.TrainerSetting("real rows", trainer)
    assert trainers.run_trainer(setting, 0, smoke=True) == (1.0, 0.5)
