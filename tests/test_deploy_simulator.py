"""A job in the engine's own simulator: each site a process, and the engine between them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_deploy_training import FPFL, ROWS, in_process
from two_sites import NAMES, World

import synthfair as sf
from synthfair.deploy.hardening import CLASSES
from synthfair.deploy.job_files import CLIENT, SERVER, client_config, server_config
from synthfair.deploy.settings import FILE, ServerSettings, read_settings, read_site_settings
from synthfair.deploy.trace import FILE as TRACE
from synthfair.deploy.trace import Trace
from synthfair.files import write_json

pytest.importorskip("nvflare")

PARTY_FILES = "party_files.PartyFiles"
SIMULATED_SERVER = "simulator_server"


def simulate(world, kind, job):
    """Runs a job; returns the simulator's folder, with one of the server's and of each site's."""
    folder = world.folder / "simulator"
    settings = {name: read_site_settings(world.folder / name / "local" / FILE) for name in NAMES}
    settings[SIMULATED_SERVER] = read_settings(world.folder / "server.json", ServerSettings)
    for name, own in settings.items():
        (folder / "parties" / name).mkdir(parents=True)
        write_json(folder / "parties" / name / FILE, own.model_dump(mode="json", by_alias=True))
    files = {"id": "files", "path": PARTY_FILES, "args": {"folder": str(folder / "parties")}}
    arguments = {"kind": kind, "sites": list(NAMES), "job": job, "aggregators": []}
    for name, config in ((SERVER, server_config(arguments)), (CLIENT, client_config())):
        path = folder / kind / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, config | {"components": [files]})
    write_json(folder / kind / "meta.json", {
        "name": kind, "resource_spec": {}, "min_clients": len(NAMES),
        "deploy_map": {"app": ["server", *NAMES]}})  # fmt: skip
    (folder / "run" / "local").mkdir(parents=True)
    allowed = [*CLASSES["server"], *CLASSES["client"], PARTY_FILES]
    write_json(folder / "run" / "local" / "resources.json", {
        "format_version": 2, "class_allow_list": allowed})  # fmt: skip
    names = ",".join(NAMES)
    done = subprocess.run(
        [Path(sys.executable).with_name("nvflare"), "simulator", folder / kind,
         "--workspace", folder / "run", "--clients", names, "--threads", str(len(NAMES))],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        check=False, capture_output=True, text=True, timeout=200)  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return folder / "run"


def test_rounds_in_the_simulator_give_the_numbers_of_one_process(tmp_path):
    world = World(tmp_path, rows=ROWS)
    for name in NAMES:
        world.limit(name, most_rounds=FPFL["rounds"])
    run = simulate(world, "train", {"train": FPFL})
    output = run / "server" / "simulate_job" / "app_server" / "synthfair"
    told = json.loads((output / "federation.json").read_text())
    assert told["error"] is None
    assert {name: site["code"] for name, site in told["sites"].items()} == dict.fromkeys(
        NAMES, "ok"
    )
    theta = sf.read_model(output / "model.json").theta
    np.testing.assert_allclose(theta, in_process(FPFL).model.theta, rtol=1e-9, atol=1e-11)
    for name in NAMES:
        events = Trace(run / name / "synthfair" / TRACE).events()
        assert [(event.job, event.code) for event in events] == [("simulate_job", "ok")] * len(
            events
        )
        assert {event.round for event in events} == set(range(FPFL["rounds"]))
