"""The methods that are compared: each trains on a federation, and scores its test rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import surrogates_version
from benchmarks.unlike.clients import (
    CONFIGS,
    Cut,
    accuracy_and_spd,
    federation,
    surrogates,
    weighted,
)
from synthfair import compare
from synthfair.compare import Federation
from synthfair.fairness.penalties import SumPenalty
from synthfair.privacy.guarantee import FEATURE_GRID
from synthfair.server.pooling import concatenated
from synthfair.surrogate import GlobalProblem, WeightedTable
from synthfair.surrogate.fair import ridge_of

C = sf.ServerConfig().C
PENALTIES: dict[str, SumPenalty] = {
    "covariance": sf.CovariancePenalty(),
    "selection_rate": sf.SelectionRatePenalty(temperature=sf.DistillConfig().temperature),
}


class Weight(NamedTuple):
    """What the server asks for.

    Attributes:
        penalty: of :data:`PENALTIES`.
        rho: its weight.
    """

    penalty: str
    rho: float


class Scores(NamedTuple):
    """What a method makes of a federation.

    Attributes:
        scores: [N] of the test rows of all clients, one client after the other.

    The others are those of :class:`UnlikeValues`.
    """

    scores: np.ndarray
    clients_out: int = 0
    rows_out: int = 0
    client_seconds: float = 0.0
    seconds: float = 0.0
    converged: bool = True


def central(cut: Cut, weight: Weight, *, smoke: bool) -> Scores:
    """All training rows in one place, each of weight 1: what one upload is compared with."""
    clients = federation(cut)
    return trained(weighted(concatenated(clients.train)), weight, clients)


def unpenalised(cut: Cut, weight: Weight, *, smoke: bool) -> Scores:
    """Central training without a penalty."""
    return central(cut, weight._replace(rho=0.0), smoke=smoke)


def from_surrogates(cut: Cut, weight: Weight, *, smoke: bool, kind: str = "surrogate") -> Scores:
    """Return test scores of the model that the server trains on all clients' surrogates."""
    sent = surrogates(cut, CONFIGS[kind].epsilon)
    return trained(sent.table, weight, federation(cut))._replace(
        clients_out=sent.clients_out, rows_out=sent.rows_out, client_seconds=sent.seconds
    )


def from_fair_releases(cut: Cut, weight: Weight, *, smoke: bool, **private: float) -> Scores:
    """Wu et al. (2024): each client distils its own fair model, and an ordinary one is pooled.

    Clients that the method refuses, those of one label or one group, send nothing. Private releases
    have an epsilon and a delta.
    """
    clients, config = federation(cut), _distill_config(cut, weight, smoke=smoke, **private)
    releases, rows_out, start = {}, 0, time.perf_counter()
    for i, real in enumerate(clients.train):
        try:
            distillation = sf.distill_table(real, clients.schema, config)
        except sf.InputError:
            rows_out += len(real.y)
            continue
        releases[f"client {i}"] = distillation.release
    sent = time.perf_counter()
    model, test = sf.pool_and_train(releases, clients.schema), concatenated(clients.test)
    return Scores(
        model.scores(test.x, test.s),
        len(clients.train) - len(releases),
        rows_out,
        (sent - start) / len(clients.train),
        time.perf_counter() - sent,
        model.converged is not False,
    )


def constant(cut: Cut, weight: Weight, *, smoke: bool) -> Scores:
    """Return scores that decide for the more frequent label of all training rows, for everyone."""
    clients = federation(cut)
    label = 1.0 if concatenated(clients.train).y.mean() > 0 else -1.0
    return Scores(np.full(sum(len(part.y) for part in clients.test), label))


def problem_of(table: WeightedTable, penalty: str) -> GlobalProblem:
    """Return the server's problem on weighted rows, of a model that does not read the group."""
    a = table.rows(n_groups=1).a
    ridge = ridge_of(C, float(table.weight.sum()), a.shape[1], intercept=True)
    return GlobalProblem(a, table.s, table.y, table.weight, PENALTIES[penalty], ridge)


