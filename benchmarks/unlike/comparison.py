"""The settings, and how one of them is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.harness import Experiment, Run, fingerprint, surrogates_version
from benchmarks.unlike.clients import CONFIGS, TASKS, Cut, federation
from benchmarks.unlike.pages import show
from benchmarks.unlike.training import LAMBDA_THETA, METHODS, Asked
from synthfair.compare.federation import pooled
from synthfair.data.datasets import SOURCES
from synthfair.fairness.intervals import metrics
from synthfair.fairness.metrics import Scored
from synthfair.privacy.statement import GRID

MAIN = Asked("covariance", 10.0)
ASKED = (MAIN, Asked("selection_rate", 10.0), Asked("selection_rate", 100.0))

CUTS = (
    *(
        (task, clients, split)
        for task in ("dutch", "law_school_race", "law_school_gender")
        for clients in (4, 20)
        for split in ("alike", "0.3", "0.1")
    ),
    ("adult", 10, "0.3"),
    ("adult", 15, "occupation"),
    ("adult", 5, "region"),
)
"""Task, clients and split of each."""


class UnlikeSetting(NamedTuple):
    """A table cut into clients, a method, and what is asked of it."""

    task: str
    clients: int
    split: str
    method: str
    penalty: str
    rho: float


class UnlikeValues(NamedTuple):
    """On all clients' test rows together, and what it took.

    Attributes:
        accuracy: of the decisions.
        spd: signed.
        clients_out: clients whose training rows took no part.
        rows_out: training rows that took no part, those of these clients included.
        client_seconds: of a client before it sends its file, the mean; compilation included.
        seconds: of training after that.
        converged: whether it met its tolerance.
    """

    accuracy: float
    spd: float
    clients_out: int
    rows_out: int
    client_seconds: float
    seconds: float
    converged: bool


def run_unlike(setting: UnlikeSetting, seed: int, *, smoke: bool) -> UnlikeValues:
    """One method on one split."""
    cut = Cut(setting.task, setting.clients, setting.split, seed)
    found = METHODS[setting.method].train(cut, Asked(setting.penalty, setting.rho), smoke=smoke)
    clients = federation(cut)
    test = pooled(clients.test)
    on_test = metrics(Scored(test.y, found.scores, test.s, clients.n_groups))
    return UnlikeValues(
        round(on_test["accuracy"], 6), round(on_test["spd"], 6), found.clients_out, found.rows_out,
        round(found.client_seconds, 3), round(found.seconds, 3), found.converged,
    )  # fmt: skip


def settings_of_all() -> Iterator[UnlikeSetting]:
    """A cut's one after the other, so that its surrogates are made once."""
    for cut in CUTS:
        for name, method in METHODS.items():
            for asked in ASKED:
                if asked.penalty in method.penalties:
                    yield UnlikeSetting(*cut, name, *asked)


def setting_fingerprint(setting: UnlikeSetting) -> str:
    """Of the surrogates' settings, their defaults included, or the grid of fair releases."""
    if setting.method == "fair":
        return fingerprint(GRID)
    if (config := CONFIGS.get(setting.method)) is None:
        return ""
    return fingerprint(surrogates_version(config.epsilon), config, LAMBDA_THETA, config.k_min)


@dataclass(frozen=True)
class Comparison(Experiment[UnlikeSetting, UnlikeValues]):
    """An experiment whose methods have numbers of seeds of their own, at most."""

    def missing(
        self,
        runs: Iterable[Run[UnlikeSetting, UnlikeValues]],
        settings: Sequence[UnlikeSetting],
        seeds: int | None,
    ) -> list[tuple[UnlikeSetting, int]]:
        """See :meth:`benchmarks.harness.Experiment.missing`."""
        wanted = super().missing(runs, settings, seeds)
        return [(one, seed) for one, seed in wanted if seed < METHODS[one.method].seeds]


UNLIKE = Comparison(
    name="runs",
    settings=tuple(settings_of_all()),
    run=run_unlike,
    summary=show,
    smoke=tuple(one for one in settings_of_all() if one[:3] == ("law_school_race", 4, "0.3")),
    seeds=10,
    sources=lambda setting: SOURCES[TASKS[setting.task][0]],
    fingerprint=setting_fingerprint,
)
