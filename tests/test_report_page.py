"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import html
import itertools
import json
import re
import shutil
import statistics
from xml.etree import ElementTree

import pytest
from report_runs import CONFIG, Tables, copied, edited, write_runs
from scipy.stats import binomtest

import synthfair as sf
from synthfair.cli import main
from synthfair.release.format import disclosures
from synthfair.report import read_results, write_report
from synthfair.report.page import TITLES


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(read_results(runs), path)
    return path


def shown(value):
    return "undefined" if value is None else f"{value:.4f}"


def expected_cells(runs):
    """What each cell of each run's table of metrics must show, from metrics.json alone."""
    for folder in runs:
        metrics = json.loads((folder / "metrics.json").read_text())
        for name, part in {"all clients": metrics, **metrics["per_client"]}.items():
            for key in TITLES:
                value, low, high = (shown(part[key][k]) for k in ("value", "low", "high"))
                yield key, name, f"{value} [{low}, {high}]"


def expected_rates(runs):
    for folder in runs:
        metrics = json.loads((folder / "metrics.json").read_text())
        for group, rates in metrics["by_group"].items():
            positive = sum(found[group]["positive"] for found in metrics["rows"].values())
            rows = {
                "selection_rate": rates["n"],
                "true_positive_rate": positive,
                "false_positive_rate": rates["n"] - positive,
                "error_rate": rates["n"],
            }
            cells = [wilson_cell(rates[key], n) for key, n in rows.items()]
            yield group, str(rates["n"]), *cells


def wilson_cell(share, n):
    found = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return f"{share:.4f} [{found.low:.3f}, {found.high:.3f}]"


def test_the_numbers_are_those_of_metrics_json(page, runs):
    shown = Tables(page.read_text())
    assert shown.metrics == list(expected_cells(runs))
    assert shown.rates == list(expected_rates(runs))


def test_the_overview_is_mean_and_standard_deviation(page, runs):
    found = {(r[0], r[4]): (*r[1:3], *r[4:]) for r in Tables(page.read_text()).overview}
    for folders, row in (
        (runs[::2], ("single-shot", "rho_o = 0")),
        (runs[1::2], ("central", "rho_o = 10")),
    ):
        metrics = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
        accuracy, spd = ([m[key]["value"] for m in metrics] for key in ("accuracy", "spd"))
        means = [f"{statistics.mean(v):.4f} ± {statistics.stdev(v):.4f}" for v in (accuracy, spd)]
        assert (*found[row][:3], *found[row][-2:]) == (*means, row[1], "yes", "2")
        costs = [(m["cost"]["rounds"], m["seconds"]) for m in metrics]
        assert found[row][3] == str(costs[0][0]) == "1"
        assert found[row][4:6] == ("5 kB", f"{statistics.mean(c[1] for c in costs):.1f}")
        assert found[row][6] == "none"


def test_what_did_not_converge_is_said(runs, tmp_path):
    write_report(
        read_results([edited(runs[0], tmp_path / "u", converged=False)]), tmp_path / "r.html"
    )
    text = (tmp_path / "r.html").read_text()
    assert Tables(text).overview[1][-2] == "NO"
    assert "did not converge" in text


def test_disclosures_and_private_curves_are_reported(page, runs):
    text = html.unescape(page.read_text())
    singles = [run for run in runs if run.name.startswith("single")]
    for line in disclosures(CONFIG):
        assert text.count(line) == 2 * len(singles)
    assert text.count("not to be published") == len(singles)


def test_every_picture_has_a_title_and_a_table(page, runs):
    text = page.read_text()
    charts = re.findall(r"<figure>(<svg .*?</svg>)<figcaption>(.*?)\.", text, re.DOTALL)
    # The answer; of each run groups, two of thresholds, calibration; two of what was distilled.
    assert len(charts) == 1 + 4 * len(runs) + 2 * 2
    for svg, title in charts:
        assert ElementTree.fromstring(svg).get("aria-label") == html.unescape(title)
        assert 'role="img"' in svg
    for kind, times in {"points": 1, "thresholds": 4, "bins": 4, "rates": 4, "curves": 2}.items():
        assert text.count(f'<table class="{kind}">') == times


