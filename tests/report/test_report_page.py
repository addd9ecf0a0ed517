"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import html
import itertools
import json
import os
import re
import statistics
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from browser import headless, needs_browser
from exported import additive, linear
from report_runs import CONFIG, copied, edited, page_of, tables, write_runs
from scipy.stats import binomtest

import synthfair as sf
from synthfair.cli import main
from synthfair.report.page import write_report
from synthfair.report.privacy_words import disclosures
from synthfair.report.results import read_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(runs, path)
    return path


def shown(value):
    return "undefined" if value is None else f"{value:z.3f}"


def expected_cells(runs):
    """What each cell of each run's table of metrics must show, from metrics.json alone."""
    for folder in runs:
        metrics = json.loads((folder / "metrics.json").read_text())
        for name, part in {"all clients": metrics, **metrics["per_client"]}.items():
            cells = [name]
            for key in ("accuracy", "spd", "equal_opportunity_difference",
                        "equalized_odds_difference", "covariance"):  # fmt: skip
                value, low, high = (shown(part[key][k]) for k in ("value", "low", "high"))
                cells.append(f"{value} [{low}, {high}]")
            yield tuple(cells)


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
            cells = [rate_cell(rates[key], n) for key, n in rows.items()]
            yield group, str(rates["n"]), *cells


def rate_cell(share, n):
    found = binomtest(round(share * n), n).proportion_ci()
    return f"{share:.3f} [{found.low:.3f}, {found.high:.3f}]"


def test_the_numbers_are_those_of_metrics_json(page, runs):
    for title, expected in (
        ("Metrics by client", expected_cells),
        ("Rates by group", expected_rates),
    ):
        rows = [row for _, *rows in tables(page.read_text(), title) for row in rows]
        assert rows == list(expected(runs))


def test_the_overview_is_mean_and_standard_deviation(page, runs):
    ((titles, *rows),) = tables(page.read_text(), "all runs")
    costs = "rounds", "bytes sent", "seconds", "converged"
    assert titles[4:] == ("fairness setting", "runs", *costs)
    found = {(row[0], row[4]): row for row in rows}
    for folders, run in (
        (runs[::2], ("single-shot", "penalty weight 0")),
        (runs[1::2], ("central", "penalty weight 10")),
    ):
        metrics = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
        accuracy, spd = ([m[key]["value"] for m in metrics] for key in ("accuracy", "spd"))
        means = [f"{statistics.mean(v):z.3f} ± {statistics.stdev(v):.3f}" for v in (accuracy, spd)]
        seconds = f"{statistics.mean(m['seconds'] for m in metrics):.1f}"
        assert found[run][1:3] == tuple(means)
        assert found[run][5:] == ("2", "1", "5,000", seconds, "yes")


def test_a_model_next_to_the_run_shows_what_each_column_adds(runs, tmp_path):
    model = linear(additive())
    folder = edited(runs[0], tmp_path / "run")
    sf.write_model(model, folder / "model.json")
    files = write_report(folder, tmp_path / "r.html")
    ((_, *rows),) = tables((tmp_path / "r.html").read_text(), "What each column adds to the score")
    expected = [(name, f"{value:z.4f}") for name, value in model.coefficients.items()]
    assert rows == expected
    drawn = (tmp_path / "r_plots" / "run-shapes.svg").read_text()
    assert tmp_path / "r_plots" / "run-shapes.svg" in files
    assert all(f">{name}<" in drawn for name in model.schema_.features)


@pytest.mark.usefixtures("text_only")
def test_what_no_run_has_is_left_out(runs, tmp_path):
    """As of a server, which does not know rounds, bytes and seconds."""
    unknown = dict.fromkeys(("cost", "seconds", "converged"))
    text = page_of(edited(runs[0], tmp_path / "u", **unknown))
    ((titles, *_),) = tables(text, "all runs")
    assert titles[4:] == ("fairness setting", "runs")


NULL = {"value": None, "low": None, "high": None}
FEW = {"town=c": {"n": 7, "positive": 3, "negative": 4}}


@pytest.mark.usefixtures("text_only")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"small_groups": FEW, "min_group_rows": 40},
            "town=c (7 rows, 3 of them with the positive label). Fewer than 40 count",
        ),
        ({"min_group_rows": 40}, "Gaps leave out groups with fewer than 40 test rows"),
        ({"converged": False}, "The pooled training did not converge"),
        ({"converged": False}, '<td class="words">NO</td>'),
        ({"spd": NULL}, "<td>undefined</td>"),
        ({"warnings": ["the gap is 0.2."]}, '<p class="warn">The gap is 0.2.</p>'),
    ],
)
def test_what_a_run_says_of_itself_is_on_the_page(changes, said, runs, tmp_path):
    assert said in page_of(edited(runs[0], tmp_path, **{"table": None} | changes))


