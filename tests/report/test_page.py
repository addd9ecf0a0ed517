"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import html
import json
import re
import statistics
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from browser import headless, needs_browser
from exported import additive, linear
from federation_runs import COURSE
from report_runs import copied, edited, page_of, tables, write_runs
from scipy.stats import binomtest

import synthfair as sf
from synthfair.cli import main
from synthfair.fairness.intervals import size, verdict
from synthfair.fairness.metrics import Metric
from synthfair.files import write_json
from synthfair.metrics_file import Metrics
from synthfair.report.page import write_report

NAN = float("nan")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(runs, path)
    return path


def read(folder):
    return json.loads((folder / "metrics.json").read_text())


def expected_cells(runs):
    """What each run's tables by client must show, from metrics.json alone: gaps, then all else."""
    for metrics in map(read, runs):
        parts = [("all together", metrics), *metrics["per_client"].items()]
        for name, part in parts:
            alone = part["spd"] if part is metrics else part["spd"] | {"low": NAN, "high": NAN}
            gap = metrics["client_gaps"].get("spd", {}).get(name, alone)
            yield name, cell(part["accuracy"]), cell(gap), verdict(size(Metric(*gap.values())), 0.1)
        for name, part in parts:
            others = (key for key in Metrics.model_fields if key not in ("accuracy", "spd"))
            yield name, *(cell(part[key]) for key in others)


def unfolded_cells(runs):
    return [cells for cells in expected_cells(runs) if len(cells) == 4]


def cell(metric):
    value, low, high = (f"{metric[key]:z.3f}" for key in ("value", "low", "high"))
    return value if low == "nan" else f"{value} [{low}, {high}]"


def expected_rates(runs):
    for metrics in map(read, runs):
        for group, rates in metrics["by_group"].items():
            positive = sum(found[group]["positive"] for found in metrics["rows"].values())
            n = rates["n"]
            rows = {"selection_rate": n, "true_positive_rate": positive,
                    "false_positive_rate": n - positive, "error_rate": n}  # fmt: skip
            found = {k: binomtest(round(rates[k] * m), m).proportion_ci() for k, m in rows.items()}
            cells = {k: {"value": rates[k], "low": c.low, "high": c.high} for k, c in found.items()}
            yield group, str(n), *map(cell, cells.values())


def test_page_has_the_numbers_of_metrics_json(page, runs):
    for title, expected in (
        ("By client", expected_cells),
        ("Rates by group", expected_rates),
    ):
        rows = [row for _, *rows in tables(page.read_text(), title) for row in rows]
        assert rows == list(expected(runs))


def test_page_has_mean_and_deviation_over_seeds(page, runs):
    ((titles, *rows),) = tables(page.read_text(), "all runs")
    found = {row[0]: dict(zip(titles, row, strict=True)) for row in rows}
    for folders, method in ((runs[::2], "single-shot"), (runs[1::2], "central")):
        metrics = [read(folder) for folder in folders]
        for title, key in (("accuracy", "accuracy"), ("SPD", "spd")):
            values = [m[key]["value"] for m in metrics]
            mean = f"{statistics.mean(values):z.3f} ± {statistics.stdev(values):.3f}"
            assert found[method][title] == mean
        seconds = f"{statistics.mean(m['seconds'] for m in metrics):.1f}"
        costs = {"runs": "2", "rounds": "1", "bytes sent": "5,000", "seconds": seconds}
        assert found[method].items() >= costs.items()


@pytest.mark.usefixtures("text_only")
def test_page_has_what_a_run_says_of_itself(runs, tmp_path):
    moved = {"scores": 0.5, "relative": 0.25, "spd": None, "outlier": True}
    influence = {"outliers_above": None, "releases": {"a": moved}}
    own = {"table": None, "influence": influence, "converged": False, "warnings": ["It warns."]}
    folder = edited(runs[0], tmp_path / "run", **own)
    write_json(folder / "federation.json", COURSE)
    text = page_of(folder)
    assert tables(text, "How far each release moves the model")[0][1:] == [
        ("a", "0.500", "0.250", "undefined", "OUTLIER")
    ]
    assert tables(text, "How the sites have answered")[0][1:] == [
        ("city", "ok", "1", "5.500", "", "283,000", "0.1.0"),
        ("suburbs", "releases", "0", "0.100", "0.020", "0", ""),
    ]
    ((titles, row),) = tables(text, "all runs")
    assert row[titles.index("converged")] == "NO"
    assert '<p class="warn">It warns.</p>' in text


def test_page_of_a_model_has_its_coefficients_and_shapes(runs, tmp_path):
    model, folder = linear(additive()), edited(runs[0], tmp_path / "run")
    sf.write_model(model, folder / "model.json")
    files = write_report(folder, tmp_path / "r.html")
    ((_, *rows),) = tables((tmp_path / "r.html").read_text(), "What each column adds to the score")
    assert rows == [(name, f"{value:z.4f}") for name, value in model.coefficients.items()]
    (drawn,) = (file.read_text() for file in files if file.name == "run-shapes.svg")
    assert all(f">{name}<" in drawn for name in model.schema_.features)


