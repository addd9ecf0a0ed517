"""Sums by shares over sites and aggregators, without an engine: PrivFairFL's thresholds."""

import base64
import json

import numpy as np
import pytest
from conftest import make_schema
from test_deploy_jobs import NAMES, InProcess, World

import synthfair as sf
from synthfair.cli import main
from synthfair.deploy.federation import Federation
from synthfair.deploy.jobs import make_routines
from synthfair.deploy.privfairfl import PrivFairFLJob, run_privfairfl
from synthfair.deploy.settings import ServerSettings, read_settings
from synthfair.deploy.site import Site
from synthfair.files import write_json
from synthfair.secure import make_aggregator_keys
from synthfair.secure.summands import GroupCounts
from synthfair.trained import input_names

ADDERS = ("sums-a", "sums-b")
ALLOWED = {"most_tasks": 20, "most_epsilon": 2.0, "most_rho": 100.0}
JOB = {"notion": "statistical_parity", "alpha": 0.1, "bins": 11, "epsilon": 2.0,
       "rows_per_client": 500}  # fmt: skip


class SumWorld(World):
    """Two sites, two aggregators and a server in one folder."""

    def __init__(self, folder, rows=300):
        self.pinned = {}
        super().__init__(folder, rows)
        (folder / "aggregators").mkdir()
        for name in ADDERS:
            (folder / name / "local").mkdir(parents=True)
            public, _ = make_aggregator_keys(folder / name / "sums" / f"{name}.key")
            (folder / "aggregators" / public.name).write_bytes(public.read_bytes())
            self.allow(name)
        path = folder / "server.json"
        write_json(path, json.loads(path.read_text()) | {"aggregators": "aggregators"})

    def limit(self, name, **limits):
        super().limit(name, **limits)
        path = self.folder / name / "local" / "synthfair.json"
        pinned = {"aggregators": "../../aggregators"} | self.pinned
        write_json(path, json.loads(path.read_text()) | pinned)

    def allow(self, name, **limits):
        write_json(self.folder / name / "local" / "synthfair.json", {
            "format": "synthfair-aggregator-site/1", "schema": "../../schema.json",
            "key": f"../sums/{name}.key", "clients": "../../keys",
            "limits": ALLOWED | limits})  # fmt: skip

    def site(self, name):
        return Site(name, self.folder / name, make_routines(), self.said.append)

    def channel(self, job="job-1"):
        return InProcess({name: self.site(name) for name in NAMES + ADDERS}, job=job)

    def federation(self, channel, **changes):
        settings = read_settings(self.folder / "server.json", ServerSettings)
        return Federation(
            channel, settings.model_copy(update=changes), job=channel.job, server="hub",
            sites=NAMES, log=self.said.append, aggregators=ADDERS)  # fmt: skip

    def post(self, channel, **changes):
        job = PrivFairFLJob(**({"model": self.model()} | JOB | changes))
        federation, output = self.federation(channel), self.folder / channel.job
        run_privfairfl(federation, job, self.folder / "server" / channel.job, output)
        return federation, output

    def model(self):
        schema = make_schema()
        names = input_names(schema, intercept=True)
        theta = tuple(np.linspace(-1, 1, len(names)).tolist())
        model = sf.TrainedModel(
            schema=schema, version="0", loss="logistic", intercept=True, inputs=names, theta=theta,
            gradient_norm=None, converged=None,
        )  # fmt: skip
        sf.write_model(model, self.folder / "given.json")
        return base64.b64encode((self.folder / "given.json").read_bytes()).decode()


@pytest.fixture
def world(tmp_path):
    return SumWorld(tmp_path)


@pytest.fixture
def known_noise(monkeypatch):
    """Noise that anybody can repeat: the same at each aggregator."""

    def noise(what, source=None):
        return np.random.default_rng(3).integers(-9, 10, what.length)

    monkeypatch.setattr(GroupCounts, "noise", noise)


def by_hand(world, folder):
    """The same sum by the commands and files of ``secure`` and ``thresholds``."""
    folder.mkdir()
    aggregators = [str(world.folder / "aggregators" / f"{name}.pub") for name in ADDERS]
    model, task = str(world.folder / "given.json"), str(folder / "task.json")
    plan = ["plan", "--model", model, "--bins", "11", "--epsilon", "2", "--rows-per-client", "500"]
    plan += ["--aggregators", *aggregators, "--clients", str(world.folder / "keys")]
    assert main(["secure", *plan, "--output", task]) == 0
    for name in NAMES:
        share = ["--data", str(world.folder / name / "rows.csv"), "--model", model]
        share += ["--aggregators", *aggregators, "--ledger", str(folder / name)]
        share += ["--sign", str(world.folder / name / "local" / f"{name}.key")]
        assert main(["secure", "share", "--task", task, *share, "--output", str(folder)]) == 0
    sums = []
    for role, name in enumerate(ADDERS):
        key = str(world.folder / name / "sums" / f"{name}.key")
        sums.append(str(folder / f"sum_{role}.json"))
        add = ["--task", task, "--key", key, str(folder), "--output", sums[-1]]
        assert main(["secure", "add", *add]) == 0
    histogram, fair = str(folder / "histogram.json"), str(folder / "fair_model.json")
    assert main(["secure", "open", "--task", task, *sums, "--output", histogram]) == 0
    choice = ["--notion", "statistical_parity", "--alpha", "0.1", "--model", model]
    assert main(["thresholds", histogram, *choice, "--output", fair]) == 0


@pytest.mark.usefixtures("known_noise")
def test_the_numbers_are_those_of_the_files_route(world):
    _, output = world.post(world.channel())
    by_hand(world, world.folder / "hand")
    for file in ("histogram.json", "fair_model.json"):
        assert (output / file).read_text() == (world.folder / "hand" / file).read_text()
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["decision"]["notion"] == "statistical_parity"
    assert metrics["counts"]["epsilon"] == 2.0
    for name in NAMES:
        sent = world.folder / name / "synthfair" / "models" / "job-1.json"
        assert sent.read_bytes() == (output / "fair_model.json").read_bytes()