def trained(table: WeightedTable, weight: Weight, clients: Federation) -> Scores:
    """Return test scores of the server's model of weighted rows, and the seconds it took."""
    test, start = concatenated(clients.test), time.perf_counter()
    point = problem_of(table, weight.penalty).solve(weight.rho)
    seconds = time.perf_counter() - start
    scores = weighted(test).rows(n_groups=1).a @ point.theta
    return Scores(scores, seconds=seconds, converged=point.converged)


def by_compare(cut: Cut, weight: Weight, *, smoke: bool, method: str) -> Scores:
    """Return test scores of a method of :mod:`synthfair.compare`.

    fedavg has a thousand rounds, in which each client has the penalty on its own rows. local is
    each client's own model, with the penalty, on its own test rows; measured over all rows.
    """
    start = time.perf_counter()
    config = _distill_config(cut, weight, smoke=smoke)
    fitted = compare.COMPARED_METHODS[method](federation(cut), config)
    seconds = time.perf_counter() - start
    converged = fitted.converged is not False
    return Scores(np.concatenate(fitted.scores), seconds=seconds, converged=converged)


def _distill_config(cut: Cut, weight: Weight, *, smoke: bool, **private: float) -> sf.DistillConfig:
    """Return the headline recipe of configs/, with the penalty asked for."""
    steps = {"steps": 5} if smoke else {}
    given = {"penalty": weight.penalty, "rho_o": weight.rho, "n_synthetic": 800, "seed": cut.seed}
    return sf.DistillConfig.model_validate(given | steps | private)


class Method(NamedTuple):
    """A method and where it is run.

    Attributes:
        label: its name on the page.
        train: given a cut, what is asked for, and whether this is a smoke run.
        penalties: which of :data:`PENALTIES` it is run with.
    """

    label: str
    train: Callable[..., Scores]
    penalties: tuple[str, ...] = ("covariance",)


BOTH = ("covariance", "selection_rate")
PRIVATE = partial(from_surrogates, kind="private")
METHODS = {
    "central": Method("central", central, BOTH),
    "surrogate": Method("surrogates", from_surrogates, BOTH),
    "private": Method("private surrogates, epsilon = 1", PRIVATE, BOTH),
    "fair": Method("fair releases", from_fair_releases),
    "fedavg": Method("FedAvg", partial(by_compare, method="fedavg")),
    "alone": Method("each client alone", partial(by_compare, method="local")),
    "unpenalised": Method("central, no penalty", unpenalised),
    "constant": Method("constant classifier", constant),
}
"""By name."""

# The settings, and how one of them is run

MAIN = Weight("covariance", 10.0)
WEIGHTS = (MAIN, Weight("selection_rate", 10.0), Weight("selection_rate", 100.0))

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
        client_seconds: of a client before it sends its file, the mean; compilation included. 0
            where it sends none.
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
    weight = Weight(setting.penalty, setting.rho)
    scores, *out, client_seconds, seconds, converged = METHODS[setting.method].train(
        cut, weight, smoke=smoke
    )
    accuracy, spd = accuracy_and_spd(federation(cut), (scores > 0).astype(float))
    times = round(client_seconds, 3), round(seconds, 3)
    return UnlikeValues._make((round(accuracy, 6), round(spd, 6), *out, *times, converged))


def settings_of_all() -> Iterator[UnlikeSetting]:
    """Yield the settings, a cut's one after the other, so that its surrogates are made once."""
    for cut in CUTS:
        for name, method in METHODS.items():
            for weight in WEIGHTS:
                if weight.penalty in method.penalties:
                    yield UnlikeSetting(*cut, name, *weight)


def behind(setting: UnlikeSetting) -> tuple[object, ...] | None:
    """Return the settings of the surrogates, defaults included, or the grid of fair releases."""
    if setting.method == "fair":
        return (FEATURE_GRID,)
    if (config := CONFIGS.get(setting.method)) is None:
        return None
    return surrogates_version(config.epsilon), config, C, config.k_min
