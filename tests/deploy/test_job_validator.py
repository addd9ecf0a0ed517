"""What a job may hold: the engine would read other formats, files that they name, and variables."""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("nvflare")

from kits import change, write_project

from synthfair.deploy import project
from synthfair.deploy.job_validator import CLIENT, SERVER, JobValidator, problem
from synthfair.deploy.kit import description
from synthfair.task.messages import TaskName

ARGS = "workflows.0.args"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    (job,) = project.write_jobs(project.read_project(write_project(folder)), folder / "made")
    return job / "app"


@pytest.fixture
def app(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "app"))


def test_job_as_it_is_written_is_allowed(app):
    for folder in (app, app / "config"):  # the engine signs each
        (folder / ".__nvfl_sig.json").write_text("{}")
        (folder / ".__nvfl_submitter.crt").write_text("")
    assert problem(app) == ""


def test_sites_answer_every_task():
    (executor,) = description("job")[CLIENT]["executors"]
    assert tuple(executor["tasks"]) == get_args(TaskName)


@pytest.mark.parametrize(
    "name",
    ["config/config_fed_client.conf", "config/config_fed_server.yml", "custom/own.py", "run.sh",
     "config/more/config_fed_server.json", "config/comm_config.json"],
)  # fmt: skip
def test_file_of_another_name_is_refused(app, name):
    (app / name).parent.mkdir(exist_ok=True)
    (app / name).write_text('include file("/etc/passwd")')
    assert "alone" in problem(app)


def test_link_is_refused(app, tmp_path):
    (app / CLIENT).rename(tmp_path / "elsewhere")
    (app / CLIENT).symlink_to(tmp_path / "elsewhere")
    assert "alone" in problem(app)


@pytest.mark.parametrize("file", [SERVER, CLIENT])
@pytest.mark.parametrize(
    "text", [None, "{", "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, '{"a": include}']
)
def test_file_that_is_no_json_is_refused(app, file, text):
    (app / file).unlink()
    if text is not None:
        (app / file).write_text(text)
    assert "JSON" in problem(app)


@pytest.mark.parametrize(("file", "key", "value", "said"), [
    (CLIENT, "more", 1, "more"), (CLIENT, "executors.0.tasks", ["x"], "executors.0.tasks"),
    (CLIENT, "executors.0.executor.args.x", "{$HOME}", "executors.0.executor.args.x"),
    (SERVER, "workflows", [], "workflows"), (SERVER, ARGS, None, ARGS),
    (SERVER, "workflows.0.path", "os.system", "workflows.0.path"),
    (SERVER, "x\n" * 200, 1, "x\\nx\\nx"), (SERVER, f"{ARGS}.kind", "a${HOME}", "brace"),
    (SERVER, f"{ARGS}.sites", ["{$HOME}"], "brace"),
    (SERVER, f"{ARGS}.job", {"{workflows}": 1}, "brace"),
])  # fmt: skip
def test_job_that_is_changed_is_refused(app, file, key, value, said):
    change(app / file, {key: value})
    assert said in problem(app)
    text = (app / file).read_text()  # however it is written
    (app / file).write_text(text.replace("{$", "\\u007b\\u0024").replace("${", "$\\u007b"))
    assert said in problem(app)


def test_engine_asks_the_validator_before_it_reads(app, monkeypatch):
    """Its own validator, as both parties build it: nothing is included, and nothing is fetched."""
    from nvflare.apis.fl_constant import SiteType
    from nvflare.fuel.utils.config_factory import ConfigFactory
    from nvflare.private.fed.app.fl_app_validator import FLAppValidator

    monkeypatch.setattr(ConfigFactory, "_fmt2Loader", dict(ConfigFactory._fmt2Loader))
    validator = FLAppValidator(SiteType.CLIENT, [JobValidator()])
    assert validator.validate(str(app)) == ("", {})
    including = (app / CLIENT).with_suffix(".conf")
    (app / CLIENT).rename(including)
    including.write_text('include url("http://localhost/")')
    with pytest.raises(json.JSONDecodeError):
        validator.validate(str(app))
