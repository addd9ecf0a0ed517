"""On which trainers an ordinary model comes out fair: logistic regression and trees.

    python -m benchmarks.trainers                   # 3 seeds; goes on where it stopped

Dutch by sex, 4 alike clients, the covariance penalty with weight 10. A trainer that knows nothing
of fairness is given the server's fair table, with its weights, or the pooled rows of fair releases,
or for comparison all real training rows. Each model is measured on all clients' test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.blocks.reading import both
from benchmarks.harness import ROOT, Experiment, Run, fingerprint, main, surrogates_version
from benchmarks.showing import page, select, table
from benchmarks.unlike.clients import CONFIGS, Cut, federation, surrogates
from benchmarks.unlike.training import LAMBDA_THETA
from synthfair.compare.federation import pooled
from synthfair.config import load_distill_config
from synthfair.data.datasets import SOURCES
from synthfair.fairness.intervals import metrics
from synthfair.fairness.metrics import Scored
from synthfair.surrogate import FairTable, WeightedTable, make_fair_table, train_fair

ROWS = ("fair table", "fair releases", "real rows")
RHO = 10.0


class TrainerSetting(NamedTuple):
    """Rows of :data:`ROWS`, and one of :data:`TRAINERS`."""

    rows: str
    trainer: str


class TrainerValues(NamedTuple):
    """On all clients' test rows."""

    accuracy: float
    spd: float


def logistic(rows: FairTable) -> Any:
    """With the regularisation that the fair table names; on other rows that of the server."""
    from sklearn.linear_model import LogisticRegression

    exact: Any = {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 10_000}
    return LogisticRegression(C=rows.C, fit_intercept=False, **exact)


def usual_logistic(_rows: FairTable) -> Any:
    """As scikit-learn has it, but for iterations enough; the inputs hold an intercept, too."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=10_000)


def trees(_rows: FairTable) -> Any:
    """As scikit-learn has them."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


TRAINERS: dict[str, Callable[[FairTable], Any]] = {
    "logistic regression with the server's C": logistic,
    "logistic regression with C = 1": usual_logistic,
    "gradient-boosted trees": trees,
}
"""Of scikit-learn; each makes a classifier for some rows."""


def run_trainer(setting: TrainerSetting, seed: int, *, smoke: bool) -> TrainerValues:
    """One trainer on the rows of one split."""
    cut = Cut("dutch", 4, "alike", seed)
    rows, clients = given_rows(cut, setting.rows, smoke=smoke), federation(cut)
    classifier = TRAINERS[setting.trainer](rows)
    classifier.fit(rows.a, rows.y, sample_weight=rows.weight)
    test = pooled(clients.test)
    a = np.asarray(_weighted(test).rows(n_groups=clients.n_groups).a)
    scored = Scored(test.y, np.asarray(classifier.decision_function(a)), test.s, clients.n_groups)
    found = metrics(scored)
    return TrainerValues(round(found["accuracy"], 6), round(found["spd"], 6))


@lru_cache(maxsize=3)
def given_rows(cut: Cut, kind: str, *, smoke: bool) -> FairTable:
    """What a trainer is given, with the C of the problem that the server solves on it."""
    clients, penalty = federation(cut), sf.CovariancePenalty()
    if kind == "fair table":
        rows = surrogates(cut, "surrogate").table.rows(n_groups=clients.n_groups)
        solution = train_fair(rows, LAMBDA_THETA, RHO, model=sf.LinearModel(), penalty=penalty)
        theta, rho = np.asarray(solution.params), RHO
    else:
        parts = clients.train
        if kind == "fair releases":
            config = distill_config(cut.seed, **({"steps": 5} if smoke else {}))
            made = sf.distill_clients(parts, clients.schema, config)
            parts = tuple(
                sf.Encoded(*(one.release.x, one.release.s, one.release.y)) for one in made
            )
        rows = _weighted(pooled(parts)).rows(n_groups=clients.n_groups)
        theta, rho = np.zeros(rows.a.shape[1]), 0.0
    return make_fair_table(rows, theta, penalty, rho=rho, lambda_theta=LAMBDA_THETA)


def distill_config(seed: int, **changes: int) -> sf.DistillConfig:
    """That of configs/ for Dutch."""
    path = Path("configs/dutch/gender.toml")
    return load_distill_config(ROOT.parent / path, seed=seed, rho_o=RHO, **changes)


def _weighted(rows: sf.Encoded) -> WeightedTable:
    return WeightedTable(*rows, np.ones(len(rows.y)))


def trainers_table(runs: Sequence[Run[TrainerSetting, TrainerValues]]) -> str:
    """Accuracy / SPD of each trainer, on each kind of rows."""
    rows = [
        (trainer, *(both(select(runs, rows=kind, trainer=trainer)) for kind in ROWS))
        for trainer in TRAINERS
    ]
    return table(f"trained by | {' | '.join(ROWS)}", rows)


def show(runs: Sequence[Run[TrainerSetting, TrainerValues]]) -> dict[str, str]:
    """As Markdown."""
    return {"trainers.md": page("## Trainers that know nothing of fairness", trainers_table(runs))}


EXPERIMENTS = (
    Experiment(
        name="runs",
        settings=tuple(TrainerSetting(rows, trainer) for rows in ROWS for trainer in TRAINERS),
        run=run_trainer,
        summary=show,
        smoke=(
            *(TrainerSetting("fair table", trainer) for trainer in TRAINERS),
            TrainerSetting("fair releases", "gradient-boosted trees"),
        ),
        seeds=3,
        sources=lambda _: SOURCES["dutch"],
        fingerprint=lambda setting: fingerprint(
            *([surrogates_version(None)] if setting.rows == "fair table" else []),
            CONFIGS["surrogate"],
            distill_config(0),
            LAMBDA_THETA,
        ),
    ),
)

if __name__ == "__main__":
    main(__doc__, "trainers", *EXPERIMENTS)
