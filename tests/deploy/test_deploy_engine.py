"""The engine's classes, and the whole of it with processes of its own."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import kits
import pytest
from builders import make_schema, make_table

import synthfair
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.release.keys import make_keys

nvflare = pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from synthfair.deploy.flare import SiteExecutor

SECRET = "secret-of-a-person"


class Engine:
    """What an executor asks of the engine."""

    def __init__(self, folder):
        self.folder, self.fired = folder, []

    def get_workspace(self):
        return Workspace(str(self.folder), "north")

    def fire_event(self, event, fl_ctx):
        self.fired.append(event)


@pytest.fixture
def site(tmp_path):
    for name in ("local", "startup"):
        (tmp_path / name).mkdir()
    (tmp_path / "local" / "schema.json").write_text(make_schema().to_json())
    make_keys(tmp_path / "local" / "north.key")
    write_json(tmp_path / "local" / "synthfair.json", {
        "data": "../rows.csv", "schema": "schema.json", "key": "north.key",
        "limits": {"kinds": ["surrogate"], "without_epsilon": True, "k_min": 5}})  # fmt: skip
    return tmp_path


def execute(folder, asked):
    engine = Engine(folder)
    manager = FLContextManager(engine=engine, identity_name="north", job_id="job-1")
    fl_ctx = manager.new_context()
    fl_ctx.set_prop(FLContextKey.JOB_META, {"submitter_name": "lead@hub.org\n"}, private=True)
    found = SiteExecutor().execute("single_shot", asked, fl_ctx, Signal())
    return found, engine


def question(**changes):
    ask = {"task": "single_shot", "job": "job-1", "round": 0, "recipient": "hub",
           "version": synthfair.__version__, "schema_hash": make_schema().hash,
           "settings": {"release": "surrogate", "k_min": 5}, "timeout": 10}  # fmt: skip
    return Shareable({"text": json.dumps(ask | changes).encode(), "carried": b"", "signature": b""})


def test_an_executor_answers_with_bytes(site):
    make_table(300).to_csv(site / "rows.csv", index=False)
    found, _ = execute(site, question())
    answer = json.loads(found["text"])
    assert (answer["code"], answer["site"]) == ("ok", "north")
    assert found["carried"].startswith(b"PAR1")
    assert Shareable.from_bytes(found.to_bytes())["carried"] == found["carried"]
    (line,) = (site / "rows.csv.ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["what"]["submitter"] == "lead@hub.org"


def test_an_executors_errors_stay_at_the_site(site, caplog):
    make_table(300).astype(object).replace("own", SECRET).to_csv(site / "rows.csv", index=False)
    with caplog.at_level(logging.ERROR):
        found, engine = execute(site, question())
    assert json.loads(found["text"])["code"] == "table"
    assert SECRET in caplog.text
    assert SECRET.encode() not in found.to_bytes()
    assert engine.fired == []  # an event of an error would carry its text to the server


def test_a_site_that_cannot_start_says_no_more_than_that(site):
    (site / "local" / "synthfair.json").write_text(SECRET)
    found, engine = execute(site, question())
    assert found.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert SECRET.encode() not in found.to_bytes()
    assert engine.fired == []


@pytest.mark.parametrize(
    ("part", "value"),
    [("text", None), ("text", "text"), ("carried", 3), ("carried", None), ("signature", ["x"])],
)
def test_what_is_no_message_is_refused(site, part, value):
    asked = question()
    asked[part] = value
    found, _ = execute(site, asked)
    assert found.get_return_code() == ReturnCode.BAD_TASK_DATA


CANNOT_START = "the engine splits its commands at blanks, and Python's own path has one"


def demo(folder, *flags):
    """What the example says, once it has ended well."""
    if " " in sys.executable:
        pytest.skip(CANNOT_START)
    script = Path(__file__).parents[2] / "examples" / "deployment.py"
    argv = [sys.executable, str(script), *flags, "--output", str(folder)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    try:
        said, _ = run.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)  # it stops the others before it ends
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 0
    return said


PEM = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END", re.DOTALL)


def contents(path):
    """What a file holds; of a zip, what its members hold."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            return [parts.read(name) for name in parts.namelist()]
    return [path.read_bytes()]


def keys_in(folder):
    """Private keys in a folder, each with the paths at which it lies."""
    found = {}
    for path in folder.rglob("*"):
        for content in contents(path) if path.is_file() else ():
            for key in PEM.findall(content):
                found.setdefault(key, []).append(path)
    return found


PARTIES = ("hub", "localhost", "lead@hub.org", "city", "suburbs")


def require_keys_with_their_parties(federation):
    keys = {party: keys_in(federation / party) for party in PARTIES}
    # Nobody has another's key, and no key is among what was exchanged, or in the results.
    everywhere = keys_in(federation)
    assert len(everywhere) == sum(map(len, keys.values())) == 7  # two signing keys
    for party, own in keys.items():
        for key, paths in own.items():
            assert everywhere[key] == paths, party
    # Where each lies, for its owner alone: the root's, those of certificates, those that sign.
    for party, own in keys.items():
        names = sorted(
            str(p.relative_to(federation / party)) for paths in own.values() for p in paths
        )
        kind = "server" if party == "localhost" else "client"
        lends = [f"kit/local/{party}.key"] * (party in ("city", "suburbs"))
        expected = [f"{party}/{party}.key", *lends, f"kit/startup/{kind}.key"]
        assert names == (["ca/rootCA.key"] if party == "hub" else sorted(expected))
        for path in (path for paths in own.values() for path in paths):
            assert path.stat().st_mode & 0o777 == 0o600, path
        for folder in (federation / party, federation / party / "kit"):
            assert not folder.exists() or folder.stat().st_mode & 0o777 == 0o700, folder


