"""The committed runs, pages and plots: of today's code, of each other, and by their rules."""

import numpy as np
import pytest
from builders import make_schema, make_table
from comparison import same_text, words_and_points

from benchmarks import adult_fpfl, figure2, harness, two_phase
from benchmarks.distilling import prepare
from benchmarks.harness import committed
from benchmarks.table2.cells import TableCell, config_of
from synthfair.data.datasets import configs_folder
from synthfair.data.encode import encode
from synthfair.release.settings import load_release_config

PARTS = [(name, one) for name in harness.NAMES for one in harness.experiments(name)]


@pytest.mark.parametrize(("name", "one"), PARTS, ids=[f"{name}-{one.name}" for name, one in PARTS])
def test_runs_are_of_todays_code_and_pages_of_the_runs(name, one):
    """If not, run the benchmark again, or python -m benchmarks.NAME PART --show."""
    folder = harness.folder_of(name)
    runs = one.read(folder)
    assert len(one.current(runs)) == len(runs)
    there = {(run.setting, run.seed) for run in runs}
    if not {*one.missing([], one.settings, None)} <= there:
        assert not one.default
        pytest.skip("not all of its runs are there")
    for file, text in one.summary(one.current(runs)).items():
        assert agrees(file, (folder / file).read_text(encoding="utf-8"), text), file


def agrees(file, committed, made):
    """Whether a page is the committed one, or a plot has its words and as many points."""
    if file.endswith(".svg"):
        return words_and_points(committed) == words_and_points(made)
    return same_text(committed, made)


def test_published_settings_are_those_of_the_paper():
    """Covariance, a ridge of 1e-3 (1e-4 in figure 2), and inputs x and s, in this order."""
    kept = {"penalty": "covariance", "lambda_theta": 1e-3, "lambda_x": 1e-4, "group_input": True}
    cell = TableCell("faithful", "single_shot", "dutch_gender", "small", 10.0)
    config = config_of(cell, n_synthetic=16)
    assert (kept | {"intercept": False, "rho_s": 0.0}).items() <= config.model_dump().items()
    for name in ("dutch/gender", "law_school/race", "law_school/gender"):
        file = load_release_config(configs_folder() / f"{name}.toml")
        assert kept.items() <= file.model_dump().items()
    heat = {config_of(one.cell, **one.changes).lambda_theta for one in figure2.FIGURE2.settings}
    assert heat == {1e-4}
    real = prepare(encode(make_table(), make_schema()), config).objective.rows
    np.testing.assert_array_equal(real.a[:, -1], real.s)


def test_settings_are_those_that_were_chosen():
    chosen = adult_fpfl.chosen(committed("adult_fpfl", "choices"))
    assert {row: one[2:] for row, one in chosen.items()} == adult_fpfl.CHOSEN
    assert two_phase.chosen(committed("two_phase", "choices")) == two_phase.KAPPAS
