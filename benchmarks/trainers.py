"""On which trainers an ordinary model comes out fair: logistic regression and trees.

    python -m benchmarks.trainers                   # 3 seeds; goes on where it stopped

Dutch by sex, 4 alike clients, the covariance penalty with weight 10. A trainer that knows nothing
of fairness is given the pooled rows of fair releases, or for comparison all real training rows.
Each model is measured on all clients' test rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from benchmarks.harness import ROOT, Experiment, main
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import page, pair_text
from benchmarks.unlike.clients import Cut, accuracy_and_spd, federation, weighted
from synthfair.data.datasets import SOURCES
from synthfair.release.settings import load_release_config
from synthfair.server.pooling import concatenated

LAMBDA_THETA = sf.DistillConfig().lambda_theta
ROWS = ("fair releases", "real rows")
RHO = 10.0


class TrainerSetting(NamedTuple):
    """Rows of :data:`ROWS`, and one of :data:`TRAINERS`."""

    rows: str
    trainer: str


TRAINERS: dict[str, Callable[[sf.Rows], Any]] = {
    "logistic regression with the server's C": lambda rows: LogisticRegression(
        C=rows.a.shape[1] ** 2 / (LAMBDA_THETA * len(rows.y)),
        fit_intercept=False,
        solver="newton-cholesky",
        tol=1e-10,
        max_iter=10_000,
    ),
    "logistic regression with C = 1": lambda _: LogisticRegression(max_iter=10_000),
    "gradient-boosted trees": lambda _: HistGradientBoostingClassifier(random_state=0),
}
"""Of scikit-learn, each makes a classifier for some rows. The first has the server's
regularisation; the others are as scikit-learn has them, but for
iterations enough. The inputs hold an intercept."""


def run_trainer(setting: TrainerSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """One trainer on the rows of one split."""
    cut = Cut("dutch", 4, "alike", seed)
    rows, clients = given_rows(cut, setting.rows, smoke=smoke), federation(cut)
    classifier = TRAINERS[setting.trainer](rows)
    classifier.fit(rows.a, rows.y)
    a = np.asarray(weighted(concatenated(clients.test)).rows(n_groups=1).a)
    decided = np.asarray(classifier.decision_function(a)) > 0
    return AccuracySpd(*(round(one, 6) for one in accuracy_and_spd(clients, decided * 1.0)))


@lru_cache(maxsize=3)
def given_rows(cut: Cut, kind: str, *, smoke: bool) -> sf.Rows:
    """Return what a trainer is given."""
    clients = federation(cut)
    parts = clients.train
    if kind == "fair releases":
        config = distill_config(cut.seed, **({"steps": 5} if smoke else {}))
        releases = [sf.distill_table(one, clients.schema, config).release for one in parts]
        parts = tuple(sf.Encoded(one.x, one.s, one.y) for one in releases)
    return weighted(concatenated(parts)).rows(n_groups=1)


def distill_config(seed: int, **changes: int) -> sf.DistillConfig:
    """Return the settings of configs/ for Dutch, with these changes."""
    path = ROOT.parent / "configs/dutch/gender.toml"
    settings: dict[str, Any] = {**changes, "seed": seed, "rho_o": RHO, "group_input": False}
    config, _ = load_release_config(path, **settings)
    assert isinstance(config, sf.DistillConfig)
    return config


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
            *(TrainerSetting("real rows", trainer) for trainer in TRAINERS),
            TrainerSetting("fair releases", "gradient-boosted trees"),
        ),
        seeds=3,
        sources=lambda _: SOURCES["dutch"],
        behind=lambda _: (distill_config(0), LAMBDA_THETA),
    ),
)

if __name__ == "__main__":
    main(__doc__, "trainers", *EXPERIMENTS)
