"""Small inputs for tests: schemas, tables, models, releases, pools, and sites with a server."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import synthfair
import synthfair as sf
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.deploy.party import Party
from synthfair.deploy.single_shot import SingleShotJob, run_single_shot
from synthfair.files import write_json
from synthfair.model import LinearModel
from synthfair.postprocess import GroupDecision
from synthfair.privacy.ledger import Ledger
from synthfair.release.format import Release, make_header
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.release.settings import DistillConfig
from synthfair.task import messages
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import ServerSettings, read_settings
from synthfair.task.messages import Message
from synthfair.trained import TrainedModel, input_names


def silent(_):
    """A source of noise of exactly zero, and of choices of the best, to compare with exact ones."""
    raise AssertionError("no bytes are asked for")


def invented_rows(schema: Schema, n: int, seed: int = 0) -> pd.DataFrame:
    """Return n rows that fit a schema; all values of a column are equally frequent."""
    rng, rows = np.random.default_rng(seed), {}
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            missing = [None] * (column.missing == "category")
            rows[name] = rng.choice(np.array([*column.categories, *missing], object), n)
        else:
            rows[name] = rng.uniform(column.lower, column.upper, n)
    return pd.DataFrame(rows)


def make_schema(n_groups: int = 2) -> Schema:
    """Two numbers, a category with missing values, and n_groups groups."""
    return Schema(
        name="small",
        label="paid",
        positive="yes",
        sensitive="town",
        columns={
            "income": Numeric(lower=0.0, upper=100.0, out_of_range="clip"),
            "age": Numeric(lower=18.0, upper=90.0, missing="category"),
            "home": Categorical(categories=("own", "rent", "other"), missing="category"),
            "town": Categorical(categories=tuple("abcd"[:n_groups])),
            "paid": Categorical(categories=("no", "yes")),
        },
    )


def with_column(schema: Schema, name: str, **changes) -> Schema:
    """The schema with a column changed; nothing is checked."""
    column = schema.columns[name].model_copy(update=changes)
    return schema.model_copy(update={"columns": schema.columns | {name: column}})


def make_table(n: int = 120, seed: int = 0, n_groups: int = 2) -> pd.DataFrame:
    """Rows of that schema in which the label depends on income and on the group."""
    rng = np.random.default_rng(seed)
    town = rng.integers(n_groups, size=n)
    income = rng.uniform(0, 100, n)
    chance = 1 / (1 + np.exp(-(income - 45 + 15 * town) / 15))
    return pd.DataFrame(
        {
            "income": income,
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.uniform(18, 90, n)),
            "home": rng.choice(np.array(["own", "rent", "other", None], object), n),
            "town": np.array(list("abcd"))[town],
            "paid": np.where(rng.random(n) < chance, "yes", "no"),
        }
    )


SCHEMA, SCHEMA_OF_3 = make_schema(), make_schema(3)
TABLE, TABLE_OF_3 = make_table(400), make_table(600, n_groups=3)
"""The two tables of a session, for tests to which the number of rows is nothing; not changed."""


def schema_with(**features):
    """That schema with other features."""
    roles = {name: SCHEMA.columns[name] for name in ("town", "paid")}
    return SCHEMA.model_copy(update={"columns": features | roles})


def part(rows, keep):
    """Some encoded rows, by a mask, a slice or indices."""
    return sf.Encoded(*(field[keep] for field in rows))


def joined(*parts):
    return sf.Encoded(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


QUICK = sf.DistillConfig(n_synthetic=24, steps=60)
"""Settings that distil them in a moment. Others of as many synthetic rows share a compilation."""


def some_model(n_groups=2, intercept=True):
    schema = make_schema(n_groups)
    names = input_names(schema, intercept=intercept, group_input=True)
    theta = np.random.default_rng(0).normal(size=len(names))
    return TrainedModel(
        schema=schema, version="0", loss="l", intercept=intercept, inputs=names, group_input=True,
        theta=tuple(theta.tolist()), gradient_norm=0.0, converged=True,
    )  # fmt: skip


def checksum(body):
    """Of all but itself and the coefficients, which follow; whatever the code does now."""
    body = {k: v for k, v in body.items() if k not in ("sha256", "coefficients")}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


KEY = "ab" * 32


MIXED = {"notion": "equalized_odds", "alpha": 0.0, "n_bins": 10, "key": KEY,
         "steps": (((2, 0.25), (7, 1.0)), ((5, 0.5),))}  # fmt: skip


CERTAIN = MIXED | {"key": None, "steps": (((6, 1.0),), ())}


def fair_model(**changes):
    return some_model().model_copy(update={"decision": GroupDecision(**(MIXED | changes))})


def some_release(x=None, **settings):
    x = np.full((2, len(SCHEMA.encoded_names)), 0.25) if x is None else x
    config = DistillConfig(**{"group_input": True} | settings)
    header = make_header(config, SCHEMA, model=LinearModel(), penalty="p")
    s, y = np.arange(len(x)) % 2, np.where(np.arange(len(x)) % 2, 1.0, -1.0)
    return Release(header, x, s, y)


def rewrite(path, change=lambda table: table, **header):
    """The file with some of its columns or of its header changed."""
    table = change(pq.read_table(path))
    metadata = dict(pq.read_schema(path).metadata)
    if header:
        metadata[b"synthfair"] = json.dumps(json.loads(metadata[b"synthfair"]) | header).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)


def set_column(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values))


def some_pool(n=4, rows=60, seed=0, schema=SCHEMA):
    """Releases of clients that are alike: random rows whose label follows a common rule.

    Most tests pool 240 rows, or 1800, so that few sizes are compiled.
    """
    rng, releases = np.random.default_rng(seed), {}
    for i in range(n):
        x = rng.random((rows, len(schema.encoded_names)))
        s = rng.integers(len(schema.groups), size=rows)
        y = np.where(rng.random(rows) < 1 / (1 + np.exp(-8 * (x[:, 0] - 0.5))), 1.0, -1.0)
        releases[f"c{i}"] = replace(some_release(), x=x, s=s, y=y)
    return releases


def flipped(release, times=27):
    x, s, y = (np.concatenate([part] * times) for part in (release.x, release.s, -release.y))
    return replace(release, x=x, s=s, y=y)


def unlike_tables(n=600, clients=3):
    """Each client has mostly one group and label: no two are alike."""
    table = make_table(n)
    town, paid = table["town"] == "b", table["paid"] == "yes"
    owner = (2 * town + paid) % clients
    mixed = np.random.default_rng(0).random(n) < 0.2
    owner = np.where(mixed, np.random.default_rng(1).integers(clients, size=n), owner)
    return {f"c{k}": table[owner == k] for k in range(clients)}


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
        if self.ledger(name).spent().limit is None:
            self.ledger(name).set_limit(epsilon, delta)

    def ledger(self, name="north"):
        return Ledger.for_table(self.folder / name / "rows.csv")

    def left(self, name):
        """What left a site, by its ledger."""
        records = self.ledger(name).records()
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

    def answer(self, message, name="north", **changes):
        """The code of a site's answer, and what it carries."""
        options = {"job": "job-1", "submitter": "lead@hub.org"} | changes
        found = self.site(name).answer(message, **options)
        return json.loads(found.text)["code"], found.carried

    def code(self, message, name="north", **changes):
        return self.answer(message, name, **changes)[0]

    def altering(self, site, change):
        """What a channel does on whose way a site's answer comes to carry something else."""

        def on_way(name, message):
            altered = change(message.carried) if name == site else None
            return message if altered is None else resigned(self, name, message, altered)

        return on_way


def resigned(world, name, message, carried):
    """What a site would send that carries something else."""
    answer = messages.Answer.model_validate_json(message.text)
    key = read_signing_key(world.folder / name / "local" / f"{name}.key")
    return messages.make_answer(answer, carried, key)