@pytest.mark.usefixtures("text_only")
def test_influences_say_what_stands_out(runs, tmp_path):
    moved = {"scores": 0.5, "relative": 0.25, "spd": None, "outlier": False}
    influence = {"outliers_above": None, "releases": {"a": moved, "b": moved | {"outlier": True}}}
    folder = edited(runs[0], tmp_path / "i", influence=influence)
    (rows,) = tables(page_of(folder), "How far each release moves the model")
    assert rows[0] == ("release", "scores", "relative", "SPD", "remarks")
    assert rows[1] == ("a", "0.500", "0.250", "undefined", "")
    assert rows[2][-1] == "OUTLIER"


def test_disclosures_are_reported(page, runs):
    text = html.unescape(page.read_text())
    singles = [run for run in runs if run.name.startswith("single")]
    for line in disclosures(CONFIG, private=False):
        assert text.count(line) == 2 * len(singles)


def test_every_picture_has_words_for_those_who_cannot_see_it_and_a_table(page, runs):
    text = page.read_text()
    figures = re.findall(
        r'<figure><img alt="(.*?)" src="data:image/svg\+xml,(.*?)"><figcaption>(.*?)\. ',
        text,
    )
    # The answer, and of each run its groups.
    assert len(figures) == text.count("<figure>") == 1 + len(runs)
    for alt, image, caption in figures:
        assert ElementTree.fromstring(unquote(image)).tag.endswith("svg")
        assert alt == caption
    for title, times in {"accuracy and gap": 1, "Rates by group": 4}.items():
        assert len(tables(text, title)) == times


@pytest.mark.usefixtures("text_only")
def test_without_matplotlib_there_are_no_figures_and_the_page_says_so(runs, tmp_path):
    path = tmp_path / "r.html"
    assert write_report(runs, path) == [path]
    text = html.unescape(path.read_text())
    assert "<figure>" not in text
    assert "It has no figures: they need matplotlib; pip install 'synthfair[report]'." in text


@pytest.mark.usefixtures("text_only")
def test_people_without_a_command_line_meet_no_flags(page, runs, tmp_path):
    """But in what they may open: settings."""
    warned = edited(runs[0], tmp_path / "w", warnings=["the gap is 0.2, and 0.1 was asked for."])
    for text in (page.read_text(), page_of(warned)):
        shown = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
        while (
            closed := re.sub(r"<details>(?:(?!<details).)*?</details>", "", shown, flags=re.DOTALL)
        ) != shown:
            shown = closed
        assert "Rates by group" in shown
        assert not re.findall(r"(?<![-!])--\w+", shown)
        assert "python -m" not in shown


@pytest.mark.usefixtures("text_only")
def test_the_page_names_the_model_and_its_clients_and_is_that_of_a_copy(runs, tmp_path):
    folder = copied(runs[0], tmp_path / "loans")
    page = page_of(folder)
    assert "Model loans, of 2 clients." in page
    os.utime(folder / "metrics.json", (1e9, 1e9))  # as a copy has another date
    assert page_of(folder) == page


def test_one_run_of_several_is_open(page, runs):
    text = page.read_text()
    assert text.count('<details class="run">') == len(runs) - 1
    assert text.count('<details class="run" open>') == 1


def test_headings_are_in_order(page):
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", page.read_text())]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


WIDE = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"

CUT = """return [...document.querySelectorAll('svg text')].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.bottom > outer.bottom;
}).map(text => text.textContent)"""


def resize(driver, width, *, media="screen"):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@needs_browser
def test_a_browser_opens_it_without_error_and_shows_the_numbers(page, runs):
    from selenium.webdriver.common.by import By

    with headless() as driver:
        driver.get(page.as_uri())
        assert driver.get_log("browser") == []
        for run in driver.find_elements(By.CSS_SELECTOR, "details.run:not([open]) > summary"):
            run.click()
        for figure in driver.find_elements(By.TAG_NAME, "img"):
            assert figure.size["width"] > 200
            assert figure.get_property("naturalWidth") > 0, "the browser cannot read the figure"
        rows = driver.find_elements(By.CSS_SELECTOR, "[aria-label='Metrics by client'] tbody tr")
        shown = [" ".join(row.text.split()) for row in rows]
        assert shown == [" ".join(cells) for cells in expected_cells(runs)]
        resize(driver, 1280)
        assert driver.execute_script(WIDE) == 0, "a table is wider than a usual screen"
        resize(driver, 700, media="print")
        right = "return Math.max(...[...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().right))"
        assert driver.execute_script(right) <= 700, "a table is wider than paper"
        resize(driver, 360)
        cell = driver.find_elements(By.CSS_SELECTOR, "[aria-label='all runs'] td")[1]
        assert cell.location["x"] + cell.size["width"] <= 360, "the gap is out of sight"
        for plot in (page.parent / "report_plots").iterdir():
            driver.get(plot.as_uri())
            assert driver.execute_script(CUT) == []


