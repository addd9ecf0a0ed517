"""A federation on this machine: a server and two unlike regions, one upload, one fair model.

    pip install '.[nvflare]'
    python examples/deployment.py --output synthfair-deploy-demo

Each party is a process, which NVIDIA FLARE connects by ports of this machine, and has a folder of
its own. What happens, in order: each party makes its key, the hub signs certificates, and each
party makes its kit and puts its table into it; the processes start; a submitter sends a job,
watches it and fetches the model; all are stopped. What parties give to each other lies in
``exchanged``: no private key, and no row. Between organisations the same steps are typed, by
different people: docs/deploy.md.

Other jobs (docs/deploy-jobs.md): ``--job train`` in rounds; ``--job gap`` measures gaps from
counts to which each region adds noise; with two aggregators more, ``--job train --secure`` sums the
rounds so that nobody sees the parts, and ``--job privfairfl`` sums counts, for thresholds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import cyclopts

import synthfair as sf
from synthfair.cli.deploy import in_words, tell
from synthfair.cli.show import say, stage_bar, warn
from synthfair.data.partition import ClientTable, partition_by
from synthfair.deploy.kit import harden
from synthfair.deploy.project import read_project, write_jobs
from synthfair.deploy.session import JobResult, OnProgress, attach, connect, submit
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys
from synthfair.secure import make_aggregator_keys
from synthfair.task.limits import PARTY_FILE

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

Job = Literal["single_shot", "train", "gap", "privfairfl"]

SERVER, SUBMITTER = "localhost", "lead@hub.org"  # between machines, the server's name has a dot
AGGREGATORS = ("auditor", "union")

MOST_SECONDS = 180.0
"""After which a job is aborted."""

PROJECT = "regions"

REGIONS = ("south", "west")
"""The sites, two of the regions of the table twoyear."""

CONSOLE = "console.log"
"""What a process says, in its party's folder."""


# 1. What is agreed before: the jobs, and what the parties allow.


class Scenario(NamedTuple):
    """The jobs, and the parties' limits.

    Attributes:
        jobs: by kind, as ``project.yml`` has them.
        limits: of each region.
        sum_limits: of each aggregator; None where there is none.
        epsilon: limit of each region's ledger; None where it has none.
    """

    jobs: dict[str, Any]
    limits: dict[str, Any]
    sum_limits: dict[str, Any] | None = None
    epsilon: float | None = None

    @property
    def aggregators(self) -> tuple[str, ...]:
        """Their names."""
        return () if self.sum_limits is None else AGGREGATORS


# Without an epsilon: an upload, or 200 rounds.
LIMITS = {
    "kinds": ["surrogate", "training"],
    "without_epsilon": True,
    "most_rounds": 400,  # a job that goes on asks for some rounds again
}
UPLOAD = {
    "release": {"release": "surrogate"},
    "server": {"rho": 30.0},
    "timeout": 300,
}
ROUNDS = {"train": {"method": "fedavg", "rounds": 200}, "most_rows": 2000, "timeout": 60}
OPEN = Scenario({"single_shot": UPLOAD, "train": ROUNDS}, LIMITS)

# Fewer rounds, whose clipped reports two aggregators add up.
SECURE_ROUNDS = {
    "train": {"method": "fedavg", "rounds": 20, "secure": True, "clip": 1.0},
    "timeout": 60,
}
SECURE = Scenario({"train": SECURE_ROUNDS}, LIMITS, {"most_tasks": 20, "without_noise": True})

# Gaps of a model that is there already: counts of its decisions leave, with noise.
GAP_EPSILON = 2.0
GAP = Scenario(
    {"gap": {"epsilon": GAP_EPSILON, "model": "model.json"}},
    {"kinds": ["gap"], "most_epsilon": GAP_EPSILON},
    epsilon=GAP_EPSILON,
)

