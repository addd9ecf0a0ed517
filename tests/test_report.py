"""The page shows the numbers of metrics.json, needs no network, and believes nothing it reads."""

import html
import json
import re
import shlex
import shutil
from html.parser import HTMLParser

import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.client.history import read_history
from synthfair.compare import plan, run_cell
from synthfair.report import read_results, write_report
from synthfair.report.overview import overviews

CONFIG = sf.DistillConfig(n_synthetic=24, steps=60, optimizer="gauss_newton")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    cells = plan(["single_shot", "central"], [0.0, 10.0], 2, folder)
    for cell in cells:
        run_cell(cell, make_table(n=300), make_schema(), CONFIG, name="small", clients=2)
    return [cell.folder for cell in cells]


@pytest.fixture
def page(runs, tmp_path):
    path = tmp_path / "report.html"
    write_report(read_results(runs), path)
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
    write_report(read_results(runs), again)
    assert plots == {path.name: path.read_bytes() for path in (again.parent / "plots").iterdir()}


def test_an_existing_page_needs_force(page, runs):
    results = read_results(runs[:1])
    with pytest.raises(sf.InputError, match="exists"):
        write_report(results, page)
    write_report(results, page, force=True)


def edited(runs, folder, **changes):
    folder.mkdir(exist_ok=True)
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
        ({"spd": {"value": 1e300, "low": 0, "high": 0}}, "spd.value"),
        ({"covariance": {"value": 1e300, "low": 0, "high": 0}}, "covariance.value"),
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
    (plot,) = (tmp_path / "plots").glob("*-groups.svg")
    assert html.escape(name, quote=False) in plot.read_text()


def test_a_client_may_be_called_like_the_whole(runs, tmp_path):
    metrics = json.loads((runs[0] / "metrics.json").read_text())
    part = next(iter(metrics["per_client"].values()))
    folder = edited(runs, tmp_path, per_client={"all clients": part})
    write_report(read_results([folder]), tmp_path / "r.html")
    shown = [c[2] for c in Cells((tmp_path / "r.html").read_text()).found if c[0] == "accuracy"]
    assert shown == [f"{m['accuracy']['value']:.4f}" for m in (metrics, part)]


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
    found = [(s.method, s.weight, s.runs) for s in overview.summaries]
    assert found == [
        ("single-shot; steps = 60", "rho_o = 0", 2),
        ("single-shot; steps = 61", "rho_o = 0", 1),
        ("single-shot; steps = 60", "gap at most 0.05", 1),
    ]
    assert overview.gap == "spd"


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
    folders = [copied(runs[0], tmp_path / name / "server") for name in ("a", "b")]
    files = write_report(read_results(folders), tmp_path / "r.html")
    assert {f.name for f in files[1:]} == {
        "a-server-groups.svg", "b-server-groups.svg", "frontier.svg",
    }  # fmt: skip
    with pytest.raises(sf.InputError, match="more than once"):
        read_results([folders[0], folders[0]])
    twins = [copied(runs[0], tmp_path / name) for name in ("x-y/z", "x/y-z")]
    assert len({result.name for result in read_results(twins)}) == 2


def test_the_commands_run_it_again(runs, tmp_path, capsys):
    """Those shown for a server's run, typed in again, give the same numbers."""
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        folder.mkdir()
        (folder / "schema.json").write_text(make_schema().model_dump_json())
        for i in range(2):
            make_table(seed=i).to_csv(folder / f"a b{i}_train.csv", index=False)
            make_table(seed=9 + i).to_csv(folder / f"a b{i}_test.csv", index=False)
    releases = [str(first / f"a b{i}.parquet") for i in range(2)]
    for i in range(2):
        argv = ["--data", str(first / f"a b{i}_train.csv"), "--output", releases[i]]
        argv += ["--schema", str(first / "schema.json"), "--steps", "20", "--no-intercept"]
        assert main(["client", *argv]) == 0
    argv = [*releases, "--schema", str(first / "schema.json"), "--seed", "3", "--resamples", "20"]
    argv += ["--test", *(str(first / f"a b{i}_test.csv") for i in range(2))]
    assert main(["server", *argv, "--output", str(first / "server"), "--report"]) == 0
    text = html.unescape((first / "server" / "report.html").read_text())
    commands = re.search(r"<pre>(.*)</pre>", text, re.DOTALL).group(1).splitlines()
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)[2:]
        paths = [str(again / w) if w.endswith((".csv", ".parquet", ".json", "server")) else w
                 for w in words[1:]]  # fmt: skip
        assert main([words[0].removeprefix("synthfair."), *paths]) == 0
    old, new = ((f / "server" / "metrics.json").read_bytes() for f in (first, again))
    assert old == new


def test_what_is_shown_of_a_comparison_is_its_own_command(runs, tmp_path):
    write_report(read_results(runs[-1:]), tmp_path / "r.html")
    text = html.unescape((tmp_path / "r.html").read_text())
    assert (
        "<pre>python -m synthfair compare small --sensitive town --clients 2 --methods central"
        in text
    )
    assert "--weights 10 --seeds 2 " in text
    assert "--optimizer gauss_newton" in text


def test_a_report_is_refused_before_the_server_writes_anything(tmp_path, release, capsys):
    sf.write_release(release, tmp_path / "r.parquet")
    (tmp_path / "schema.json").write_text(make_schema().model_dump_json())
    make_table(seed=9).to_csv(tmp_path / "t.csv", index=False)
    argv = ["server", str(tmp_path / "r.parquet"), "--schema", str(tmp_path / "schema.json")]
    argv += ["--test", str(tmp_path / "t.csv"), "--report", "--resamples", "5"]
    for file in ("plots/out-groups.svg", "a.history.csv"):
        output = tmp_path / file[0] / "out"
        (output / file).parent.mkdir(parents=True)
        (output / file).write_text("mine")
        assert main([*argv, "--output", str(output)]) == 2
        assert not (output / "metrics.json").exists()
        assert (output / file).read_text() == "mine"


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
    (tmp_path / "gap.toml").write_text("max_gap = 0.1")
    assert main([*argv, "--config", str(tmp_path / "gap.toml")]) == 2
    assert "max_gap: compare runs the weights" in capsys.readouterr().err


def test_report_from_the_command_line(runs, tmp_path, capsys):
    argv = ["report", *map(str, runs[:2]), "--output", str(tmp_path / "r.html")]
    assert main(argv) == 0
    assert (tmp_path / "r.html").exists()
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "s.html")]) == 2
    assert "metrics.json: cannot read" in capsys.readouterr().err
