"""The project of a federation, and the folders of its jobs."""

import json

import pytest
from builders import some_model
from sum_world import JOB as COUNTS

pytest.importorskip("nvflare")

from kits import ADDERS, AGGREGATORS, JOB, SITES, write_project

from synthfair.cli import main
from synthfair.deploy.gap_job import GapJob
from synthfair.deploy.project import read_project, write_jobs
from synthfair.errors import InputError
from synthfair.trained import write_model

SECURE = {"train": {"method": "fedavg", "rounds": 1, "secure": True, "clip": 1.0}}


def test_job_holds_settings_alone(tmp_path, capsys):
    command = ["deploy", "job", str(write_project(tmp_path)), "--output", str(tmp_path / "jobs")]
    assert main(command) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'jobs' / 'single_shot'}\n"
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "meta.json", "config_fed_server.json", "config_fed_client.json"}  # fmt: skip
    text = "".join(path.read_text() for path in files)
    assert str(tmp_path) not in text
    assert text.count('"path"') == 2
    assert main(command) == 2  # not into a folder that has something


def test_job_with_aggregators_needs_all_of_them(tmp_path):
    """And no job has others; a model's file lies next to the project."""
    jobs = {"train": SECURE | {"least_answers": 1}, "privfairfl": COUNTS | {"train": SECURE},
            "gap": {"epsilon": 1.0, "model": "model.json"}}  # fmt: skip
    write_model(some_model(), tmp_path / "model.json")
    project = read_project(write_project(tmp_path, aggregators=AGGREGATORS, jobs=jobs))
    for job, least in zip(write_jobs(project, tmp_path / "jobs"), (2, 4, 3), strict=True):
        meta, adders = json.loads((job / "meta.json").read_text()), [*ADDERS] * (least > 2)
        assert meta["deploy_map"] == {"app": ["server", *SITES, *adders]}
        assert (meta["mandatory_clients"], meta["min_clients"]) == (adders, least)
        server = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
        args = server["workflows"][0]["args"]
        assert args["aggregators"] == adders
        if args["kind"] == "gap":
            sent = GapJob.model_validate_json(json.dumps(args["job"])).model
            assert sent == (tmp_path / "model.json").read_bytes()


@pytest.mark.parametrize(("changes", "said"), [
    ({"builders": []}, "builders"), ({"sites": []}, "sites"),
    ({"sites": [{"name": "../a", "org": "bank"}]}, r"sites\.0\.name"),
    ({"sites": [{"name": "hub.example.org", "org": "bank"}]}, r"sites\.0\.name"),
    ({"sites": [{"name": "a", "org": "bank"}] * 2}, "'a'"),
    ({"jobs": {"single_shot": {"release": {"release": "fair", "k_min": 3}}}}, "k_min"),
    ({"jobs": {"single_shot": JOB | {"server": {"rho": -1}}}}, "rho"),
    ({"jobs": {"train": SECURE}}, "aggregators: the job train"),
    ({"aggregators": AGGREGATORS[:1]}, "aggregators"),
    ({"aggregators": [one | {"org": "one"} for one in AGGREGATORS]}, "one organisation"),
    ({"aggregators": [one | {"name": "a"} for one in AGGREGATORS]}, "'a'"),
])  # fmt: skip
def test_project_is_refused_by_its_key(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        read_project(write_project(tmp_path, **changes))


def test_project_runs_no_code_and_one_without_jobs_writes_none(tmp_path):
    with pytest.raises(InputError, match="jobs"):
        write_jobs(read_project(write_project(tmp_path, jobs={})), tmp_path / "none")
    (tmp_path / "project.yml").write_text("name: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(InputError, match="not YAML"):
        read_project(tmp_path / "project.yml")
