"""Runs of ``compare`` with random scores, and the tables of a page, for tests of the report."""

import json
from html.parser import HTMLParser

import numpy as np
from builders import make_schema

import synthfair as sf
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.metrics import Scored
from synthfair.metrics_file import Cost, MetricsFile, SplitTable, write_metrics
from synthfair.report.page import write_report

CONFIG = sf.DistillConfig(n_synthetic=24, steps=60, learning_rate=0.02)


def write_run(folder, *, method="single_shot", rho_o=0.0, seed=0):
    """A run's folder as ``compare`` writes it: scores are random, nothing is trained."""
    rng, report = np.random.default_rng([seed, int(rho_o)]), sf.ServerConfig(resamples=20)
    scored = {}
    for name in ("client_0", "client_1"):
        y, score, s = rng.choice([-1.0, 1.0], 60), rng.normal(size=60), rng.integers(2, size=60)
        scored[name] = Scored(y, score, s)
    config = CONFIG.model_copy(update={"rho_o": rho_o, "seed": seed})
    metrics = MetricsFile.of(
        evaluate_scores(scored, report, schema=make_schema()), seed=seed, method=method,
        table=SplitTable(name="small", sensitive="town", clients=2), asked=config.asked,
        config=dict.fromkeys(scored, config), cost=Cost(2, 1, 5000), converged=True,
        seconds=1.5 + seed,
    )  # fmt: skip
    folder.mkdir()
    write_metrics(metrics, folder / "metrics.json")
    return folder


def write_runs(folder):
    """Two methods, the second at another weight, with two seeds each."""
    return [
        write_run(folder / f"{method}-seed_{seed}", method=method, rho_o=rho_o, seed=seed)
        for seed in range(2)
        for method, rho_o in (("single_shot", 0.0), ("central", 10.0))
    ]


def edited(run, folder, **changes):
    """A copy of the run with other entries of metrics.json."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = json.loads((run / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, **changes}))
    return folder


def copied(run, folder, **changes):
    """The run with other settings, in another folder."""
    metrics = json.loads((run / "metrics.json").read_text())
    for config in metrics["config"].values():
        config.update(changes)
    asked = sf.DistillConfig.model_validate(config).asked.model_dump()
    return edited(run, folder, config=metrics["config"], asked=asked)


def page_of(*folders, max_gap=None):
    """The text of the page on some runs."""
    page = folders[0] / "page.html"
    write_report(folders, page, max_gap=max_gap, force=True)
    return page.read_text()


def tables(text, title):
    """The tables of a page with that title: rows of the cells' texts, the titles first."""
    parser = _Tables(title)
    parser.feed(text)
    return parser.tables


class _Tables(HTMLParser):
    def __init__(self, title):
        super().__init__()
        self.tables, self._title, self._row, self._inside = [], title, None, False

    def handle_starttag(self, tag, attrs):
        if tag == "div":
            self._inside = dict(attrs).get("aria-label") == self._title
            if self._inside:
                self.tables.append([])
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._row.append("")

    def handle_data(self, data):
        if self._row:
            self._row[-1] = " ".join(f"{self._row[-1]} {data}".split())

    def handle_endtag(self, tag):
        if tag == "tr":
            if self._inside:
                self.tables[-1].append(tuple(self._row))
            self._row = None
