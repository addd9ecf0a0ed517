"""A kit: how it is hardened, what is proposed to its party, and how the engine starts from it."""

import json
import os
import sys
from pathlib import Path

import pytest
from builders import SCHEMA

pytest.importorskip("nvflare")

from kits import AGGREGATORS, make_kits, write_project

from synthfair.cli import main
from synthfair.deploy import kit as kit_module
from synthfair.deploy.kit import harden, require_engine
from synthfair.deploy.project import read_project
from synthfair.errors import InputError

PARTIES = {"localhost": "server", "a": "client", "sums-a": "client", "lead@hub.org": "admin"}


@pytest.fixture
def project(tmp_path):
    return read_project(write_project(tmp_path, aggregators=AGGREGATORS))


@pytest.fixture
def kits(tmp_path):
    return make_kits(tmp_path, PARTIES)


def own_of(kit):
    return json.loads((kit / "local" / "synthfair.json").read_text())


def test_kit_hardened_holds_what_the_project_proposes(kits, project):
    for kit in kits.values():
        kit.chmod(0o755)
        harden(kit, project)
        assert kit.stat().st_mode & 0o777 == 0o700
    site, aggregator, server = (own_of(kits[name]) for name in ("a", "sums-a", "localhost"))
    assert (site["org"], site["limits"]["kinds"], site["key"]) == ("org_a", ["surrogate"], "a.key")
    assert (kits["a"] / "local" / "schema.json").read_text() == SCHEMA.to_json()
    assert aggregator["format"] == "synthfair-aggregator-site/1"
    assert aggregator["limits"]["most_tasks"] == 20
    assert {site["server"], aggregator["server"]} == {"localhost:8002"}
    assert (server["org"], server["aggregators"]) == ("hub", "aggregators")
    assert not (kits["lead@hub.org"] / "local" / "synthfair.json").exists()
    # A job can have one class loaded, once it was looked at.
    for name, loaded in (("localhost", "JobController"), ("a", "SiteExecutor")):
        settings = json.loads((kits[name] / "local" / "resources.json").read_text())
        assert settings["class_allow_list"] == [f"synthfair.deploy.flare.{loaded}"]
        assert settings["class_list_enforcement_mode"] == "enforce"
        assert settings["app_validator"]["path"].endswith("job_validator.JobValidator")
        assert not settings.get("allow_log_streaming", name == "a")
        roles = json.loads((kits[name] / "local" / "authorization.json").read_text())["permissions"]
        own = dict.fromkeys(("manage_job", "download_job", "app_command"), "n:submitter")
        allowed = {"submit_job": "any", "view": "any", "operate": "o:site"} | own
        assert {right: who for right, who in roles.pop("lead").items() if who != "none"} == allowed
        assert {who for rights in roles.values() for who in rights.values()} == {"none"}


def test_kit_hardened_again_keeps_the_partys_own_file(kits, project):
    assert main(["deploy", "harden", str(kits["a"])]) == 0
    own = own_of(kits["a"])  # without a project
    assert (own["org"], "limits" in own, "aggregators" in own) == ("org_a", False, False)
    for proposal in (None, project):
        assert harden(kits["a"], proposal) is None
        assert own_of(kits["a"]) == own


def test_project_that_does_not_name_the_party_changes_nothing(kits, tmp_path):
    (kits["a"] / "local" / "resources.json").write_text("{}")
    other = read_project(write_project(tmp_path, sites=[{"name": "other", "org": "bank"}]))
    with pytest.raises(InputError, match="'a'"):
        harden(kits["a"], other)
    assert (kits["a"] / "local" / "resources.json").read_text() == "{}"


@pytest.fixture
def started(monkeypatch):
    started, before = [], os.umask(0o022)
    monkeypatch.setattr(kit_module.os, "execve", lambda *what: started.append(what))
    yield started
    os.umask(before)


@pytest.mark.parametrize(("name", "org"), [("client", "org_a"), ("server", "hub")])
def test_engine_starts_in_a_clean_environment(kits, monkeypatch, started, name, org):
    kit = kits["a" if name == "client" else "localhost"]
    monkeypatch.setattr("synthfair.deploy.check.problems", lambda _: [])
    monkeypatch.setenv("LD_PRELOAD_OF_A_STRANGER", "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["deploy", "start", str(kit)]) == 0
    assert os.umask(0o077) == 0o077
    ((python, argv, environment),) = started
    assert (python, Path(argv[3]).suffix) == (sys.executable, f".{name}_train")
    uid = ["uid=a"] if name == "client" else []
    assert argv[4:] == [
        "-m", str(kit), "-s", f"fed_{name}.json", "--set", "secure_train=true", *uid, f"org={org}",
        "config_folder="]  # fmt: skip
    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment.keys() == {
        "PATH", "HOME", "OMP_NUM_THREADS", "PYTHONSAFEPATH", "NVFLARE_DATUM_DIR"}  # fmt: skip
    assert environment["NVFLARE_DATUM_DIR"] == str(kit / "transfer")


def test_engine_does_not_start_from_a_kit_that_is_not_ready(kits, project, started, capsys):
    for name in ("a", "lead@hub.org"):
        harden(kits[name], project)
        assert main(["deploy", "start", str(kits[name])]) == 2
    assert "a.key" in capsys.readouterr().err
    assert started == []


def test_engine_of_another_version_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "nvflare-2.8.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: nvflare\nVersion: 2.8.0\n")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    with pytest.raises(InputError, match=r"2\.8\.0"):
        require_engine()
