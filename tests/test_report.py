"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import argparse
import base64
import html
import json
import re
import shlex
import shutil
import statistics
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.cli import client, main
from synthfair.cli.options import config_flags
from synthfair.client import history
from synthfair.client.history import read_history
from synthfair.config import load_distill_config
from synthfair.data.datasets import dataset_schema
from synthfair.evaluation import evaluate_scores, evaluation_document
from synthfair.fairness.metrics import Rates, Scored
from synthfair.files import write_json
from synthfair.release.format import disclosures
from synthfair.report import read_results, write_report
from synthfair.report.overview import overviews
from synthfair.report.page import TITLES, client_command
from synthfair.run_files import Communication, Influence

CONFIG = sf.DistillConfig(n_synthetic=24, steps=60, optimizer="gauss_newton")

HISTORY = "objective,covariance,gap,gradient_norm\n0.7,0.1,0.3,1e-9\n0.6,0.05,0.2,1e-9\n"


def write_run(folder, *, method="single_shot", rho_o=0.0, seed=0):
    """A run's folder as ``compare`` writes it: scores are random, nothing is trained."""
    rng, report = np.random.default_rng([seed, int(rho_o)]), sf.ServerConfig(resamples=20)
    scored = {
        f"client_{i}": Scored(
            rng.choice([-1.0, 1.0], 60), rng.normal(size=60), rng.integers(2, size=60)
        )
        for i in range(2)
    }
    config = CONFIG.model_copy(update={"rho_o": rho_o, "seed": seed}).model_dump(mode="json")
    document = {
        **evaluation_document(evaluate_scores(scored, report), make_schema(), report),
        "seed": seed,
        "method": method,
        "table": {"name": "small", "sensitive": "town", "clients": 2},
        "config": {"client_0": config, "client_1": config},
        "cost": Communication(2, 1, 5000)._asdict(),
        "converged": True,
        "seconds": 1.5 + seed,
    }
    folder.mkdir()
    write_json(folder / "metrics.json", document)
    if method == "single_shot":
        (folder / "client_0.history.csv").write_text(HISTORY)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two methods, the second at another weight, with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        write_run(folder / f"{method}-seed_{seed}", method=method, rho_o=rho_o, seed=seed)
        for seed in range(2)
        for method, rho_o in (("single_shot", 0.0), ("central", 10.0))
    ]


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
            keys = ["selection_rate", "true_positive_rate", "false_positive_rate", "error_rate"]
            yield group, str(rates["n"]), *(shown(rates[key]) for key in keys)


