"""A federation that sums by shares, in one process."""

import base64
import json

import numpy as np
from builders import NAMES, RELEASE, InProcess, World, make_schema

import synthfair as sf
from synthfair.cli import main
from synthfair.deploy.job_sums import read_aggregators
from synthfair.deploy.party import Party
from synthfair.deploy.privfairfl_job import PrivFairFLJob, run_privfairfl
from synthfair.deploy.single_shot import SingleShotJob, run_single_shot
from synthfair.files import write_json
from synthfair.release.keys import read_keys
from synthfair.secure import make_aggregator_keys
from synthfair.secure.task import RECORDS
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import ServerSettings, read_settings
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
        self.change(folder / "server.json", {"aggregators": "aggregators"})

    def change(self, path, changes):
        write_json(path, json.loads(path.read_text()) | changes)

    def limit(self, name, **limits):
        super().limit(name, **limits)
        own = self.folder / name / "local" / "synthfair.json"
        self.change(own, {"aggregators": "../../aggregators"} | self.pinned)

    def allow(self, name, **limits):
        write_json(self.folder / name / "local" / "synthfair.json", {
            "format": "synthfair-aggregator-site/1", "schema": "../../schema.json",
            "key": f"../sums/{name}.key", "clients": "../../keys",
            "limits": ALLOWED | limits})  # fmt: skip

    def site(self, name):
        return Party(name, self.folder / name, self.said.append)

    def records(self, name):
        """Where an aggregator's answers lie."""
        return self.site(name).settings.key.with_suffix(RECORDS)

    def channel(self, job="job-1"):
        return InProcess({name: self.site(name) for name in NAMES + ADDERS}, job=job)

    def federation(self, channel, **changes):
        settings = read_settings(self.folder / "server.json", ServerSettings)
        return JobSites(
            channel, settings.model_copy(update=changes), job=channel.job, server="hub",
            sites=NAMES, log=self.said.append,
            aggregators=read_aggregators(settings.aggregators, ADDERS))  # fmt: skip

    def post(self, channel, **changes):
        job = PrivFairFLJob(**({"model": self.model()} | JOB | changes))
        for name in NAMES:
            self.bound(name)
        federation, output = self.federation(channel), self.folder / channel.job
        run_privfairfl(federation, job, self.folder / "server" / channel.job, output)
        return federation, output

    def key(self, name):
        return next(k for k, n in read_keys([self.folder / "keys"]).items() if n == name)

    def model(self):
        schema = make_schema()
        names = input_names(schema, intercept=True)
        theta = tuple(np.linspace(-1, 1, len(names)).tolist())
        made = {"version": "0", "loss": "logistic", "gradient_norm": None, "converged": None}
        model = sf.TrainedModel(schema=schema, intercept=True, inputs=names, theta=theta, **made)
        sf.write_model(model, self.folder / "given.json")
        return base64.b64encode((self.folder / "given.json").read_bytes()).decode()


SHARED = RELEASE | {"epsilon": 2.0, "delta": 1e-5}
SUMS = "histograms", "column_moments", "tables", "pairs", "anchors"


class ByCommands:
    """The sites and aggregators of a world, by files and commands, with ledgers of their own."""

    def __init__(self, world):
        self.world, self.folder = world, world.folder / "by_files"
        self.schema = ["--schema", f"{world.folder}/schema.json"]
        self.folder.mkdir()
        self.keys = [f"{world.folder}/aggregators/{name}.pub" for name in ADDERS]
        lines = [f"{key} = {json.dumps(value)}" for key, value in SHARED.items()]
        (self.folder / "settings.toml").write_text("\n".join(lines))

    def plan(self, *flags, clients="keys", output="tasks"):
        parties = ["--aggregators", *self.keys, "--clients", f"{self.world.folder}/{clients}"]
        return main(["secure", "plan", *parties, *flags, "--output", f"{self.folder}/{output}"])

    def plan_surrogate(self, *flags, **places):
        asked = ["--surrogate", f"{self.folder}/settings.toml", "--opened", f"{self.folder}/opened"]
        return self.plan(*asked, *self.schema, *flags, **places)

    def answer(self, name, task, *flags):
        site = self.world.folder / name
        own = ["--data", f"{site}/rows.csv", "--sign", f"{site}/local/{name}.key", *flags]
        agreed = ["--aggregators", *self.keys, "--most-epsilon", "2", "--ledger", self.ledger(name)]
        return main(["answer", str(task), *own, *agreed, "--output", f"{self.folder}/{task.stem}"])

    def ledger(self, name):
        return f"{self.folder}/{name}.ledger"

    def add_and_open(self, task, output):
        """Both aggregators' answers, opened."""
        files = []
        for role, name in enumerate(ADDERS):
            files.append(f"{self.folder}/{task.stem}.sum_{role}")
            add = ["--task", str(task), "--key", f"{self.world.folder}/{name}/sums/{name}.key"]
            add += [f"{self.folder}/{task.stem}", "--most-epsilon", "2", "--output", files[-1]]
            assert main(["secure", "add", *add]) == 0
        assert main(["secure", "open", *files, "--task", str(task), "--output", str(output)]) == 0

    def exchange(self, name):
        """A sum of a surrogate, which all sites answer."""
        task = self.folder / "tasks" / f"{name}.json"
        for site in NAMES:
            assert self.answer(site, task, *self.schema) == 0
        (self.folder / "opened").mkdir(exist_ok=True)
        self.add_and_open(task, self.folder / "opened" / f"{name}.json")


def by_job(world, job="job-1", channel=None, **changes):
    """A job with one noise for all sites."""
    settings = {"release": SHARED, "shared_noise": True, "server": {"max_influence": 5.0}}
    federation = world.federation(channel or world.channel(job))
    folders = world.folder / "server" / job, world.folder / job
    run_single_shot(federation, SingleShotJob(**settings | changes), *folders)
    return federation