def test_it_needs_no_network(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "<script" not in text
    assert "@import" not in text


def test_plots_are_files_too_and_the_same_each_time(page, runs, tmp_path):
    plots = {path.name: path.read_bytes() for path in (page.parent / "report_plots").iterdir()}
    assert "answer-1.svg" in plots
    for plot in plots.values():
        assert ElementTree.fromstring(plot).tag.endswith("svg")
    again = tmp_path / "report.html"
    write_report(runs[:1], again)
    name = "single_shot-seed_0-groups.svg"
    assert (tmp_path / "report_plots" / name).read_bytes() == plots[name]


@pytest.mark.usefixtures("text_only")
def test_an_existing_page_needs_force(runs, tmp_path):
    run, page = runs[1], tmp_path / "r.html"
    page.write_text("mine")
    with pytest.raises(sf.InputError, match="exists"):
        write_report(run, page)
    write_report(run, page, force=True)
    assert "mine" not in page.read_text()


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$\\frac{1}$", "_hidden", "a$b"])
def test_hostile_names_are_shown_and_not_run(name, runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    rates = {name: next(iter(metrics["by_group"].values()))}
    folder = edited(runs[0], tmp_path, by_group=rates, rows=None)
    write_report(folder, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script>" not in text
    assert f'<th scope="row">{html.escape(name)}</th>' in text
    (plot,) = (tmp_path / "r_plots").glob("*-groups.svg")
    assert html.escape(name, quote=False) in plot.read_text()


@pytest.mark.usefixtures("text_only")
def test_a_client_may_be_called_like_the_whole(runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    part = next(iter(metrics["per_client"].values()))
    changes: dict[str, object] = {"per_client": {"all clients": part}, "rows": None}
    changes["client_gaps"] = {}
    text = page_of(edited(runs[0], tmp_path, **changes))
    ((_, *rows),) = tables(text, "Metrics by client")
    assert [row[:1] + tuple(row[1].split()[:1]) for row in rows] == [
        ("all clients", f"{m['accuracy']['value']:.3f}") for m in (metrics, part)
    ]


def test_runs_of_one_name_keep_their_plots_apart(runs, tmp_path):
    folders = [
        copied(runs[0], tmp_path / name / "server", seed=i) for i, name in enumerate(("a", "b"))
    ]
    files = write_report(folders, tmp_path / "r.html")
    assert {f.name for f in files[1:]} == {
        "answer-1.svg", "a-server-groups.svg", "b-server-groups.svg",
    }  # fmt: skip
    with pytest.raises(sf.InputError, match="more than once"):
        read_results([folders[0], folders[0]])
    twins = [copied(runs[0], tmp_path / name) for name in ("x-y/z", "x/y-z")]
    assert len({result.name for result in read_results(twins)}) == 2


def test_a_page_never_takes_the_place_of_what_it_shows(runs, tmp_path):
    folder = copied(runs[0], tmp_path / "x")
    for name in ("metrics.json", "model.json"):
        with pytest.raises(sf.InputError, match="named twice"):
            write_report(folder, folder / name, force=True)


def test_odd_file_names_do_not_break_the_plots(runs, tmp_path):
    folder = copied(runs[0], tmp_path / "new\nline")
    for path in write_report(folder, tmp_path / "r.html")[1:]:
        ElementTree.fromstring(path.read_text())
        assert "\n" not in path.name


def test_report_from_the_command_line(runs, tmp_path, capsys):
    argv = ["report", *map(str, runs[:2]), "--output", str(tmp_path / "r.html")]
    assert main(argv) == 0
    assert (tmp_path / "r.html").exists()
    assert "plots next to it." in capsys.readouterr().out
    alone = str(edited(runs[0], tmp_path / "alone"))
    assert main(["report", alone, "--output", str(tmp_path / "one.html")]) == 0
    assert len(list((tmp_path / "one_plots").iterdir())) == 2
    assert "and 2 plots next to it." in capsys.readouterr().out
    asked = ["--max-gap", "0.01", "--output", str(tmp_path / "two.html")]
    assert main(["report", alone, *asked]) == 0
    assert "at most 0.01 was asked" in (tmp_path / "two.html").read_text()
    assert main(["report", alone, "--max-gap", "2", "--output", str(tmp_path / "x.html")]) == 2
    assert "--max-gap: must be from 0 to 1, and is 2" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json: cannot read" in capsys.readouterr().err
