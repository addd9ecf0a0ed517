"""What goes wrong between real processes. Slow: minutes, and three processes."""

import datetime
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from synthfair.files import write_json

pytest.importorskip("nvflare")

PATIENCE = 570
"""Seconds that a scenario may take on a busy machine."""

SCENARIOS = ["site_killed", "server_killed", "slow_site", "other_schema",
             "forged_certificate", "expired_certificate", "large_answers"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_faults(scenario, tmp_path):
    """In a process of its own: the engine warns, and pytest turns warnings into errors."""
    argv = [sys.executable, __file__, scenario, str(tmp_path / "made")]
    run = subprocess.Popen(argv, cwd=tmp_path)
    try:
        run.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)  # it ends the others before it ends
        run.wait(60)
    assert run.returncode == 0


UNCHECKED = "import pathlib, sys, synthfair.deploy.kit as k; k.start(pathlib.Path(sys.argv[1]))"


class Federation:
    """Three processes, a submitter, and jobs that can be changed."""

    def __init__(self, folder, change=lambda kits: None):
        from examples import deployment

        self.example, self.folder, self.port = deployment, folder, deployment.free_port()
        self.lenders = deployment.unlike_lenders()
        self.kits = deployment.prepare(folder, self.port, self.lenders)
        self.submitter = self.kits.pop(deployment.SUBMITTER)
        self.processes, self.number = {}, 0
        change(self.kits)

    def start(self, name):
        """Without the check, which would refuse some of these kits before anybody else can."""
        argv = [sys.executable, "-c", UNCHECKED, str(self.kits[name])]
        self.processes[name] = subprocess.Popen(argv, start_new_session=True)
        if name == self.example.SERVER:
            self.example.wait_for_port(self.port, self.processes[name])

    def __enter__(self):
        try:
            for name in self.kits:
                self.start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            self.example.stop(process)

    def family(self, name):
        own = psutil.Process(self.processes[name].pid)
        return [own, *own.children(recursive=True)]

    def kill(self, name):
        family = self.family(name)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=20)

    @contextmanager
    def session(self):
        from synthfair.deploy.session import connect

        with connect(self.submitter, timeout=60) as found:
            yield found

    def run(self, session, kind, on_progress=lambda *_: None, **job):
        from synthfair.deploy.session import attach, submit

        self.number += 1
        jobs = self.submitter.parent / "jobs"
        changed = shutil.copytree(jobs / kind, jobs / f"{kind}-{self.number}")
        path = changed / "app" / "config" / "config_fed_server.json"
        config = json.loads(path.read_text())
        config["workflows"][0]["args"]["job"] |= job
        write_json(path, config)
        output = self.folder / f"results-{self.number}"
        return attach(session, submit(session, changed), output, on_progress, most_seconds=400)

    def codes(self, run):
        return {name: site.code for name, site in run.federation.sites.items()}


class _NowError(Exception):
    """The moment has come."""


def _after_rounds(number, act):
    done = []

    def on_progress(_, federation):
        if federation and federation.rounds >= number and not done:
            done.append(True)
            act()

    return on_progress


def site_killed(folder):
    with Federation(folder) as fed, fed.session() as session:
        fed.example.wait_for_sites(session, fed.lenders)
        kill = _after_rounds(15, lambda: fed.kill("city"))
        first = fed.run(session, "train", kill, timeout=20)
        assert not first.completed
        fed.start("city")
        end = time.monotonic() + 120
        while not (again := fed.run(session, "train", timeout=60)).completed:
            assert time.monotonic() < end, again
        assert again.federation.rounds < 200


def server_killed(folder):
    with Federation(folder) as fed:

        def kill():
            fed.kill(fed.example.SERVER)
            raise _NowError

        with suppress(_NowError), fed.session() as session:
            fed.example.wait_for_sites(session, fed.lenders)
            fed.run(session, "train", _after_rounds(15, kill))
        fed.__exit__()
        for name in fed.kits:
            fed.start(name)
        with fed.session() as session:
            fed.example.wait_for_sites(session, fed.lenders)
            again = fed.run(session, "train")
        assert again.completed
        assert again.federation.rounds < 200


def slow_site(folder):
    with Federation(folder) as fed, fed.session() as session:
        fed.example.wait_for_sites(session, fed.lenders)
        stopped = []

        def stop():
            stopped.extend(fed.family("city"))
            for process in stopped:
                process.suspend()

        try:
            run = fed.run(session, "train", _after_rounds(15, stop), timeout=40)
        finally:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        assert not run.completed
        assert fed.codes(run) == {"city": "late", "suburbs": "ok"}
        assert "1 sites have answered well of the 2 needed" in run.federation.error


def _refused(folder, code, **federation):
    with Federation(folder, **federation) as fed, fed.session() as session:
        fed.example.wait_for_sites(session, fed.lenders)
        run = fed.run(session, "single_shot")
        assert not run.completed
        assert fed.codes(run) == {"city": code, "suburbs": "ok"}


def other_schema(folder):
    def change(kits):
        path = kits["city"] / "local" / "schema.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "another"}))

    _refused(folder, "schema", change=change)


def _stays_out(folder, change):
    with Federation(folder, change) as fed, fed.session() as session:
        with suppress(Exception):
            fed.example.wait_for_sites(session, fed.lenders, seconds=40)
        known = {client.name for client in session.get_system_info().client_info}
        assert known == {"suburbs"}


def _certificate(kits, *, of_root, days):
    """A new one for the city, signed by the root or by nobody it knows, that ends in some days."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    startup = kits["city"] / "startup"
    old = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
    if of_root:
        ca = kits["city"].parents[1] / "hub" / "ca"
        key = serialization.load_pem_private_key((ca / "rootCA.key").read_bytes(), None)
    else:
        key = rsa.generate_private_key(65537, 2048)
    now = datetime.datetime.now(datetime.UTC)
    new = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(),
        x509.random_serial_number(), now - datetime.timedelta(30),
        now + datetime.timedelta(days), list(old.extensions)).sign(key, hashes.SHA256())  # fmt: skip
    (startup / "client.crt").write_bytes(new.public_bytes(serialization.Encoding.PEM))


def forged_certificate(folder):
    _stays_out(folder, lambda kits: _certificate(kits, of_root=False, days=30))


def expired_certificate(folder):
    _stays_out(folder, lambda kits: _certificate(kits, of_root=True, days=-1))


def large_answers(folder):
    """One step of a network of so many weights that each site's answer has 1 MB, and 50 MB."""

    def allow_both(kits):
        for name in ("city", "suburbs"):
            path = kits[name] / "local" / "synthfair.json"
            settings = json.loads(path.read_text())
            settings["limits"] |= {"most_width": 2500, "again": 1}
            write_json(path, settings)

    with Federation(folder, allow_both) as fed, fed.session() as session:
        fed.example.wait_for_sites(session, fed.lenders)
        for hidden, least in (([350, 340], 1_000_000), ([2500, 2480], 50_000_000)):
            train = {"method": "fedavg", "hidden": hidden, "rounds": 1, "local_steps": 1}
            run = fed.run(session, "train", train=train, most_rows=2000, timeout=390)
            assert run.completed, run
            for site in run.federation.sites.values():
                assert site.code == "ok"
                assert least <= site.carried_bytes < 1.1 * least


if __name__ == "__main__":
    sys.path += map(str, Path(__file__).parents[1:3])  # have helpers, and examples
    globals()[sys.argv[1]](Path(sys.argv[2]))