# A private training, then thresholds by group from noisy counts that two aggregators add up.
TRAINING_EPSILON, COUNTS_EPSILON, DELTA = 4.0, 1.0, 0.0001
LEAST_ROWS = 800  # of the smaller region, a public number
THRESHOLDS = {
    "train": {
        "train": {
            "method": "dp_sgd",
            "rounds": 20,
            "batch": 60,
            "clip": 1.0,
            "epsilon": TRAINING_EPSILON,
            "delta": DELTA,
        },
        "least_rows": LEAST_ROWS,
        "most_rows": 2000,
        "timeout": 120,
    },
    "notion": "statistical_parity",
    "alpha": 0.05,
    "bins": 21,
    "epsilon": COUNTS_EPSILON,
    "rows_per_client": 2000,
    "timeout": 60,
}
PRIVATE_LIMITS = {
    "kinds": ["training", "counts"],
    "most_epsilon": TRAINING_EPSILON,
    "most_delta": DELTA,
    "least_rows": LEAST_ROWS,
    "store_models": True,
}
PRIVATE = Scenario(
    {"privfairfl": THRESHOLDS},
    PRIVATE_LIMITS,
    {"most_tasks": 1, "most_epsilon": COUNTS_EPSILON},
    epsilon=TRAINING_EPSILON + COUNTS_EPSILON,
)


# 2. The regions' rows, and what all parties prepare.


def unlike_regions() -> dict[str, ClientTable]:
    """Return the wages of young people, table ``twoyear``, by region."""
    table = sf.load_dataset("twoyear")[0]
    parts = partition_by(table, "region", seed=0)
    return {name: parts[name] for name in REGIONS}


def prepare(
    output: Path, port: int, regions: Mapping[str, ClientTable], scenario: Scenario = OPEN
) -> dict[str, Path]:
    """Make kits as each party would fill them in, and the jobs; return the kits by party."""
    schema, exchanged = sf.load_dataset("twoyear")[1], output / "exchanged"
    exchanged.mkdir(parents=True)
    (exchanged / "schema.json").write_text(schema.to_json(), encoding="utf-8")
    if "gap" in scenario.jobs:
        write_gap_model(exchanged, regions, schema)

    # What is agreed, and public: the sites, their limits, and the jobs.
    aggregators, sum_limits = scenario.aggregators, scenario.sum_limits
    limits = dict.fromkeys(regions, scenario.limits) | dict.fromkeys(aggregators, sum_limits)
    sites = [{"name": name, "org": org_of(name), "limits": limits[name]} for name in limits]
    write_json(  # JSON is YAML
        exchanged / "project.yml",
        {
            "schema": "schema.json",
            "sites": sites[: len(regions)],
            "aggregators": sites[len(regions) :],
            "jobs": scenario.jobs,
        },
    )
    project = read_project(exchanged / "project.yml")

    # Each party's kit, hardened; all but the submitter's with a proposal of the party's own file.
    types = {SERVER: "server", SUBMITTER: "admin"} | dict.fromkeys(limits, "client")
    kits = make_kits(output, types, port)
    for kit in kits.values():
        harden(kit, project)
    write_jobs(project, output / SUBMITTER / "jobs")

    # A region puts its table into its kit, and may limit what the table's releases cost in all.
    # It signs with a key of its own, whose public half the others get.
    tests = []
    for name, rows in regions.items():
        data = kits[name] / "data"
        data.mkdir()
        rows.train.to_csv(data / "table.csv", index=False)
        if scenario.epsilon is not None:
            Ledger.for_table(data / "table.csv").set_limit(scenario.epsilon, DELTA)
        public, _ = make_keys(kits[name] / "local" / f"{name}.key")
        for other in (SERVER, *aggregators):
            shutil.copy(shutil.copy(public, exchanged), kits[other] / "local" / "keys")
        tests.append(output / SERVER / f"{name}_test.csv")
        rows.test.to_csv(tests[-1], index=False)

    # An aggregator makes the keys that shares are encrypted with.
    for name in aggregators:
        public, _ = make_aggregator_keys(kits[name] / "sums" / f"{name}.key")
        for other in (SERVER, *regions):
            shutil.copy(shutil.copy(public, exchanged), kits[other] / "local" / "aggregators")

    # The server is told the test tables.
    settings = kits[SERVER] / "local" / PARTY_FILE
    write_json(settings, json.loads(settings.read_text()) | {"tests": [*map(str, tests)]})
    return kits


