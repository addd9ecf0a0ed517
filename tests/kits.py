"""Kits of parties as their own keys and the engine's commands make them, in this process."""

import json
import os
import shutil
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from builders import make_schema, make_table

from examples import deployment
from synthfair.deploy.kit import harden
from synthfair.deploy.project import read_project
from synthfair.files import write_json
from synthfair.release.keys import make_keys
from synthfair.secure import make_aggregator_keys

SITES, ADDERS = ("a", "b"), ("sums-a", "sums-b")
PARTIES = {"localhost": "server", "lead@hub.org": "admin"} | dict.fromkeys(SITES + ADDERS, "client")
JOB = {"release": {"release": "surrogate", "k_min": 10}}
AGGREGATORS = [{"name": name, "org": deployment.org_of(name), "limits": {"most_tasks": 20}}
               for name in ADDERS]  # fmt: skip


def nvflare(folder, command):
    """What ``examples.deployment.nvflare`` does, without a process of its own for each command."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")
        from nvflare.cli import run

        patched.setattr(sys, "argv", ["nvflare", *command.split()])
        patched.setattr(sys, "path", [*sys.path])
        patched.setenv("HOME", str(folder))
        printed, before = StringIO(), os.umask(0o077)
        try:
            with chdir(folder), redirect_stdout(printed), redirect_stderr(printed):
                run("nvflare")
        except SystemExit as ended:
            if ended.code:
                pytest.fail(printed.getvalue())
        finally:
            os.umask(before)
    return printed.getvalue()


def make_kits(folder, types):
    """A kit for each name; see ``examples.deployment.make_kits``."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deployment, "nvflare", nvflare)
        return deployment.make_kits(folder, types, 8002)


def write_project(folder, **changes):
    (folder / "schema.json").write_text(make_schema().to_json())
    sites = [{"name": name, "org": f"org_{name}", "limits": {"kinds": ["surrogate"]}}
             for name in SITES]  # fmt: skip
    project = {"schema": "schema.json", "sites": sites, "jobs": {"single_shot": JOB}}
    write_json(folder / "project.yml", project | changes)
    return folder / "project.yml"


def make_federation(folder):
    """The parties' kits as each would fill its own in, by name."""
    agreed = read_project(write_project(folder, aggregators=AGGREGATORS))
    kits = make_kits(folder, PARTIES)
    for kit in kits.values():
        harden(kit, agreed)
    for name in SITES:
        (kits[name] / "data").mkdir()
        make_table().to_csv(kits[name] / "data" / "table.csv", index=False)
        public, _ = make_keys(kits[name] / "local" / f"{name}.key")
        for other in ("localhost", *ADDERS):
            shutil.copy(public, kits[other] / "local" / "keys")
    for name in ADDERS:
        public, _ = make_aggregator_keys(kits[name] / "sums" / f"{name}.key")
        for other in ("localhost", *SITES):
            shutil.copy(public, kits[other] / "local" / "aggregators")
    return kits


def change(path, changes):
    """Change values in a JSON file, by their keys joined with dots; None removes one."""
    document = json.loads(path.read_text())
    for keys, value in changes.items():
        *outer, key = (int(part) if part.isdigit() else part for part in keys.split("."))
        place = document
        for part in outer:
            place = place[part]
        if value is None:
            del place[key]
        else:
            place[key] = value
    write_json(path, document)