def test_headings_are_in_order(page):
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", page.read_text())]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs chromium and chromium-driver",
)
def test_a_browser_opens_it_without_error_and_shows_the_numbers(page, runs):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.get(page.as_uri())
        assert driver.get_log("browser") == []
        for chart in driver.find_elements(By.TAG_NAME, "svg"):
            assert chart.size["width"] > 200
            assert chart.get_attribute("aria-label")
        cells = driver.find_elements(By.CSS_SELECTOR, "td[data-metric]")
        shown = [
            (c.get_attribute("data-metric"), c.get_attribute("data-rows"), " ".join(c.text.split()))
            for c in cells
        ]
        assert shown == list(expected_cells(runs))
        size = {"width": 360, "height": 800, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        width = "return document.documentElement.scrollWidth"
        assert driver.execute_script(width) <= 360, "wider than a phone"
        cell = driver.find_elements(By.CSS_SELECTOR, "table.overview td")[1]
        assert cell.location["x"] + cell.size["width"] <= 360, "the gap is out of sight"
    finally:
        driver.quit()


def test_it_needs_no_network(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "<script" not in text
    assert "@import" not in text


def test_plots_are_files_too_and_the_same_each_time(page, runs, tmp_path):
    plots = {path.name: path.read_bytes() for path in (page.parent / "report_plots").iterdir()}
    assert "answer.svg" in plots
    for plot in plots.values():
        assert ElementTree.fromstring(plot).tag.endswith("svg")
    again = tmp_path / "report.html"
    write_report(read_results(runs[:1]), again)
    names = ("single_shot-seed_0-groups.svg", "single_shot-seed_0-objective.svg")
    for name in names:
        assert (tmp_path / "report_plots" / name).read_bytes() == plots[name]


def test_an_existing_page_needs_force(runs, tmp_path):
    results, page = read_results(runs[1:2]), tmp_path / "r.html"
    page.write_text("mine")
    with pytest.raises(sf.InputError, match="exists"):
        write_report(results, page)
    write_report(results, page, force=True)
    assert "mine" not in page.read_text()


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$\\frac{1}$", "_hidden", "a$b"])
def test_hostile_names_are_shown_and_not_run(name, runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    rates = {name: next(iter(metrics["by_group"].values()))}
    folder = edited(runs[0], tmp_path, by_group=rates, rows=None, scores=None)
    write_report(read_results([folder]), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script>" not in text
    assert f'<th scope="row">{html.escape(name)}</th>' in text
    (plot,) = (tmp_path / "r_plots").glob("*-groups.svg")
    assert html.escape(name, quote=False) in plot.read_text()


def test_a_client_may_be_called_like_the_whole(runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    part = next(iter(metrics["per_client"].values()))
    folder = edited(runs[0], tmp_path, per_client={"all clients": part}, rows=None)
    write_report(read_results([folder]), tmp_path / "r.html")
    found = [c[2] for c in Tables((tmp_path / "r.html").read_text()).metrics if c[0] == "accuracy"]
    assert [cell.split()[0] for cell in found] == [
        f"{m['accuracy']['value']:.4f}" for m in (metrics, part)
    ]


def test_undefined_metrics_are_said_to_be(runs, tmp_path):
    nothing = {"value": None, "low": None, "high": None}
    folder = edited(runs[0], tmp_path / "u", spd=nothing)
    write_report(read_results([folder, runs[1]]), tmp_path / "r.html")
    assert "<td>undefined</td>" in (tmp_path / "r.html").read_text()


def test_runs_of_one_name_keep_their_plots_apart(runs, tmp_path):
    folders = [
        copied(runs[0], tmp_path / name / "server", seed=i) for i, name in enumerate(("a", "b"))
    ]
    files = write_report(read_results(folders), tmp_path / "r.html")
    assert {f.name for f in files[1:]} == {
        "answer.svg",
        *(f"{name}-server-{chart}.svg" for name in "ab"
          for chart in ("groups", "thresholds", "selection", "calibration")),
    }  # fmt: skip
    with pytest.raises(sf.InputError, match="more than once"):
        read_results([folders[0], folders[0]])
    twins = [copied(runs[0], tmp_path / name) for name in ("x-y/z", "x/y-z")]
    assert len({result.name for result in read_results(twins)}) == 2


def test_a_page_never_takes_the_place_of_what_it_shows(runs, tmp_path):
    folder = copied(runs[0], tmp_path / "x")
    (folder / "c.history.csv").write_text((runs[0] / "client_0.history.csv").read_text())
    for name in ("metrics.json", "c.history.csv"):
        with pytest.raises(sf.InputError, match="named twice"):
            write_report(read_results([folder]), folder / name, force=True)


def test_odd_file_names_do_not_break_the_plots(runs, tmp_path):
    folder = copied(runs[0], tmp_path / "new\nline")
    text = (runs[0] / "client_0.history.csv").read_text()
    for name in ("bad\x1b", "bad\udcff", "long" * 50):
        (folder / f"{name}.history.csv").write_text(text)
    for path in write_report(read_results([folder]), tmp_path / "r.html")[1:]:
        ElementTree.fromstring(path.read_text())
        assert "\n" not in path.name


def test_report_from_the_command_line(runs, tmp_path, capsys):
    argv = ["report", *map(str, runs[:2]), "--output", str(tmp_path / "r.html")]
    assert main(argv) == 0
    assert (tmp_path / "r.html").exists()
    assert "plots next to it." in capsys.readouterr().out
    alone = str(edited(runs[0], tmp_path / "alone", scores=None))
    assert main(["report", alone, "--output", str(tmp_path / "one.html")]) == 0
    assert len(list((tmp_path / "one_plots").iterdir())) == 2
    assert "and 2 plots next to it." in capsys.readouterr().out
    asked = ["--max-gap", "0.01", "--output", str(tmp_path / "two.html")]
    assert main(["report", alone, *asked]) == 0
    assert "at most 0.01 is fair enough" in (tmp_path / "two.html").read_text()
    assert main(["report", alone, "--max-gap", "2", "--output", str(tmp_path / "x.html")]) == 2
    assert "--max-gap: must be from 0 to 1, and is 2" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json: cannot read" in capsys.readouterr().err
