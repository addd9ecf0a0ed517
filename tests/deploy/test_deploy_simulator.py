"""A job in the engine's own simulator: each site a process, and the engine between them."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from builders import NAMES, World, make_schema
from one_upload import processes_of
from site_training import FPFL, MANY, in_process

import synthfair as sf
from synthfair.deploy.job_validator import CLIENT, SERVER
from synthfair.deploy.kit import description
from synthfair.deploy.project import read_project, write_jobs
from synthfair.files import write_json
from synthfair.task.limits import PARTY_FILE, ServerSettings, read_settings, read_site_settings

pytest.importorskip("nvflare")

ADDED = "party_files.PartyFiles"
"""The simulator has one folder ``local`` for all; this component gives each party its own files."""


def make_job(world, training):
    """The job's folder; it has a component more, which hands out the parties' files."""
    folder, parties = world.folder / "made", world.folder / "parties"
    folder.mkdir()
    (folder / "schema.json").write_text(make_schema().to_json())
    write_json(folder / "project.yml", {
        "schema": "schema.json",
        "sites": [{"name": name, "org": name} for name in NAMES],
        "jobs": {"train": {"train": training, "timeout": 60}}})  # fmt: skip
    (job,) = write_jobs(read_project(folder / "project.yml"), folder / "jobs")
    component = {"id": "files", "path": ADDED, "args": {"folder": str(parties)}}
    for name in (SERVER, CLIENT):
        config = json.loads((job / "app" / name).read_text())
        write_json(job / "app" / name, config | {"components": [component]})
    settings = {
        name: read_site_settings(world.folder / name / "local" / PARTY_FILE) for name in NAMES
    }
    settings["simulator_server"] = read_settings(world.folder / "server.json", ServerSettings)
    for name, own in settings.items():
        path = parties / name / PARTY_FILE
        path.parent.mkdir(parents=True)
        write_json(path, own.model_dump(mode="json", by_alias=True))  # with absolute paths
    return job


def simulate(job, workspace):
    """Runs a job; the workspace then has a folder for the server, and one for each site."""
    (workspace / "local").mkdir(parents=True)
    allowed = [*description("classes").values(), ADDED]
    write_json(workspace / "local" / "resources.json", {
        "format_version": 2, "class_allow_list": allowed})  # fmt: skip
    folder = Path(__file__).parent
    paths = map(str, (folder, folder.parent, folder.parents[1]))
    argv = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", str(workspace),
            "-c", ",".join(NAMES), "-t", str(len(NAMES))]  # fmt: skip
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with (workspace.parent / "console").open("w+") as console:
        run = subprocess.Popen(argv, env=env, stdout=console, stderr=subprocess.STDOUT)
        try:
            run.wait(200)
        finally:  # its processes are in sessions of their own
            for process in processes_of(workspace):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            run.wait()
        console.seek(0)
        assert run.returncode == 0, console.read()[-5000:]


@pytest.mark.slow
def test_rounds_in_the_simulator_give_the_numbers_of_one_process(tmp_path):
    world, workspace = World(tmp_path, rows=MANY), tmp_path / "simulator" / "workspace"
    for name in NAMES:
        world.limit(name, most_rounds=FPFL["rounds"])
    simulate(make_job(world, FPFL), workspace)
    output = workspace / "server" / "simulate_job" / "app_server" / "synthfair"
    document = json.loads((output / "federation.json").read_text())
    assert document["error"] is None
    assert {name: site["code"] for name, site in document["sites"].items()} == dict.fromkeys(
        NAMES, "ok"
    )
    theta = sf.read_model(output / "model.json").theta
    np.testing.assert_allclose(theta, in_process(FPFL, MANY).model.theta, rtol=1e-9, atol=1e-11)
    for name in NAMES:
        left = world.left(name)
        assert {purchase.output for purchase in left} == {"simulate_job"}
        assert [purchase.round for purchase in left] == list(range(FPFL["rounds"]))