@pytest.mark.usefixtures("text_only")
def test_page_without_matplotlib_has_no_figures(runs, tmp_path):
    assert write_report(runs, tmp_path / "r.html") == [tmp_path / "r.html"]
    assert "<figure>" not in (tmp_path / "r.html").read_text()


WIDE = """return [...document.querySelectorAll('.scroll')].filter(
  part => part.scrollWidth > part.clientWidth).length"""

CUT = """return [...document.querySelectorAll('svg text')].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.bottom > outer.bottom;
}).map(text => text.textContent)"""

RIGHT = """return Math.max(...[...document.querySelectorAll('table')].map(
  table => table.getBoundingClientRect().right))"""


def resize(driver, width, *, media="screen"):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@needs_browser
def test_browser_opens_the_page_without_error_and_shows_the_numbers(page, runs):
    from selenium.webdriver.common.by import By

    with headless() as driver:
        driver.get(page.as_uri())
        assert driver.get_log("browser") == []
        for run in driver.find_elements(By.CSS_SELECTOR, "details.run:not([open]) > summary"):
            run.click()
        for figure in driver.find_elements(By.TAG_NAME, "img"):
            assert figure.size["width"] > 200
            assert figure.get_property("naturalWidth") > 0, "the browser cannot read the figure"
        rows = driver.find_elements(By.CSS_SELECTOR, "[aria-label='By client'] tbody tr")
        shown = [" ".join(row.text.split()) for row in rows]
        assert [row for row in shown if row] == [" ".join(cells) for cells in unfolded_cells(runs)]
        assert len(driver.find_element(By.TAG_NAME, "body").text.split()) < 1200
        resize(driver, 1280)
        assert driver.execute_script(WIDE) == 0, "a table is wider than a usual screen"
        resize(driver, 700, media="print")
        assert driver.execute_script(RIGHT) <= 700, "a table is wider than paper"
        resize(driver, 360)
        assert driver.execute_script(WIDE) == 0, "a table has to be moved on a telephone"
        for plot in (page.parent / "report_plots").iterdir():
            driver.get(plot.as_uri())
            assert driver.execute_script(CUT) == []


def test_page_needs_no_network(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert not re.findall("<script|@import", text)


def test_plots_are_the_figures_of_the_page(page):
    plots = {path.name: path.read_text() for path in (page.parent / "report_plots").iterdir()}
    embedded = re.findall(r'src="data:image/svg\+xml,(.*?)"', page.read_text())
    assert sorted(map(unquote, embedded)) == sorted(plots.values())


HOSTILE = "<script>alert(1)</script>", '"a" & b', "$\\frac{1}$", "_hidden", "all together"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_are_hostile_are_shown_and_not_run(name, runs, tmp_path):
    metrics, folder = read(runs[0]), tmp_path / "new\nline" / name.replace("/", "_")
    folder.parent.mkdir()
    edited(
        runs[0], folder, rows=None, client_gaps={}, method=name, warnings=[name],
        by_group={name: next(iter(metrics["by_group"].values()))},
        per_client={name: next(iter(metrics["per_client"].values()))},
    )  # fmt: skip
    course = COURSE | {"error": name, "sites": {name: {"code": "ok"}}}
    write_json(folder / "federation.json", course)
    _, *plots = write_report(folder, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script" not in text
    assert [row for _, *rows in tables(text, "By client") for row in rows] == [
        *expected_cells([folder])
    ]
    for title in ("Rates by group", "How the sites have answered"):
        assert [row[0] for row in tables(text, title)[0][1:]] == [name]
    (groups,) = (plot.read_text() for plot in plots if plot.name.endswith("-groups.svg"))
    assert html.escape(name, quote=False) in groups
    for plot in plots:
        ElementTree.fromstring(plot.read_text())
        assert "\n" not in plot.name


def test_runs_of_one_name_keep_their_plots_apart(runs, tmp_path):
    for pair in (("a/server", "b/server"), ("x-y/z", "x/y-z")):
        folders = [copied(runs[0], tmp_path / name, seed=i) for i, name in enumerate(pair)]
        files = write_report(folders, tmp_path / "r.html", force=True)
        assert len({*files}) == 4


@pytest.mark.usefixtures("text_only")
def test_page_takes_the_place_of_another_by_force_and_never_of_what_it_shows(runs, tmp_path):
    run, page = copied(runs[0], tmp_path / "x"), tmp_path / "r.html"
    page.write_text("mine")
    with pytest.raises(sf.InputError, match="exists"):
        write_report(run, page)
    assert page.read_text() == "mine"
    write_report(run, page, force=True)
    assert "mine" not in page.read_text()
    for name in ("metrics.json", "model.json"):
        with pytest.raises(sf.InputError, match="named twice"):
            write_report(run, run / name, force=True)


def test_report_command_writes_page_and_plots_or_refuses(runs, tmp_path, capsys):
    page = tmp_path / "r.html"
    argv = ["report", str(runs[0]), "--output", str(page), "--max-gap"]
    assert main([*argv, "2"]) == 2
    assert not page.exists()
    assert main([*argv, "0.01"]) == 0
    for title in ("all runs", "By client"):
        assert "at most 0.01?" in tables(page.read_text(), title)[0][0]
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json" in capsys.readouterr().err
