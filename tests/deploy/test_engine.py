"""The engine with processes of its own: keys that stay, and jobs that fail."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from synthfair.errors import InputError

pytest.importorskip("nvflare")

PATIENCE = 570
"""Seconds that it may take on a busy machine."""

SITES, PARTIES = ("city", "suburbs"), ("hub", "localhost", "lead@hub.org", "city", "suburbs")
KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END", re.DOTALL)
JOB_SERVER = "app/config/config_fed_server.json"


def contents(path):
    """What a file holds; of a zip, what its members hold."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            return [parts.read(name) for name in parts.namelist()]
    return [path.read_bytes()]


def test_key_never_leaves_its_party_and_what_is_exchanged_is_public(tmp_path):
    import kits

    kits.prepare(tmp_path)
    holders = {}
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        for key in (key for content in contents(path) for key in KEY.findall(content)):
            holders.setdefault(key, set()).add(path.relative_to(tmp_path).parts[0])
            assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(party for (party,) in holders.values()) == sorted([*PARTIES, *SITES])
    for party in PARTIES[1:]:
        assert {(tmp_path / party / kit).stat().st_mode & 0o777 for kit in ("", "kit")} == {0o700}
    zips = {f"{party}.{kind}.zip" for party in PARTIES[1:] for kind in ("request", "signed")}
    assert {path.name for path in (tmp_path / "exchanged").iterdir()} == zips | {
        "project.yml", "schema.json", "city.pub", "suburbs.pub"}  # fmt: skip


@pytest.mark.slow
def test_engine_fails_hostile_jobs(tmp_path):
    """In a process of its own: the engine warns, and pytest turns warnings into errors."""
    run = subprocess.Popen([sys.executable, __file__, str(tmp_path / "made")])
    try:
        run.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)  # it ends the others before it ends
        run.wait(60)
    assert run.returncode == 0


class Federation:
    """A server, two sites, a submitter, and jobs that can be changed."""

    def __init__(self, folder):
        from examples import deployment

        self.example, self.folder, self.number = deployment, folder, 0
        self.port, lenders = deployment.free_port(), deployment.unlike_lenders()
        self.kits = deployment.prepare(folder, self.port, lenders)
        self.submitter = self.kits.pop(deployment.SUBMITTER)

    @contextmanager
    def session(self):
        from synthfair.deploy.session import connect

        with (
            self.example.running([*self.kits.values()], self.port),
            connect(self.submitter, timeout=60) as session,
        ):
            self.example.wait_for_sites(session, SITES)
            yield session

    def run(self, session, change):
        from synthfair.deploy.session import attach, submit

        self.number += 1
        jobs, self.output = self.submitter.parent / "jobs", self.folder / f"results-{self.number}"
        job = shutil.copytree(jobs / "single_shot", jobs / f"changed-{self.number}")
        change(job)
        submitted = submit(session, job)
        return attach(session, submitted, self.output, lambda *_: None, most_seconds=400)


def with_code(job):
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "own.py").write_text("raise SystemExit\n")


def with_a_file_that_includes_another(job):
    path = (job / JOB_SERVER).rename((job / JOB_SERVER).with_suffix(".conf"))
    path.write_text('include required(file("/etc/hostname"))')


def with_a_variable(job):
    import kits

    kits.change(job / JOB_SERVER, {"workflows.0.args.sites": [*SITES, "{$PROBE_SECRET}"]})


def hostile_jobs_fail(folder):
    """Without a class loaded, or a text of a table revealed."""
    os.environ["PROBE_SECRET"] = secret = "secret-of-the-server"
    fed, person, out = Federation(folder), "secret-of-a-person", folder / "results"
    with fed.session() as session:
        for change in (with_code, with_a_file_that_includes_another, with_a_variable):
            with suppress(InputError):  # some are refused when they are submitted
                run = fed.run(session, change)
                assert (run.completed, run.federation) == (False, None)
            assert not (fed.output / "model.json").exists()
        with pytest.raises(Exception, match="not authorized"):
            session.cat_target("city", file="local/synthfair.json")
        table = fed.kits["city"] / "data" / "table.csv"
        *lines, last = table.read_text().splitlines()
        table.write_text("\n".join([*lines, ",".join([*last.split(",")[:-1], person])]) + "\n")
        argv = [sys.executable, "-m", "synthfair", "deploy", "run", str(fed.submitter), "--job"]
        argv += [str(fed.submitter.parent / "jobs" / "single_shot"), "--output", str(out)]
        assert subprocess.run(argv, check=False, timeout=150).returncode == 1
    sites = json.loads((out / "federation.json").read_text())["sites"]
    assert [sites[name]["code"] for name in SITES] == ["table", "ok"]
    for path in filter(Path.is_file, folder.rglob("*")):
        content = path.read_bytes()
        assert person.encode() not in content or folder / "city" in path.parents, path
        assert secret.encode() not in content, path


if __name__ == "__main__":
    sys.path += map(str, Path(__file__).parents[1:3])  # have helpers, and examples
    hostile_jobs_fail(Path(sys.argv[1]))
