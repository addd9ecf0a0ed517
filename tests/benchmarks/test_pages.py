"""The committed pages, plots and verdicts: of the committed runs, and by the rules that they state."""

import re

import numpy as np
import pytest
from builders import make_schema, make_table
from comparison import same_plot, same_text, words_and_points

from benchmarks import figure2, harness
from benchmarks.distilling import prepare
from benchmarks.harness import RESULTS
from benchmarks.table2.cells import TASKS, TableCell, config_of
from synthfair.data.datasets import configs_folder, dataset_schema
from synthfair.data.encode import encode
from synthfair.release.settings import load_release_config

PARTS = [(name, one) for name in harness.NAMES for one in harness.experiments(name)]


@pytest.mark.parametrize(("name", "one"), PARTS, ids=[f"{name}-{one.name}" for name, one in PARTS])
def test_the_committed_pages_and_plots_are_of_the_committed_runs(name, one):
    """If not: python -m benchmarks.NAME PART --show."""
    folder = harness.folder_of(name)
    runs = one.current(one.read(folder))
    if not one.default and len(runs) < len(one.missing([], one.settings, None)):
        pytest.skip("not all of its runs are there")
    for file, text in one.summary(runs).items():
        assert agrees(file, (folder / file).read_text(encoding="utf-8"), text), file


def agrees(file, committed, made):
    """Whether a page or a plot is the committed one; versions of matplotlib draw differently."""
    if file.endswith(".svg"):
        if len({re.search(r"Matplotlib v[\d.]+", plot)[0] for plot in (committed, made)}) > 1:
            return words_and_points(committed) == words_and_points(made)
        return same_plot(committed, made)
    return same_text(committed, made)


@pytest.mark.parametrize(
    ("kind", "number"), [("md", r"(?<=\d\.\d\d)\d"), ("svg", r"(?<=\nL )\d+(?=\.)")]
)
def test_a_page_or_plot_with_another_number_is_seen(kind, number):
    """Two units of the third decimal; two points in a plot."""
    for path in sorted(RESULTS.rglob(f"*.{kind}"))[::8]:
        text = path.read_text(encoding="utf-8")
        altered = re.sub(number, lambda found: str((int(found[0]) + 2) % 1000), text, count=1)
        assert agrees(path.name, text, text)
        assert agrees(path.name, text, altered) is (altered == text), path


def test_the_published_setting_is_that_of_the_paper():
    """Covariance, a ridge of 1e-3 (1e-4 in figure 2), and inputs x and s, in whose order theta is."""
    kept = {"penalty": "covariance", "lambda_theta": 1e-3, "lambda_x": 1e-4, "group_input": True}
    cell = TableCell("faithful", "single_shot", "dutch_gender", "small", 10.0)
    config = config_of(cell, n_synthetic=16)
    kept_here = kept | {"intercept": False, "rho_s": 0.0}
    assert kept_here.items() <= config.model_dump().items()
    files = [
        configs_folder() / f"{name}.toml"
        for name in ("dutch/gender", "law_school/race", "law_school/gender")
    ]
    for path in files:
        assert kept.items() <= load_release_config(path).model_dump().items()
    (heat,) = {config_of(one.cell, **one.changes).lambda_theta for one in figure2.FIGURE2.settings}
    assert heat == 1e-4
    table = make_table()
    problem = prepare(encode(table, make_schema()), config)
    np.testing.assert_array_equal(problem.constant, [problem.s])
    assert set(np.asarray(problem.s)) == {0, 1}
    real = problem.objective.rows
    np.testing.assert_array_equal(real.a[:, -1], real.s)
    # In the paper's numbers: 10 features of Dutch, and the sensitive attribute.
    assert {len(dataset_schema(task.dataset).encoded_names) for task in TASKS.values()} == {10}
