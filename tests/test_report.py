"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.client.history import read_history
from synthfair.compare import plan, run_cell
from synthfair.report import read_result, write_report

CONFIG = sf.DistillConfig(n_synthetic=24, steps=60, optimizer="gauss_newton")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    cells = plan(["single_shot", "central"], [0.0, 10.0], 2, folder)
    for cell in cells:
        run_cell(cell, make_table(n=300), make_schema(), CONFIG, clients=2)
    return [cell.folder for cell in cells]


@pytest.fixture
def page(runs, tmp_path):
    path = tmp_path / "report.html"
    write_report([read_result(folder) for folder in runs], path)
    return path


def expected_cells(runs):
    """What each cell of each run's table of metrics must show, from metrics.json alone."""
    for folder in runs:
        metrics = json.loads((folder / "metrics.json").read_text())
        for name, part in {"all clients": metrics, **metrics["per_client"]}.items():
            for key in ("accuracy", "spd", "covariance"):
                yield key, name, f"{part[key]['value']:.4f}"


class Cells(HTMLParser):
    """First text of each cell marked with a metric."""

    def __init__(self, text):
        super().__init__()
        self.found, self._open = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._open = dict(attrs) if tag == "td" and "data-metric" in dict(attrs) else None

    def handle_data(self, data):
        if self._open:
            self.found.append((self._open["data-metric"], self._open["data-rows"], data.strip()))
            self._open = None


def test_the_numbers_are_those_of_metrics_json(page, runs):
    shown = Cells(page.read_text()).found
    assert [c for c in shown if not c[0].startswith("eq")] == list(expected_cells(runs))


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
        for image in driver.find_elements(By.TAG_NAME, "img"):
            assert image.get_property("naturalWidth") > 0
            assert image.get_attribute("alt")
        cells = driver.find_elements(By.CSS_SELECTOR, "td[data-metric]")
        shown = [
            (c.get_attribute("data-metric"), c.get_attribute("data-rows"), c.text.splitlines()[0])
            for c in cells
        ]
        assert [c for c in shown if not c[0].startswith("eq")] == list(expected_cells(runs))
        width = "return document.documentElement.scrollWidth - window.innerWidth"
        driver.set_window_size(500, 900)
        assert driver.execute_script(width) <= 0, "wider than a phone"
    finally:
        driver.quit()


def test_it_needs_no_network(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "<script" not in text
    assert "@import" not in text


def test_plots_are_files_too_and_the_same_each_time(page, runs, tmp_path):
    plots = {path.name: path.read_bytes() for path in (page.parent / "plots").iterdir()}
    assert "frontier.svg" in plots
    assert "single_shot-rho_0-seed_0-convergence.svg" in plots
    again = tmp_path / "again" / "report.html"
    write_report([read_result(folder) for folder in runs], again)
    assert plots == {path.name: path.read_bytes() for path in (again.parent / "plots").iterdir()}


def test_an_existing_page_needs_force(page, runs):
    results = [read_result(runs[0])]
    with pytest.raises(sf.InputError, match="exists"):
        write_report(results, page)
    write_report(results, page, force=True)


def edited(runs, folder, **changes):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"accuracy": 0.9}, "accuracy"),
        ({"n_test": 0}, "n_test"),
        ({"surprise": 1}, "surprise: unknown key"),
        ({"by_group": {"x=0": {"n": -1}}}, "by_group"),
        ({"spd": {"value": "high", "low": 0, "high": 0}}, "spd.value"),
    ],
)
def test_damaged_metrics_are_refused(runs, tmp_path, changes, complaint):
    with pytest.raises(sf.InputError, match=f"(?s)metrics.json: .*{complaint}"):
        read_result(edited(runs, tmp_path, **changes))


def test_hostile_names_are_shown_and_not_run(runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    rates = {"<script>alert(1)</script>": next(iter(metrics["by_group"].values()))}
    write_report([read_result(edited(runs, tmp_path, by_group=rates))], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("text", ["", "objective\n1\n", "objective,covariance,gap,gradient_norm\n"])
def test_damaged_histories_are_refused(tmp_path, text):
    for rows in (text, text + "1,2,nan,4\n", text + "1,2\n"):
        (tmp_path / "c.history.csv").write_text(rows)
        with pytest.raises(sf.InputError, match="not a history"):
            read_history(tmp_path / "c.history.csv")


def test_compare_goes_on_where_it_stopped(tmp_path, capsys):
    argv = ["compare", "loanapp", "--methods", "local", "--weights", "0", "--seeds", "1"]
    argv += ["--output", str(tmp_path)]
    assert main(argv) == 0
    first = (tmp_path / "local-rho_0-seed_0" / "metrics.json").stat().st_mtime_ns
    argv[argv.index("--weights") + 1 : argv.index("--seeds")] = ["0", "10"]
    assert main(argv) == 0
    assert "Wrote 2 runs" in capsys.readouterr().out
    assert (tmp_path / "local-rho_0-seed_0" / "metrics.json").stat().st_mtime_ns == first
    assert main(["compare", "loanapp", "--methods", "magic", "--output", str(tmp_path)]) == 2
    assert main([*argv, "--lambda-theta", "0.5"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_report_from_the_command_line(runs, tmp_path, capsys):
    argv = ["report", *map(str, runs[:2]), "--output", str(tmp_path / "r.html")]
    assert main(argv) == 0
    assert (tmp_path / "r.html").exists()
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json: cannot read" in capsys.readouterr().err
