"""On which trainers an ordinary model comes out fair: logistic regression and trees.

    python -m benchmarks.trainers                   # 3 seeds; goes on where it stopped

Dutch by sex, 4 alike clients, the covariance penalty with weight 10. A trainer that knows nothing
of fairness is given the server's fair table, with its weights, or the pooled rows of fair releases,
or for comparison all real training rows. Each model is measured on all clients' test rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from benchmarks.harness import ROOT, Experiment, main, surrogates_version
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import page, pair_text
from benchmarks.unlike.clients import (
    CONFIGS,
    Cut,
    accuracy_and_spd,
    federation,
    surrogates,
    weighted,
)
from benchmarks.unlike.training import LAMBDA_THETA
from synthfair.compare.federation import pooled
from synthfair.config.loading import WITHOUT_EPSILON, load_settings
from synthfair.data.datasets import SOURCES
from synthfair.surrogate import FairTable, make_fair_table, train_fair

ROWS = ("fair table", "fair releases", "real rows")
RHO = 10.0


class TrainerSetting(NamedTuple):
    """Rows of :data:`ROWS`, and one of :data:`TRAINERS`."""

    rows: str
    trainer: str


TRAINERS: dict[str, Callable[[FairTable], Any]] = {
    "logistic regression with the server's C": lambda table: LogisticRegression(
        C=table.C, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=10_000
    ),
    "logistic regression with C = 1": lambda _: LogisticRegression(max_iter=10_000),
    "gradient-boosted trees": lambda _: HistGradientBoostingClassifier(random_state=0),
}
"""Of scikit-learn, each makes a classifier for some rows. The first has the regularisation that the
fair table names, on other rows that of the server; the others are as scikit-learn has them, but for
iterations enough. The inputs hold an intercept."""


def run_trainer(setting: TrainerSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """One trainer on the rows of one split."""
    cut = Cut("dutch", 4, "alike", seed)
    table, clients = fair_table(cut, setting.rows, smoke=smoke), federation(cut)
    classifier = TRAINERS[setting.trainer](table)
    classifier.fit(table.a, table.y, sample_weight=table.weight)
    a = np.asarray(weighted(pooled(clients.test)).rows(n_groups=clients.n_groups).a)
    decided = np.asarray(classifier.decision_function(a)) > 0
    return AccuracySpd(*(round(one, 6) for one in accuracy_and_spd(clients, decided * 1.0)))


@lru_cache(maxsize=3)
def fair_table(cut: Cut, kind: str, *, smoke: bool) -> FairTable:
    """What a trainer is given, with the C of the problem that the server solves on it."""
    clients, penalty = federation(cut), sf.CovariancePenalty()
    if kind == "fair table":
        table = surrogates(cut, "surrogate").table.rows(n_groups=clients.n_groups)
        solution = train_fair(table, LAMBDA_THETA, RHO, model=sf.LinearModel(), penalty=penalty)
        theta, rho = np.asarray(solution.params), RHO
        return make_fair_table(table, theta, penalty, rho=rho, lambda_theta=LAMBDA_THETA)
    parts = clients.train
    if kind == "fair releases":
        config = distill_config(cut.seed, **({"steps": 5} if smoke else {}))
        releases = [sf.distill_table(one, clients.schema, config).release for one in parts]
        parts = tuple(sf.Encoded(one.x, one.s, one.y) for one in releases)
    table = weighted(pooled(parts)).rows(n_groups=clients.n_groups)
    theta = np.zeros(table.a.shape[1])
    return make_fair_table(table, theta, penalty, rho=0.0, lambda_theta=LAMBDA_THETA)


def distill_config(seed: int, **changes: int) -> sf.DistillConfig:
    """That of configs/ for Dutch."""
    path = ROOT.parent / "configs/dutch/gender.toml"
    settings: dict[str, float] = {**changes, "seed": seed, "rho_o": RHO}
    return load_settings(sf.DistillConfig, path, settings, leave_out={WITHOUT_EPSILON})


def trainers_lines(runs: Runs) -> list[tuple[str, ...]]:
    """Accuracy / SPD of each trainer, on each kind of rows."""
    return [
        (trainer, *(pair_text(runs.select(rows=kind, trainer=trainer)) for kind in ROWS))
        for trainer in TRAINERS
    ]


EXPERIMENTS = (
    Experiment(
        name="runs",
        settings=tuple(TrainerSetting(kind, trainer) for kind in ROWS for trainer in TRAINERS),
        run=run_trainer,
        summary=lambda runs: {"trainers.md": page("trainers/trainers", rows=trainers_lines(runs))},
        smoke=(
            *(TrainerSetting("fair table", trainer) for trainer in TRAINERS),
            TrainerSetting("fair releases", "gradient-boosted trees"),
        ),
        seeds=3,
        sources=lambda _: SOURCES["dutch"],
        behind=lambda setting: (
            *([surrogates_version(None)] if setting.rows == "fair table" else []),
            *(CONFIGS["surrogate"], distill_config(0), LAMBDA_THETA),
        ),
    ),
)

if __name__ == "__main__":
    main(__doc__, "trainers", *EXPERIMENTS)
