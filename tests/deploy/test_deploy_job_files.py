"""What a job may hold: the engine would read other formats, files that they name, and variables."""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
from projects import change, write_project

from synthfair.deploy import project
from synthfair.deploy.kit import description
from synthfair.errors import InputError
from synthfair.task.messages import TaskName

pytest.importorskip("nvflare")

from synthfair.deploy.job_validator import CLIENT, SERVER, JobValidator, problem


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    (job,) = project.write_jobs(project.read_project(write_project(folder)), folder / "made")
    return job / "app"


@pytest.fixture
def app(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "app"))


def args(document):
    return document["workflows"][0]["args"]


def test_a_job_as_it_is_written_is_allowed(app):
    for folder in (app, app / "config"):  # the engine signs each
        (folder / ".__nvfl_sig.json").write_text("{}")
        (folder / ".__nvfl_submitter.crt").write_text("")
    assert problem(app) == ""


@pytest.mark.parametrize("name", [
    "config/config_fed_client.conf", "config/config_fed_server.yml", "config/more/config_fed_server.json",
    "custom/own.py", "run.sh", "config/comm_config.json"])  # fmt: skip
def test_other_files_are_refused(app, name):
    (app / name).parent.mkdir(exist_ok=True)
    (app / name).write_text('include file("/etc/passwd")')
    assert "alone" in problem(app)


def test_links_are_refused(app, tmp_path):
    (app / CLIENT).rename(tmp_path / "elsewhere")
    (app / CLIENT).symlink_to(tmp_path / "elsewhere")
    assert "alone" in problem(app)


@pytest.mark.parametrize("file", [SERVER, CLIENT])
@pytest.mark.parametrize(
    "text", [None, "{", "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, '{"a": include}']
)
def test_what_is_no_json_is_refused(app, file, text):
    (app / file).unlink()
    if text is not None:
        (app / file).write_text(text)
    assert "must be files of JSON" in problem(app)


@pytest.mark.parametrize(("file", "edit", "said"), [
    (CLIENT, lambda d: d.update(more=1), "'more': 1 does not belong here"),
    (CLIENT, lambda d: d["executors"][0]["executor"]["args"].update(x="{$HOME}"), "'executors.0.executor.args.x'"),
    (CLIENT, lambda d: d["executors"][0]["tasks"].append("x"), "'executors.0.tasks' is"),
    (SERVER, lambda d: d.update(x="{$HOME}"), "'x': '{$HOME}' does not belong here"),
    (SERVER, lambda d: d["workflows"].append({}), "'workflows' is [{"),
    (SERVER, lambda d: d.update(workflows=[]), "'workflows' is []"),
    (SERVER, lambda d: d["workflows"][0].pop("args"), "'workflows.0.args' is missing"),
    (SERVER, lambda d: d["workflows"][0].update(path="os.system"), "'workflows.0.path' is 'os.system'"),
    (SERVER, lambda d: d.update({"x\n" * 200: 1}), "'x\\nx\\nx"),
    (SERVER, lambda d: args(d)["sites"].append("{$HOME}"), "brace"),
    (SERVER, lambda d: args(d).update(kind="a${HOME}"), "brace"),
    (SERVER, lambda d: args(d)["job"].update({"{workflows}": 1}), "brace"),
])  # fmt: skip
def test_what_is_changed_is_refused(app, file, edit, said):
    change(app / file, edit)
    assert said in problem(app)


def test_sites_answer_every_task():
    (executor,) = description("job")[CLIENT]["executors"]
    assert tuple(executor["tasks"]) == get_args(TaskName)


def test_a_brace_is_found_however_it_is_written(app):
    change(app / SERVER, lambda d: args(d)["sites"].append("{$HOME}"))
    text = (app / SERVER).read_text()
    assert text.count("{$") == 1
    (app / SERVER).write_text(text.replace("{$", "\\u007b\\u0024"))
    assert "brace" in problem(app)


def test_a_job_that_would_be_refused_is_not_written(tmp_path, monkeypatch):
    agreed = project.read_project(write_project(tmp_path))
    monkeypatch.setattr("synthfair.deploy.job_validator.has_braces", lambda settings: True)
    with pytest.raises(InputError, match=r"jobs.single_shot: has a brace"):
        project.write_jobs(agreed, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_the_engine_asks_before_it_reads(app, monkeypatch):
    """Its own validator, as both parties build it: nothing is included, and nothing is fetched."""
    from nvflare.apis.fl_constant import SiteType
    from nvflare.fuel.utils.config_factory import ConfigFactory
    from nvflare.private.fed.app.fl_app_validator import FLAppValidator

    monkeypatch.setattr(ConfigFactory, "_fmt2Loader", dict(ConfigFactory._fmt2Loader))
    validator = FLAppValidator(SiteType.CLIENT, [JobValidator()])
    assert validator.validate(str(app)) == ("", {})
    (app / CLIENT).rename((app / CLIENT).with_suffix(".conf"))
    (app / CLIENT).with_suffix(".conf").write_text('include url("http://localhost/")')
    with pytest.raises(json.JSONDecodeError):
        validator.validate(str(app))
    loader = ConfigFactory.get_config_loader(ConfigFactory.search_config_format(
        "config_fed_client.json", [str(app)])[0])  # fmt: skip
    with pytest.raises(json.JSONDecodeError):
        loader.load_config_from_str('include url("http://localhost/")')


@pytest.mark.parametrize("name", ["{$HOME}", "../a", "", "a" * 100])
def test_a_controller_takes_names_alone(name):
    from synthfair.deploy.flare import JobController

    with pytest.raises(ValueError, match="should match"):
        JobController("train", ["a", name], {})
    with pytest.raises(ValueError, match="should match"):
        JobController("train", ["a"], {}, [name])