def make_kits(output: Path, types: Mapping[str, str], port: int) -> dict[str, Path]:
    """Make a kit for each party, as docs/deploy.md says; no private key leaves its party's folder.

    Args:
        output: folder, in which each party has one.
        types: the engine's words for what parties are, by name.
        port: of the server.
    """
    exchanged, hub, kits = output / "exchanged", output / "hub", {}
    for name in ("exchanged", "hub", *types):
        (output / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    # The hub makes the root, whose key it keeps, and reads its fingerprint out by phone.
    address = {"host": SERVER, "fed_learn_port": port, "admin_port": port}
    profile = {"name": PROJECT, "scheme": "http", "connection_security": "mtls", "server": address}
    write_json(hub / "profile.yml", profile)
    printed = nvflare(hub, "cert init --profile profile.yml -o ca --valid-days 1800")
    fingerprint = re.findall(r"SHA256:[0-9A-F:]+", printed)[0]

    for name, kind in types.items():
        own, request = output / name, exchanged / f"{name}.request.zip"
        # A party makes its key, and asks for a certificate. It reads the hash out by phone.
        participant = {"name": name, "type": kind, "org": org_of(name)}
        participant |= {"role": "lead"} if kind == "admin" else {}
        write_json(own / f"{name}.yml", {"name": PROJECT, "participants": [participant]})
        nvflare(own, f"cert request -p {name}.yml")
        read_out = hashlib.sha256((own / name / f"{name}.csr").read_bytes()).hexdigest()
        shutil.copy(own / name / request.name, request)
        # The hub looks before it approves, as that asks nothing.
        with zipfile.ZipFile(request) as sent:
            if hashlib.sha256(sent.read(f"{name}.csr")).hexdigest() != read_out:
                raise InputError(f"{request}: not what {name} has sent")
        paths = f"../exchanged/{request.name} --out ../exchanged/{name}.signed.zip"
        nvflare(hub, f"cert approve {paths} -c ca --profile profile.yml --valid-days 360")
        # The party makes its kit of its key and the certificate, under that root and no other.
        trusted = f"--request-dir {name} --fingerprint {fingerprint}"
        nvflare(own, f"package ../exchanged/{name}.signed.zip {trusted}")
        kits[name] = (own / "workspace" / PROJECT / "prod_00" / name).rename(own / "kit")
    return kits


def nvflare(folder: Path, command: str) -> str:
    """Run a command of the engine in a party's folder, and return what it prints.

    Its words have no blanks.
    """
    done = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "nvflare.cli", *command.split()],
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},  # it keeps a log of requests there
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InputError(f"nvflare {command}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def org_of(name: str) -> str:
    """Return the organisation of a party: each has its own, but for the hub's two."""
    return "hub" if name in (SERVER, SUBMITTER) else f"org_{name}".replace("-", "_")


def write_gap_model(folder: Path, regions: Mapping[str, ClientTable], schema: sf.Schema) -> None:
    """Write the model of the job ``gap``, which is the first region's."""
    import numpy as np

    from synthfair.jax_setup import start_jax

    start_jax()
    rows = sf.encode(next(iter(regions.values())).train, schema, source="twoyear")
    config = sf.TrainConfig(method="fpfl", rounds=50, learning_rate=1.0)
    data = sf.federated.make_user_data(rows, np.zeros(len(rows.y), int), schema, config)
    sf.write_model(sf.federated.train_rounds(data, config).model, folder / "model.json")


# 3. The processes of the server, the regions and the aggregators.


@contextmanager
def running(kits: list[Path], port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the processes of kits, the server's first; whatever happens, they end."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for kit in kits:
            processes.append(start(kit))
            if kit == kits[0]:
                wait_for_port(port, processes[0])
        yield processes
    finally:
        for process in reversed(processes):
            stop(process)


def start(kit: Path) -> subprocess.Popen[bytes]:
    """Start the process of a kit, which first looks whether it is hardened and ready."""
    with (kit.parent / CONSOLE).open("ab") as console:
        return subprocess.Popen(  # noqa: S603 - our own arguments
            [sys.executable, "-m", "synthfair", "deploy", "start", str(kit)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # all of them share this machine's cores
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> bool:
    """End a process and those that it has started for jobs; return whether none was killed."""
    import psutil

    if process.poll() is not None:
        return True
    own = psutil.Process(process.pid)
    family = [own, *own.children(recursive=True)]
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    _, stubborn = psutil.wait_procs(family, timeout=20)
    for one in stubborn:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    return not stubborn


def free_port() -> int:
    """Return a port of this machine that nobody listens at now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for_port(port: int, server: subprocess.Popen[bytes], *, seconds: float = 60.0) -> None:
    """Wait until the server listens. Raises InputError: it does not in time, or has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            raise InputError(f"the server has ended; the {CONSOLE} in its folder says why")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise InputError(f"port {port}: nobody listens after {seconds:g} seconds")


def wait_for_sites(session: Session, sites: Iterable[str], *, seconds: float = 60.0) -> None:
    """Wait until the server knows all sites. Raises InputError: it does not in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        known = {client.name for client in session.get_system_info().client_info}
        if known >= set(sites):
            return
        time.sleep(0.3)
    raise InputError(f"the server does not know all sites after {seconds:g} seconds")


# 4. A job, from submission to results.


class JobRun(NamedTuple):
    """How the job went.

    Attributes:
        run: the job.
        start_seconds: from the first process to all sites being known to the server.
        job_seconds: from submission to the results.
        clean: whether all processes ended when asked.
    """

    run: JobResult
    start_seconds: float
    job_seconds: float
    clean: bool


def demonstrate(
    output: Path,
    show: Callable[[str], None],
    on_progress: OnProgress,
    *,
    job: Job = "single_shot",
    secure: bool = False,
    regions: Mapping[str, ClientTable] | None = None,
) -> JobRun:
    """Make the kits, start the processes, run a job, and stop them.

    Args:
        output: folder, new or empty: a folder for each party, ``exchanged`` and ``results``.
        show: takes what is done next.
        on_progress: of the job.
        job: which.
        secure: of ``train``, whether aggregators add up what nobody may see.
        regions: rows of each, by name; if not given, two unlike ones.

    Raises:
        InputError: the folder is not empty, or something does not work.
    """
    if secure and job != "train":
        raise InputError(f"secure: of the job train alone, not {job}")
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")
    output = output.resolve()
    regions = unlike_regions() if regions is None else regions
    scenario = SECURE if secure else {"gap": GAP, "privfairfl": PRIVATE}.get(job, OPEN)

    show("keys, certificates and kits, and the regions' tables")
    port = free_port()
    kits = prepare(output, port, regions, scenario)

    submitter = kits.pop(SUBMITTER)
    show(f"starting a server and {len(kits) - 1} sites")
    times = [time.monotonic()]
    with running([*kits.values()], port) as processes:
        # The submitter's kit opens a session with the server.
        with connect(submitter, timeout=60.0) as session:
            wait_for_sites(session, [*regions, *scenario.aggregators])
            times.append(time.monotonic())

            show(f"job {job}")
            name = submit(session, output / SUBMITTER / "jobs" / job)
            results = output / "results"
            run = attach(session, name, results, on_progress, most_seconds=MOST_SECONDS)
            times.append(time.monotonic())

        show("stopping")
        clean = all([stop(process) for process in reversed(processes)])  # noqa: C419 - each of them
    return JobRun(run, times[1] - times[0], times[2] - times[1], clean)


def main(
    *, output: Path = Path("synthfair-deploy-demo"), job: Job = "single_shot", secure: bool = False
) -> None:
    """Run a federation on this machine: a server, two unlike regions, one job.

    The kits of a server and of two unlike regions (table twoyear) are made, a process for each is
    started on free ports of this machine, a job runs from submission to results, and they are
    stopped. The exit code is 0 only if all of it worked. Takes about a minute.

    Args:
        output: A new folder to write to.
        job: One upload; 200 rounds of fedavg; gaps of a model, from counts to which each
            region adds noise; or, all of it with epsilon, 20 rounds of dp_sgd and thresholds by
            group from counts in shares, with two aggregators more.
        secure: Of train: 20 rounds, whose reports two aggregators add up, and nobody sees.
    """
    with stage_bar() as show:
        shown = demonstrate(
            output, show, lambda *progress: show(in_words(*progress)), job=job, secure=secure
        )
    tell(shown.run, output / "results")
    say(f"Start: {shown.start_seconds:.1f} s. Job: {shown.job_seconds:.1f} s.")
    if not shown.clean:
        warn("a process had to be killed")
    if not (shown.run.completed and shown.clean):
        sys.exit(1)


if __name__ == "__main__":
    try:
        cyclopts.run(main)
    except InputError as error:
        sys.exit(f"error: {error}")
