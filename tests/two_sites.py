"""Two sites and a server in one process: messages as bytes, and no engine."""

import json

from conftest import make_schema, make_table

import synthfair
from synthfair.deploy.party import Party
from synthfair.deploy.single_shot import SingleShotJob, run_single_shot
from synthfair.files import write_json
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.task import messages
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import ServerSettings, read_settings
from synthfair.task.messages import Message

RELEASE = {"release": "surrogate", "k_min": 5}
PRIVATE = RELEASE | {"epsilon": 1.0, "delta": 1e-6}
LIMITS = {
    "kinds": ["surrogate", "fair", "training", "counts"],
    "most_delta": 0.1,
    "store_models": True,
    "without_epsilon": True,
    "most_releases": 10,
    "k_min": 5,
    "least_rows": 120,
    "most_epsilon": 2.0,
}
NAMES = ("north", "south")


class InProcess:
    """A channel that asks sites of this process; some may fail, or be silent."""

    def __init__(self, sites, job="job-1"):
        self.sites, self.job, self.asked, self.on_way = sites, job, [], lambda site, m: m

    def __call__(self, question, sites):
        self.asked.append(question.message)
        found = {}
        for name in sites:
            if name in self.sites:
                answer = self.sites[name].answer(
                    question.message, job=self.job, submitter="lead@hub.org"
                )
                found[name] = self.on_way(name, answer), 0.1
        return found


class World:
    """Two sites and a server in one folder."""

    def __init__(self, folder, rows=1200):
        self.folder, self.said = folder, []
        (folder / "keys").mkdir()
        (folder / "schema.json").write_text(make_schema().to_json())
        for i, name in enumerate(NAMES):
            local = folder / name / "local"
            local.mkdir(parents=True)
            make_table(rows, seed=i).to_csv(folder / name / "rows.csv", index=False)
            make_table(200, seed=9 + i).to_csv(folder / f"{name}_test.csv", index=False)
            public, _ = make_keys(local / f"{name}.key")
            (folder / "keys" / public.name).write_bytes(public.read_bytes())
            self.limit(name)
        write_json(folder / "server.json", {"schema": "schema.json", "keys": "keys",
                   "tests": [f"{name}_test.csv" for name in NAMES]})  # fmt: skip

    def limit(self, name, **limits):
        write_json(self.folder / name / "local" / "synthfair.json", {
            "data": "../rows.csv", "schema": "../../schema.json", "key": f"{name}.key",
            "limits": LIMITS | limits})  # fmt: skip

    def bound(self, name, epsilon=100.0, delta=0.5):
        """Limits a site's ledger, if it is not: else no answer has an epsilon."""
        ledger = Ledger.for_table(self.folder / name / "rows.csv")
        if ledger.spent().limit is None:
            ledger.set_limit(epsilon, delta)

    def left(self, name):
        """What left a site, by its ledger."""
        records = Ledger.for_table(self.folder / name / "rows.csv").records()
        return [record.what for record in records if record.what.kind != "limit"]

    def site(self, name):
        return Party(name, self.folder / name, self.said.append)

    def federation(self, channel, **changes):
        settings = read_settings(self.folder / "server.json", ServerSettings)
        return JobSites(
            channel, settings.model_copy(update=changes), job=channel.job, server="hub",
            sites=NAMES, log=self.said.append)  # fmt: skip

    def run(self, channel, *, settings=RELEASE, **changes):
        federation = self.federation(channel)
        job = SingleShotJob(release=settings, server={"rho": 1.0, "max_influence": 5.0}, **changes)
        output = self.folder / "out"
        try:
            run_single_shot(federation, job, self.folder / "private", output)
        finally:
            federation.write(output, None)
        return federation

    def ask(self, settings=RELEASE, **changes):
        ask = {"task": "single_shot", "job": "job-1", "round": 0, "recipient": "hub",
               "version": synthfair.__version__, "schema_hash": make_schema().hash,
               "settings": settings, "timeout": 10} | changes  # fmt: skip
        return Message(json.dumps(ask).encode())

    def code(self, message, name="north", **changes):
        options = {"job": "job-1", "submitter": "lead@hub.org"} | changes
        return json.loads(self.site(name).answer(message, **options).text)["code"]


def resigned(world, name, message, carried):
    """What a site would send that carries something else."""
    answer = messages.Answer.model_validate_json(message.text)
    key = read_signing_key(world.folder / name / "local" / f"{name}.key")
    return messages.make_answer(answer, carried, key)
