"""Four regions of the table ``twoyear``: one fair model for all, from a file of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple, cast

from synthfair.client.page import distill_file
from synthfair.compare.compared_methods import federate, run_method
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition_by, write_clients
from synthfair.errors import InputError
from synthfair.metrics_file import Evaluation
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.page import serve
from synthfair.server.settings import ServerConfig

ASKED = ServerConfig(penalty="selection_rate", rho=100.0)
"""Settings of the server: a weight of the penalty at which men and women are treated alike."""

ShowStage = Callable[[int, int, str], None]
"""Called before each stage with the number of stages done, the number of all, and what comes."""

N_STAGES = 10


class Outcome(NamedTuple):
    """The metrics of one method on the test rows of all regions.

    Attributes:
        method: its title.
        rho_o: weight of the penalty.
        evaluation: on the test rows.
        converged: whether every problem solved on the way met its tolerance; None: no test.
    """

    method: str
    rho_o: float
    evaluation: Evaluation
    converged: bool | None


def demonstrate(folder: Path, show: ShowStage, *, force: bool = False) -> list[Outcome]:
    """Return outcomes of central training, each region alone and surrogates, by weight.

    Each region sends one file, made of four fifths of its rows; all methods are measured on the
    other fifth of all regions.

    Args:
        folder: where tables, releases, model and metrics are written.
        show: shows progress.
        force: whether files are overwritten that are not of an earlier demonstration.

    Raises:
        InputError: the folder has other files and force is false, or it cannot be written to.
    """
    again = (folder / "client_west_train.csv").exists()
    if not (force or again) and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"{folder}: is not empty; name another, or force = true goes on in it", "force"
        )
    stages = count()

    # The regions' tables, in which a fifth of the rows is kept for tests.
    table, schema = load_dataset("twoyear")
    regions = partition_by(table, "region", seed=0)
    write_clients(regions, schema, folder, force=True)
    federation = federate(regions, schema)

    # Each region makes its file, in house.
    releases = []
    for name in federation.names:
        show(next(stages), N_STAGES, f"file of {name}")
        train, release = (folder / f"{name}{end}" for end in ("_train.csv", ".parquet"))
        settings = SurrogateConfig(without_epsilon=True)
        distill_file(train, folder / "schema.json", release, settings, force=True, again=True)
        releases.append(release)

    # Every method, without the penalty and with it; the same files serve both.
    outcomes: list[Outcome] = []
    tests = [folder / f"{name}_test.csv" for name in federation.names]
    for rho, output in {0.0: "without_penalty", ASKED.rho: "server"}.items():
        config = DistillConfig(penalty=ASKED.penalty, rho_o=rho)
        for method, title in {"central": "central", "local": "each region alone"}.items():
            show(next(stages), N_STAGES, f"{title}, weight {rho:g}")
            evaluation, fitted = run_method(method, federation, config)
            outcomes.append(Outcome(title, rho, evaluation, fitted.converged))
        show(next(stages), N_STAGES, f"server, weight {rho:g}")
        asked = ASKED.model_copy(update={"rho": rho})
        served = serve(
            releases, folder / "schema.json", tests, folder / output, asked,
            frontier=rho > 0, force=True,
        )  # fmt: skip
        metrics, converged = cast(Evaluation, served.metrics), served.model.converged
        outcomes.append(Outcome("surrogates", rho, metrics, converged))
    show(N_STAGES, N_STAGES, "done")
    return outcomes