class Tables(HTMLParser):
    """Texts of the cells with a metric, of the rows of a group, and of the overview's rows."""

    def __init__(self, text):
        super().__init__()
        self.metrics, self.rates, self.overview = [], [], []
        self._table, self._attributes, self._row = "", {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self._table = dict(attrs).get("class", "")
        elif tag == "tr":
            self._row, self._attributes = [], dict(attrs)
        elif tag in ("td", "th"):
            self._row.append("")
            self._cell = dict(attrs)

    def handle_data(self, data):
        if self._row:
            self._row[-1] = " ".join(f"{self._row[-1]} {data}".split())

    def handle_endtag(self, tag):
        if tag == "td" and "data-metric" in self._cell:
            name = self._cell["data-metric"], self._cell["data-rows"]
            self.metrics.append((*name, self._row[-1]))
        elif tag == "tr":
            if "data-group" in self._attributes:
                self.rates.append(tuple(self._row))
            if self._table == "overview":
                self.overview.append(tuple(self._row))
            self._row = []


def test_the_numbers_are_those_of_metrics_json(page, runs):
    shown = Tables(page.read_text())
    assert shown.metrics == list(expected_cells(runs))
    assert shown.rates == list(expected_rates(runs))


def test_the_overview_is_mean_and_standard_deviation(page, runs):
    found = {(row[0], row[3]): row[1:] for row in Tables(page.read_text()).overview}
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
    write_report(read_results([edited(runs, tmp_path / "u", converged=False)]), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert Tables(text).overview[1][-2] == "NO"
    assert "did not converge" in text


def test_disclosures_and_private_curves_are_reported(page, runs):
    text = html.unescape(page.read_text())
    singles = [run for run in runs if run.name.startswith("single")]
    for line in disclosures(CONFIG):
        assert text.count(line) == 2 * len(singles)
    assert text.count("not to be published") == len(singles)


def test_every_picture_is_a_plot_with_a_title(page, runs):
    images = re.findall(
        r'<img src="data:image/svg.xml;base64,(.*?)" alt="(.+?)">', page.read_text()
    )
    assert (
        len(images) == 1 + len(runs) + 2
    )  # frontier, groups, and convergence of what was distilled
    for picture, _ in images:
        assert ElementTree.fromstring(base64.b64decode(picture)).tag.endswith("svg")


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
        for image in driver.find_elements(By.TAG_NAME, "img"):
            assert image.get_property("naturalWidth") > 0
            assert image.get_attribute("alt")
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
    assert "frontier.svg" in plots
    again = tmp_path / "report.html"
    write_report(read_results(runs[:1]), again)
    names = ("single_shot-seed_0-groups.svg", "single_shot-seed_0-convergence.svg")
    for name in names:
        assert (tmp_path / "report_plots" / name).read_bytes() == plots[name]


def test_an_existing_page_needs_force(runs, tmp_path):
    results, page = read_results(runs[1:2]), tmp_path / "r.html"
    page.write_text("mine")
    with pytest.raises(sf.InputError, match="exists"):
        write_report(results, page)
    write_report(results, page, force=True)
    assert "mine" not in page.read_text()


def edited(runs, folder, **changes):
    folder.mkdir(exist_ok=True)
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, **changes}))
    return folder


