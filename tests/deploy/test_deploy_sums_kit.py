"""Kits of aggregators, and of the sites and servers that trust them."""

import json
import shutil

import pytest
from builders import make_schema, make_table
from sum_world import ADDERS, ALLOWED, JOB, NAMES, SumWorld

pytest.importorskip("nvflare")

from kits import make_kits

from examples.deployment import org_of
from synthfair.deploy.check import problems
from synthfair.deploy.kit import harden
from synthfair.deploy.project import read_project, write_jobs
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.release.keys import make_keys
from synthfair.secure import make_aggregator_keys


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """Kits with aggregators, as their parties would fill them in, by name."""
    folder = tmp_path_factory.mktemp("federation")
    (folder / "schema.json").write_text(make_schema().to_json())
    write_json(folder / "project.yml", project())
    agreed = read_project(folder / "project.yml")
    made = make_kits(folder, {"localhost": "server"} | dict.fromkeys((*NAMES, *ADDERS), "client"))
    for kit in made.values():
        harden(kit, agreed)
    for name in NAMES:
        (made[name] / "data").mkdir()
        make_table().to_csv(made[name] / "data" / "table.csv", index=False)
        public, _ = make_keys(made[name] / "local" / f"{name}.key")
        for other in ("localhost", *ADDERS):
            shutil.copy(public, made[other] / "local" / "keys")
    for name in ADDERS:
        public, _ = make_aggregator_keys(made[name] / "sums" / f"{name}.key")
        for other in ("localhost", *NAMES):
            shutil.copy(public, made[other] / "local" / "aggregators")
    return made


def project(**changes):
    train = {"method": "fedavg", "rounds": 1, "secure": True, "clip": 1.0}
    return {
        "schema": "schema.json",
        "sites": [{"name": n, "org": org_of(n), "limits": {"kinds": ["training"]}} for n in NAMES],
        "aggregators": [{"name": n, "org": org_of(n), "limits": ALLOWED} for n in ADDERS],
        "jobs": {"train": {"train": train, "least_answers": 1},
                 "privfairfl": JOB | {"train": {"train": train}}},
    } | changes  # fmt: skip


def test_kits_with_aggregators_are_ready(kits):
    for kit in kits.values():
        assert problems(kit) == []
    own = json.loads((kits["sums-a"] / "local" / "synthfair.json").read_text())
    assert own["format"] == "synthfair-aggregator-site/1"
    assert own["limits"]["most_tasks"] == ALLOWED["most_tasks"]


def test_jobs_with_aggregators_need_all_of_them(tmp_path):
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    write_json(tmp_path / "project.yml", project())
    for job in write_jobs(read_project(tmp_path / "project.yml"), tmp_path / "jobs"):
        meta = json.loads((job / "meta.json").read_text())
        assert meta["deploy_map"] == {"app": ["server", *NAMES, *ADDERS]}
        assert meta["mandatory_clients"] == list(ADDERS)
        server = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
        (controller,) = server["workflows"]
        assert controller["args"]["aggregators"] == list(ADDERS)
    meta = json.loads((tmp_path / "jobs" / "train" / "meta.json").read_text())
    assert meta["min_clients"] == 3


def unready(path, name):
    if name == "no key":
        (path / "sums" / "sums-a.key").unlink()
    elif name == "others may read":
        (path / "sums" / "sums-a.key").chmod(0o644)
    elif name == "no answers":
        shutil.rmtree(path / "sums" / "sums-a.answers")
    elif name == "no clients":
        shutil.rmtree(path / "local" / "keys")
    else:
        found = json.loads((path / "local" / "synthfair.json").read_text())
        write_json(path / "local" / "synthfair.json", found | {"limits": {}})


@pytest.mark.parametrize(
    ("name", "said"),
    [("no key", "synthfair keygen"), ("others may read", "chmod 600"),
     ("no answers", "not the folder"), ("no clients", "cannot read"),
     ("limits", "allow no task")],
)  # fmt: skip
def test_an_aggregator_that_is_not_ready_is_told_why(kits, tmp_path, name, said):
    path = shutil.copytree(kits["sums-a"], tmp_path / "sums-a")
    unready(path, name)
    assert said in " ".join(problems(path))


def test_a_site_with_one_key_of_aggregators_is_told_so(kits, tmp_path):
    path = shutil.copytree(kits["north"], tmp_path / "north")
    (path / "local" / "aggregators" / "sums-b.pub").unlink()
    assert "has 1 keys of aggregators; must have two or three" in " ".join(problems(path))


@pytest.mark.parametrize(
    ("aggregators", "said"),
    [([], "the job train needs two or three"),
     ([{"name": "sums-a", "org": "one"}], "needs two or three"),
     ([{"name": n, "org": "one"} for n in ADDERS], "of one organisation"),
     ([{"name": n, "org": n.replace("-", "_")} for n in ("north", "sums-a")], "used twice")],
)  # fmt: skip
def test_a_project_names_aggregators_that_need_not_collude(tmp_path, aggregators, said):
    write_json(tmp_path / "project.yml", project(aggregators=aggregators))
    with pytest.raises(InputError, match=said):
        read_project(tmp_path / "project.yml")


def test_a_project_names_the_file_of_a_model(tmp_path):
    world = SumWorld(tmp_path)
    world.model()
    jobs = {"privfairfl": JOB | {"model": "given.json"}}
    write_json(world.folder / "project.yml", project(jobs=jobs))
    found = read_project(world.folder / "project.yml").jobs.privfairfl
    assert found.model == (world.folder / "given.json").read_bytes()
    write_json(world.folder / "project.yml", project(jobs={"privfairfl": JOB | {"model": "no"}}))
    with pytest.raises(InputError, match="cannot read"):
        read_project(world.folder / "project.yml")
