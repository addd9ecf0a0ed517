"""A server and its sites on this machine: two unlike lenders, one upload, one fair model.

Or another job: rounds, gaps from perturbed reports; or, with two aggregators more, rounds or
thresholds from sums that nobody sees the parts of.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.compare.demonstration import (
    COLUMN,
    FAIR,
    LENDERS,
    SURROGATE,
    TEST_FRACTION,
)
from synthfair.data.datasets import load_dataset
from synthfair.data.encode import encode
from synthfair.data.partition import ClientTable, partition_by
from synthfair.deploy.check import problems
from synthfair.deploy.kit import JOBS, KITS, make_kits
from synthfair.deploy.processes import Party, free_port, wait_for_port
from synthfair.deploy.session import OnProgress, Run, connected, run_job
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.measure.collection import NO_VALUE, make_collection, write_collection
from synthfair.measure.plan import best_split
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys
from synthfair.secure import make_aggregator_keys
from synthfair.task.messages import TaskName
from synthfair.task.settings import FILE

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

    from synthfair.data.schema import Schema

MOST_SECONDS = 180.0
"""Of the job."""

SUBMITTER = "lead@hub.org"

_LIMITS = {
    "kinds": ["surrogate", "training"],
    "without_epsilon": True,
    "k_min": SURROGATE.k_min,
    "most_rounds": 400,  # a job that goes on asks for some rounds again
}

_UPLOAD = {
    "release": {"release": "surrogate", **SURROGATE.model_dump(exclude_defaults=True)},
    "server": {"penalty": FAIR.penalty, "rho": FAIR.rho_o},
    "timeout": 300,
}
"""As in ``python -m synthfair demo``."""

_TRAIN = {"train": {"method": "fpfl", "rounds": 200, "learning_rate": 1.0}, "timeout": 60}

AGGREGATORS = ("auditor", "union")
"""Who add up shares where a job has sums."""

_TRAINING_EPSILON, _COUNTS_EPSILON, _DELTA = 4.0, 1.0, 0.0001

_ROWS = 180
"""Of the smaller lender at least, a public number."""

_PRIVATE_LIMITS = {
    "kinds": ["training", "counts"],
    "most_epsilon": _TRAINING_EPSILON,
    "most_delta": _DELTA,
    "least_rows": _ROWS,
    "store_models": True,
}

_ADDER_LIMITS = {"most_tasks": 1, "most_epsilon": _COUNTS_EPSILON}

_THRESHOLDS = {
    "train": {
        "train": {
            "method": "dp_sgd",
            "rounds": 20,
            "batch": 60,
            "clip": 1.0,
            "epsilon": _TRAINING_EPSILON,
            "delta": _DELTA,
        },
        "least_rows": _ROWS,
        "most_rows": 2000,
        "timeout": 120,
    },
    "notion": "statistical_parity",
    "alpha": 0.05,
    "bins": 21,
    "epsilon": _COUNTS_EPSILON,
    "rows_per_client": 2000,
    "timeout": 60,
}


_SECURE_TRAIN = {
    "train": {"method": "fpfl", "rounds": 20, "learning_rate": 1.0, "secure": True, "clip": 1.0},
    "timeout": 60,
}

_GAP_EPSILON = 2.0

_GAP = {"collection": "gap.json", "model": "model.json", "rate": "true_positive_rate"}


class Scenario(NamedTuple):
    """Which jobs, and what the parties' limits are.

    Attributes:
        jobs: by kind, as ``project.yml`` has them.
        limits: of each lender.
        adders: limits of each aggregator; None where there is none.
        epsilon: limit of each lender's ledger; None where it has none.
    """

    jobs: dict[str, Any]
    limits: dict[str, Any]
    adders: dict[str, Any] | None = None
    epsilon: float | None = None

    @property
    def aggregators(self) -> tuple[str, ...]:
        """Their names."""
        return () if self.adders is None else AGGREGATORS


OPEN = Scenario({"single_shot": _UPLOAD, "train": _TRAIN}, _LIMITS)
"""Without an epsilon."""

_SECURE = Scenario({"train": _SECURE_TRAIN}, _LIMITS, {"most_tasks": 20, "without_noise": True})

_OTHERS: dict[TaskName, Scenario] = {
    "gap": Scenario(
        {"gap": _GAP}, {"kinds": ["gap"], "most_epsilon": _GAP_EPSILON}, None, _GAP_EPSILON
    ),
    "privfairfl": Scenario(
        {"privfairfl": _THRESHOLDS},
        _PRIVATE_LIMITS,
        _ADDER_LIMITS,
        _TRAINING_EPSILON + _COUNTS_EPSILON,
    ),
}


class Shown(NamedTuple):
    """What the demonstration did.

    Attributes:
        run: the job.
        start_seconds: from the first process to all sites being known to the server.
        job_seconds: from submission to the results.
        clean: whether all processes ended when asked.
    """

    run: Run
    start_seconds: float
    job_seconds: float
    clean: bool


def demonstrate(
    output: Path,
    say: Callable[[str], None],
    on_progress: OnProgress,
    *,
    job: TaskName = "single_shot",
    secure: bool = False,
    lenders: Mapping[str, ClientTable] | None = None,
) -> Shown:
    """Makes the kits, starts the processes, runs a job, and stops them.

    Args:
        output: folder, new or empty: ``tables``, ``federation`` with kits and jobs, ``results``.
        say: takes what is done next.
        on_progress: of the job.
        job: which.
        secure: of ``train``, whether aggregators add up what nobody may see.
        lenders: rows of each, by name; if not given, two unlike ones.

    Raises:
        InputError: the folder is not empty, or something does not work.
    """
    if secure and job != "train":
        raise InputError(f"secure: of the job train alone, not {job}")
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")
    output = output.resolve()
    lenders = unlike_lenders() if lenders is None else lenders
    say("the lenders' tables, their kits and keys")
    port = free_port()
    scenario = _SECURE if secure else _OTHERS.get(job, OPEN)
    kits = prepare(output, port, lenders, scenario)
    begun = time.monotonic()
    say(f"starting a server and {len(kits) - 1} sites")
    with running(kits, port) as parties:
        with connected(output / "federation" / KITS / SUBMITTER, timeout=60.0) as session:
            wait_for_sites(session, [*lenders, *scenario.aggregators])
            started = time.monotonic()
            say(f"job {job}")
            folder = output / "federation" / JOBS / job
            results = output / "results"
            run = run_job(session, folder, results, on_progress, most_seconds=MOST_SECONDS)
            ended = time.monotonic()
        say("stopping")
        clean = all([party.stop() for party in reversed(parties)])  # noqa: C419 - each of them
    return Shown(run, started - begun, ended - started, clean)


def unlike_lenders() -> dict[str, ClientTable]:
    """The loan applications of ``python -m synthfair demo``."""
    cut = partition_by(
        load_dataset("loanapp")[0], COLUMN, seed=FAIR.seed, test_fraction=TEST_FRACTION
    )
    return {site: cut[value] for site, value in LENDERS.items()}


def prepare(
    output: Path, port: int, lenders: Mapping[str, ClientTable], scenario: Scenario = OPEN
) -> list[Path]:
    """Tables, kits as each party would fill them in, and keys; returns the kits to start."""
    schema = load_dataset("loanapp")[1]
    tables, federation = output / "tables", output / "federation"
    tables.mkdir(parents=True)
    (tables / "schema.json").write_text(schema.to_json(), encoding="utf-8")
    if "gap" in scenario.jobs:
        _write_question(tables, lenders, schema)
    aggregators = scenario.aggregators
    project = {
        "name": "lenders",
        "schema": "schema.json",
        "server": {"name": "localhost", "org": "hub", "port": port},
        "sites": [{"name": s, "org": f"lender_{s}", "limits": scenario.limits} for s in lenders],
        "aggregators": [{"name": a, "org": a, "limits": scenario.adders} for a in aggregators],
        "submitters": [{"name": SUBMITTER, "org": "hub"}],
        "jobs": scenario.jobs,
    }
    write_json(tables / "project.yml", project)  # JSON is YAML
    make_kits(tables / "project.yml", federation)
    server = federation / KITS / "localhost"
    tests = []
    for site, rows in lenders.items():
        local, data = federation / KITS / site / "local", federation / KITS / site / "data"
        data.mkdir()
        rows.train.to_csv(data / "table.csv", index=False)
        test = tables / f"{site}_test.csv"
        rows.test.to_csv(test, index=False)
        tests.append(str(test))
        public, _ = make_keys(local / f"{site}.key")
        for other in ("localhost", *aggregators):
            shutil.copy(public, federation / KITS / other / "local" / "keys")
        if scenario.epsilon is not None:
            Ledger.for_table(data / "table.csv").set_limit(scenario.epsilon, _DELTA)
    for name in aggregators:
        public, _ = make_aggregator_keys(federation / KITS / name / "sums" / f"{name}.key")
        for other in ("localhost", *lenders):
            shutil.copy(public, federation / KITS / other / "local" / "aggregators")
    settings = json.loads((server / "local" / FILE).read_text())
    write_json(server / "local" / FILE, settings | {"tests": tests})
    kits = [federation / KITS / name for name in ("localhost", *lenders, *aggregators)]
    if found := [problem for kit in kits for problem in problems(kit)]:
        raise InputError("\n".join(found))
    return kits


def _write_question(folder: Path, lenders: Mapping[str, ClientTable], schema: Schema) -> None:
    """Files of the job ``gap``: a model of the first lender's, and the public plan of reports."""
    import numpy as np

    from synthfair.federated import TrainConfig, make_user_data, train_rounds
    from synthfair.jax_setup import start_jax
    from synthfair.trained import write_model

    start_jax()
    rows = encode(next(iter(lenders.values())).train, schema, source="loanapp")
    config = TrainConfig(method="fpfl", rounds=50, learning_rate=1.0)
    data = make_user_data(rows, np.zeros(len(rows.y), int), schema, config)
    write_model(train_rounds(data, config).model, folder / "model.json")
    groups = (*map(str, schema.groups), NO_VALUE)
    mechanism = best_split("randomized", groups=len(groups), epsilon=_GAP_EPSILON)
    write_collection(make_collection(groups, mechanism), folder / "gap.json")


@contextmanager
def running(kits: list[Path], port: int) -> Iterator[list[Party]]:
    """The processes of kits, the server's first; whatever happens, they end."""
    parties: list[Party] = []
    try:
        for kit in kits:
            parties.append(Party(kit))
            if len(parties) == 1:
                wait_for_port(port, parties)
        yield parties
    finally:
        for party in reversed(parties):
            party.stop()


def wait_for_sites(session: Session, sites: Iterable[str], *, seconds: float = 60.0) -> None:
    """Until the server knows all sites.

    Raises:
        InputError: it does not in time.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        known = {client.name for client in session.get_system_info().client_info}
        if known >= set(sites):
            return
        time.sleep(0.3)
    raise InputError(f"the server does not know all sites after {seconds:g} seconds")