RATES = dict.fromkeys(Rates._fields[1:], 0.5) | {"n": 3}
MOVED = dict.fromkeys(Influence._fields, 0.5) | {
    "converged": True,
    "outlier": False,
    "alone": False,
    "rates": [0.5, None],
    "by": ["scores"],
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"accuracy": 0.9}, "accuracy"),
        ({"n_test": 0}, "n_test"),
        ({"surprise": 1}, "surprise: unknown key"),
        ({"by_group": {"x=0": {"n": -1}}}, "by_group"),
        (
            {"by_group": {"x=0": RATES | {"n": -1}}},
            "by_group.x=0: n must be from 0 to 9.*, and is -1",
        ),
        ({"by_group": {"x=0": RATES | {"error_rate": 2}}}, "by_group.x=0: error_rate must be"),
        ({"spd": {"value": "high", "low": 0, "high": 0}}, "spd.value: .*number"),
        ({"spd": {"value": 0, "low": 0}}, "spd.high: missing"),
        ({"spd": {"value": 1e300, "low": 0, "high": 0}}, "spd: value must be from -1 to 1"),
        ({"accuracy": {"value": -0.5, "low": 0, "high": 0}}, "accuracy: value must be from 0 to 1"),
        ({"covariance": {"value": 1e300, "low": 0, "high": 0}}, "covariance: value must be"),
        ({"covariance": {"value": float("inf"), "low": 0, "high": 0}}, "covariance: value must be"),
        ({"cost": {"users": 2, "rounds": -1, "bytes_sent": 1}}, "cost: rounds must be"),
        ({"cost": {"users": 2, "rounds": None, "bytes_sent": 1}}, "cost.rounds"),
        (
            {"influence": {"outliers_above": None, "releases": {"a": MOVED | {"spd": 3}}}},
            "influence: spd must be",
        ),
        (
            {"influence": {"outliers_above": None, "releases": {"a": MOVED | {"rates": [3]}}}},
            "influence: rates must be",
        ),
        (
            {"influence": {"outliers_above": None, "releases": {"a": MOVED | {"by": ["\x1b"]}}}},
            "influence: must be printable",
        ),
        (
            {"influence": {"outliers_above": None, "releases": {"a": {}}}},
            "influence.releases.a.theta: missing",
        ),
        (
            {"influence": {"outliers_above": None, "releases": {"a\x1b": MOVED}}},
            "influence: must be printable",
        ),
        ({"guarantee": {"epsilon": 1}}, "guarantee.delta: missing"),
        ({"promise": {"epsilon": 1}}, "promise.delta: missing"),
        ({"by_group": {}}, "by_group"),
        ({"config": {}}, "config"),
        ({"per_client": {}}, "per_client"),
        ({"method": "a\x1b[2Jb"}, "method"),
        ({"schema_hash": "short"}, "schema_hash"),
    ],
)
def test_damaged_metrics_are_refused(runs, tmp_path, changes, complaint):
    with pytest.raises(sf.InputError, match=f"(?s)metrics.json: .*{complaint}"):
        read_results([edited(runs, tmp_path, **changes)])


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$\\frac{1}$", "_hidden", "a$b"])
def test_hostile_names_are_shown_and_not_run(name, runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    rates = {name: next(iter(metrics["by_group"].values()))}
    write_report(read_results([edited(runs, tmp_path, by_group=rates)]), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script>" not in text
    assert f'<th scope="row">{html.escape(name)}</th>' in text
    (plot,) = (tmp_path / "r_plots").glob("*-groups.svg")
    assert html.escape(name, quote=False) in plot.read_text()


def test_a_client_may_be_called_like_the_whole(runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    part = next(iter(metrics["per_client"].values()))
    folder = edited(runs, tmp_path, per_client={"all clients": part})
    write_report(read_results([folder]), tmp_path / "r.html")
    found = [c[2] for c in Tables((tmp_path / "r.html").read_text()).metrics if c[0] == "accuracy"]
    assert [cell.split()[0] for cell in found] == [
        f"{m['accuracy']['value']:.4f}" for m in (metrics, part)
    ]


def copied(run, folder, **changes):
    """The run with other settings, in another folder."""
    metrics = json.loads((run / "metrics.json").read_text())
    for config in metrics["config"].values():
        config.update(changes)
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_only_runs_that_differ_in_the_seed_alone_are_averaged(runs, tmp_path):
    twin = copied(runs[0], tmp_path / "twin", seed=7)
    other = copied(runs[0], tmp_path / "other", steps=61)
    search = copied(runs[0], tmp_path / "search", max_gap=0.05)
    (overview,) = overviews(read_results([runs[0], twin, other, search]))
    found = [(s.method, s.weight, len(s.runs)) for s in overview.summaries]
    assert found == [
        ("single-shot; steps = 60", "rho_o = 0", 2),
        ("single-shot; steps = 61", "rho_o = 0", 1),
        ("single-shot; steps = 60", "gap at most 0.05 wanted", 1),
    ]
    assert overview.gap == "spd"


def test_other_clients_and_the_same_run_twice_are_not_averaged(runs, tmp_path):
    fewer = copied(runs[0], tmp_path / "fewer", seed=7)
    metrics = json.loads((fewer / "metrics.json").read_text())
    metrics["per_client"].popitem()
    (fewer / "metrics.json").write_text(json.dumps(metrics))
    (overview,) = overviews(read_results([runs[0], fewer]))
    found = [(s.method, len(s.runs)) for s in overview.summaries]
    assert found == [("single-shot; 2 clients", 1), ("single-shot; 1 clients", 1)]
    twin = copied(runs[0], tmp_path / "twin")
    with pytest.raises(sf.InputError, match="neither in settings nor in seed"):
        overviews(read_results([runs[0], twin]))


def test_tables_and_notions_are_not_mixed(runs, tmp_path):
    notion = copied(runs[0], tmp_path / "notion", notion="equal_opportunity")
    table = edited(runs, copied(runs[0], tmp_path / "table"), schema_hash="0" * 64)
    found = overviews(read_results([runs[0], notion, table]))
    gaps = [(overview.schema_hash[:4], overview.gap) for overview in found]
    real = gaps[0][0]
    assert gaps == [(real, "spd"), (real, "equal_opportunity_difference"), ("0000", "spd")]


def test_undefined_metrics_are_said_to_be(runs, tmp_path):
    nothing = {"value": None, "low": None, "high": None}
    folder = edited(runs, tmp_path / "u", spd=nothing)
    write_report(read_results([folder, runs[1]]), tmp_path / "r.html")
    assert "<td>undefined</td>" in (tmp_path / "r.html").read_text()


def test_runs_of_one_name_keep_their_plots_apart(runs, tmp_path):
    folders = [
        copied(runs[0], tmp_path / name / "server", seed=i) for i, name in enumerate(("a", "b"))
    ]
    files = write_report(read_results(folders), tmp_path / "r.html")
    assert {f.name for f in files[1:]} == {
        "a-server-groups.svg", "b-server-groups.svg", "frontier.svg",
    }  # fmt: skip
    with pytest.raises(sf.InputError, match="more than once"):
        read_results([folders[0], folders[0]])
    twins = [copied(runs[0], tmp_path / name) for name in ("x-y/z", "x/y-z")]
    assert len({result.name for result in read_results(twins)}) == 2


def lenders(folder):
    """Writes the tables of two clients and their schema."""
    (folder / "schema.json").write_text(make_schema().model_dump_json())
    for i in range(2):
        make_table(seed=i).to_csv(folder / f"a b{i}_train.csv", index=False)
        make_table(seed=9 + i).to_csv(folder / f"a b{i}_test.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The folder of two clients and a server that have run."""
    folder = lenders(tmp_path_factory.mktemp("served"))
    schema = ["--schema", str(folder / "schema.json")]
    releases = [str(folder / f"a b{i}.parquet") for i in range(2)]
    for i in range(2):
        argv = ["--data", str(folder / f"a b{i}_train.csv"), "--output", releases[i], *schema]
        assert main(["client", *argv, "--steps", "20", "--no-intercept"]) == 0
    tests = [str(folder / f"a b{i}_test.csv") for i in range(2)]
    argv = [*releases, *schema, "--seed", "3", "--resamples", "20", "--test", *tests]
    assert main(["server", *argv, "--output", str(folder / "server"), "--report"]) == 0
    return folder


def test_the_commands_run_it_again(served, tmp_path):
    """Those shown for a server's run, typed in again, give the same numbers."""
    again = lenders(tmp_path)
    text = html.unescape((served / "server" / "report.html").read_text())
    commands = re.search(r"<pre>(.*)</pre>", text, re.DOTALL).group(1).splitlines()
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)[2:]
        paths = [str(again / w) if w.endswith((".csv", ".parquet", ".json", "server")) else w
                 for w in words[1:]]  # fmt: skip
        assert main([words[0].removeprefix("synthfair."), *paths]) == 0
    old, new = ((f / "server" / "metrics.json").read_bytes() for f in (served, again))
    assert old == new


def test_what_is_shown_of_a_comparison_is_its_own_command(runs, tmp_path):
    write_report(read_results(runs[-1:]), tmp_path / "r.html")
    text = html.unescape((tmp_path / "r.html").read_text())
    assert (
        "<pre>python -m synthfair compare small --sensitive town --clients 2 --methods central"
        in text
    )
    assert "--weights 10.0 --seeds 2 " in text
    assert "--optimizer gauss_newton" in text


def test_a_report_is_refused_before_the_server_writes_anything(tmp_path, served):
    argv = ["server", str(served / "a b0.parquet"), "--schema", str(served / "schema.json")]
    argv += ["--test", str(served / "a b0_test.csv"), "--report", "--resamples", "5"]
    for file in ("report_plots/out-groups.svg", "a.history.csv"):
        output = tmp_path / file[0] / "out"
        (output / file).parent.mkdir(parents=True)
        (output / file).write_text("mine")
        assert main([*argv, "--output", str(output)]) == 2
        assert not (output / "metrics.json").exists()
        assert (output / file).read_text() == "mine"


def test_commands_name_all_that_differs_from_the_defaults():
    for settings in (
        {"max_gap": 0.15, "penalty": "covariance", "optimizer": "adam", "steps": 200},
        {"rho_o": 1.2345678901},
        {"intercept": False, "labels": "copy", "inner_tolerance": 1e-9},
    ):
        config = sf.DistillConfig.model_validate(settings)
        words = shlex.split(client_command("a b", config))
        parser = argparse.ArgumentParser()
        client.add_arguments(parser)
        again = load_distill_config(
            None, **config_flags(parser.parse_args(words[3:]), type(config))
        )
        assert again == config


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


@pytest.mark.parametrize("text", ["", "objective\n1\n", "objective,covariance,gap,gradient_norm\n"])
def test_damaged_histories_are_refused(tmp_path, text):
    for rows in (text, text + "1,nan,3,4\n", text + "1,2\n", text + "1,2,1e308,4\n"):
        (tmp_path / "c.history.csv").write_text(rows)
        with pytest.raises(sf.InputError, match="not a history"):
            read_history(tmp_path / "c.history.csv")


def test_histories_that_never_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MAX_STEPS", 3)
    path = tmp_path / "c.history.csv"
    path.write_text("objective,covariance,gap,gradient_norm\n" + "1,2,3,4\n" * 3)
    assert len(read_history(path).gap) == 3
    path.write_text(path.read_text() + "1,2,3,4\n")
    with pytest.raises(sf.InputError, match="more than 3 steps"):
        read_history(path)


def test_compare_goes_on_where_it_stopped(tmp_path, capsys):
    """The first of two runs is there already; only the second is computed."""
    argv = ["compare", "loanapp", "--methods", "local", "--weights", "0", "10", "--seeds", "1"]
    argv += ["--output", str(tmp_path)]
    config = sf.DistillConfig(rho_o=0).model_dump(mode="json")
    done = write_run(tmp_path / "local-rho_0-seed_0", method="local") / "metrics.json"
    there = json.loads(done.read_text()) | {
        "config": {"client_0": config, "client_1": config},
        "schema_hash": dataset_schema("loanapp").hash,
    }
    done.write_text(json.dumps(there))
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "Wrote 2 runs" in said
    assert "rho_o = 10" in said
    assert json.loads(done.read_text()) == there
    assert main(["compare", "loanapp", "--methods", "magic", "--output", str(tmp_path)]) == 2
    assert main([*argv, "--lambda-theta", "0.5"]) == 2
    assert "other settings" in capsys.readouterr().err
    (tmp_path / "gap.toml").write_text("max_gap = 0.1")
    assert main([*argv, "--config", str(tmp_path / "gap.toml")]) == 2
    assert "max_gap: compare runs the weights" in capsys.readouterr().err


def test_report_from_the_command_line(runs, tmp_path, capsys):
    argv = ["report", *map(str, runs[:2]), "--output", str(tmp_path / "r.html")]
    assert main(argv) == 0
    assert (tmp_path / "r.html").exists()
    assert "plots next to it." in capsys.readouterr().out
    alone = str(edited(runs, tmp_path / "alone"))
    assert main(["report", alone, "--output", str(tmp_path / "one.html")]) == 0
    assert len(list((tmp_path / "one_plots").iterdir())) == 1
    assert "1 plot next to it." in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json: cannot read" in capsys.readouterr().err