def require_only_public_files(federation):
    parties = [party for party in PARTIES if party != "hub"]
    assert {path.name for path in (federation / "exchanged").iterdir()} == {
        "project.yml", "schema.json", "city.pub", "suburbs.pub",
        *(f"{party}.{kind}.zip" for party in parties for kind in ("request", "signed"))}  # fmt: skip


def test_no_key_leaves_its_party_and_what_is_exchanged_is_public(tmp_path):
    kits.prepare(tmp_path / "made")
    require_keys_with_their_parties(tmp_path / "made")
    require_only_public_files(tmp_path / "made")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "made"),
    [([], {"model.json", "metrics.json"}),
     (["--job", "gap"], {"gaps.json"}),
     (["--job", "train", "--secure"], {"model.json", "metrics.json", "rounds.csv"})],
)  # fmt: skip
def test_jobs_by_processes(tmp_path, flags, made):
    demo(tmp_path / "demo", *flags)
    if not flags:
        require_keys_with_their_parties(tmp_path / "demo")
        require_only_public_files(tmp_path / "demo")
    results = tmp_path / "demo" / "results"
    assert {path.name for path in results.iterdir()} == made | {"federation.json"}


def test_sums_in_shares_are_of_training_alone(tmp_path):
    from examples.deployment import demonstrate

    with pytest.raises(InputError, match="secure: of the job train alone, not gap"):
        demonstrate(tmp_path / "x", print, lambda *_: None, job="gap", secure=True)


def with_code(job):
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "own.py").write_text("raise SystemExit\n")


def with_a_class_that_is_not_listed(job):
    path = job / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["executors"][0]["executor"]["path"] = "nvflare.app_common.np.np_trainer.NPTrainer"
    write_json(path, config)


def with_a_file_that_includes_another(job):
    path = job / "app" / "config" / "config_fed_client.json"
    path.unlink()
    path.with_suffix(".conf").write_text('include required(file("/etc/hostname"))')


def with_such_a_file_for_the_server(job):
    path = job / "app" / "config" / "config_fed_server.json"
    path.unlink()
    path.with_suffix(".conf").write_text('include required(file("/etc/hostname"))')


def with_a_variable_of_the_environment(job):
    path = job / "app" / "config" / "config_fed_server.json"
    config = json.loads(path.read_text())
    config["workflows"][0]["args"]["sites"].append("{$PROBE_SECRET}")
    write_json(path, config)


EDITS = (with_code, with_a_class_that_is_not_listed, with_a_file_that_includes_another,
         with_such_a_file_for_the_server, with_a_variable_of_the_environment)  # fmt: skip


@pytest.mark.slow
def test_real_sites_refuse_what_is_loosened_and_reveal_no_text(tmp_path):
    """In a process of its own: the engine warns, and pytest turns warnings into errors."""
    code = (
        "import sys; sys.path[:0] = ['tests/deploy', 'tests']; import test_deploy_engine as t;"
        f" t.refusals({str(tmp_path / 'made')!r})"
    )
    argv = [sys.executable, "-c", code]
    if " " in sys.executable:
        pytest.skip(CANNOT_START)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.Popen(argv, env=env, cwd=Path(__file__).parents[2])
    try:
        run.wait(400)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
        run.wait(60)
    assert run.returncode == 0


def refusals(folder):
    """Three processes, and jobs that must fail."""
    from examples import deployment
    from synthfair.deploy.session import attach, connect, submit

    os.environ.pop("PYTHONPATH", None)  # of conftest, for the tests' own processes
    folder, port = Path(folder), deployment.free_port()
    lenders = deployment.unlike_lenders()
    kits = deployment.prepare(folder, port, lenders)
    submitter, lender = kits.pop(deployment.SUBMITTER), kits["city"]
    jobs, table = submitter.parent / "jobs", lender / "data" / "table.csv"
    os.environ["PROBE_SECRET"] = "secret-of-the-server"
    with deployment.running([*kits.values()], port):
        with connect(submitter, timeout=60) as session:
            deployment.wait_for_sites(session, lenders)
            for edit in EDITS:
                job = shutil.copytree(jobs / "single_shot", jobs / edit.__name__)
                edit(job)
                out = folder / edit.__name__
                with suppress(InputError):  # some are refused when they are submitted
                    name = submit(session, job)
                    run = attach(session, name, out, lambda *_: None, most_seconds=120)
                    assert not run.completed
                    assert run.federation is None  # not one class was loaded
                assert not (out / "model.json").exists()
            with pytest.raises(Exception, match="not authorized"):
                session.cat_target("city", file="local/synthfair.json")
        lines = table.read_text().splitlines()
        lines[3] = ",".join([*lines[3].split(",")[:-1], SECRET])
        table.write_text("\n".join(lines) + "\n")
        out = folder / "results"
        argv = ["deploy", "run", str(submitter), "--job", str(jobs / "single_shot")]
        argv = [sys.executable, "-m", "synthfair", *argv, "--output", str(out)]
        assert subprocess.run(argv, check=False, timeout=150).returncode == 1
    federation = json.loads((out / "federation.json").read_text())
    assert {name: site["code"] for name, site in federation["sites"].items()} == {
        "city": "table", "suburbs": "ok"}  # fmt: skip
    assert not any(b"secret-of-the-server" in p.read_bytes() for p in folder.rglob("*.json"))
    holders = [p for p in folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert holders
    assert all(lender.parent in holder.parents for holder in holders), holders
