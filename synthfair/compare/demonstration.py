"""Two unlike lenders of the table ``loanapp``: one model for both, from both kinds of releases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple, cast

from synthfair.client.fair_task import Distillation
from synthfair.client.page import distill_file
from synthfair.compare.compared_methods import federate, run_method, server_config
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition_by, write_clients
from synthfair.errors import InputError
from synthfair.metrics_file import Evaluation
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.page import serve
from synthfair.server.settings import ServerConfig
from synthfair.task.protocol import Progress, Run

COLUMN = "suffolk"
"""The column that says whose an application is."""

LENDERS = {"suburbs": "0", "city": "1"}
"""The lenders and their values of the column: 1 in Suffolk county, most of which is Boston."""

FAIR = DistillConfig(rho_o=30.0)
"""Settings of the fair releases."""

SURROGATE = SurrogateConfig(k_min=10)
"""Settings of the surrogates. The table is small: with the default k_min of 50 the city would hide
how often its groups are refused."""


ShowStage = Callable[[int, int, str], None]
"""Called before each stage with the number of stages done, the number of all, and what comes."""

N_STAGES = 14


class Outcome(NamedTuple):
    """The metrics of one method on the test rows of both lenders.

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


def demonstrate(
    folder: Path, show: ShowStage, *, fair: DistillConfig = FAIR, force: bool = False
) -> list[Outcome]:
    """Return outcomes of central training, each lender alone, fair releases and surrogates.

    The lenders are unlike: in the suburbs 11 % of the applicants are not white and 10 % of all are
    refused, in the city 40 % and 24 %. Each lender makes three releases of its table, to compare
    them: in earnest it makes one, see :mod:`synthfair.privacy.ledger`.

    Args:
        folder: where tables, releases, models and metrics are written.
        show: shows progress.
        fair: settings of the fair releases; the other methods have its penalty, and all run with
            its weight, rho_o, and with 0.
        force: whether files are overwritten that are not of an earlier demonstration.

    Raises:
        InputError: the folder has other files and force is false, or it cannot be written to.
    """
    force = force or all((folder / f"client_{name}_train.csv").exists() for name in LENDERS)
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"{folder}: is not empty; name another, or force = true goes on in it", "force"
        )

    # The lenders and their tables.
    table, schema = load_dataset("loanapp")
    parts = partition_by(table, COLUMN, seed=fair.seed)
    lenders = {name: parts[value] for name, value in LENDERS.items()}
    write_clients(lenders, schema, folder, force=force)
    federation, stages = federate(list(lenders.values()), schema), count()

    def begin(stage: str) -> Progress:
        """Show the next stage, and return what shows the steps within it."""
        before = next(stages)
        show(before, N_STAGES, stage)
        return lambda _, step, steps: show(before, N_STAGES, f"{stage}, step {step} of {steps}")

    def send(name: str, config: DistillConfig | SurrogateConfig) -> tuple[list[Path], bool]:
        """Return each lender's release in this folder, and whether all converged."""
        paths, converged = [], True
        for lender in LENDERS:
            paths.append(folder / name / f"{lender}.parquet")
            release, _ = distill_file(
                folder / f"client_{lender}_train.csv",
                folder / "schema.json",
                paths[-1],
                config,
                force=force,
                again=True,  # three releases of each table, to compare them
                run=Run(progress=begin(f"{name} release, {lender}")),
            )
            converged &= not isinstance(release, Distillation) or release.converged
        return paths, converged

    # Every method, without the penalty and with it; surrogates serve both.
    outcomes: list[Outcome] = []
    surrogates = send("surrogate", SURROGATE)
    for name, config in {"plain": fair.model_copy(update={"rho_o": 0.0}), "fair": fair}.items():
        for method, title in {"central": "central", "local": "each lender alone"}.items():
            begin(f"{title}, rho = {config.rho_o:g}")
            evaluation, fitted = run_method(method, federation, config)
            outcomes.append(Outcome(title, config.rho_o, evaluation, fitted.converged))
        for title, (paths, solved), output, server in (
            ("fair releases", send(name, config), f"{name}/server", ServerConfig()),
            ("surrogates", surrogates, f"surrogate/{name}", server_config(config)),
        ):
            begin(f"server, {output}")
            served = serve(
                paths,
                folder / "schema.json",
                [folder / f"client_{lender}_test.csv" for lender in LENDERS],
                folder / output,
                server,
                frontier=title == "surrogates" and config is fair,
                force=force,
            )
            converged = solved and served.model.converged is not False
            metrics = cast(Evaluation, served.metrics)
            outcomes.append(Outcome(title, config.rho_o, metrics, converged))
    show(N_STAGES, N_STAGES, "done")
    return outcomes
