"""The methods that are compared: each trains on a federation, and scores its test rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.unlike.clients import Cut, federation, surrogates
from synthfair import compare
from synthfair.compare import Federation, Fitted
from synthfair.compare.federation import pooled
from synthfair.fairness.penalties import Penalty
from synthfair.surrogate import WeightedTable, train_fair

LAMBDA_THETA = sf.DistillConfig().lambda_theta
PENALTIES: dict[str, Penalty] = {
    "covariance": sf.CovariancePenalty(),
    "selection_rate": sf.SelectionRatePenalty(temperature=sf.DistillConfig().temperature),
}


class Asked(NamedTuple):
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
        clients_out: clients whose rows took no part.
        rows_out: training rows that took no part.
        client_seconds: of a client before it sends its file, the mean; 0 where it sends none.
        seconds: of all else.
        converged: whether training met its tolerance.
    """

    scores: np.ndarray
    clients_out: int = 0
    rows_out: int = 0
    client_seconds: float = 0.0
    seconds: float = 0.0
    converged: bool = True


def central(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """All training rows in one place, each of weight 1: what one upload is compared with."""
    del smoke
    clients = federation(cut)
    rows = pooled(clients.train)
    return trained(WeightedTable(*rows, np.ones(len(rows.y))), asked, clients)


def unpenalised(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """Central training without a penalty."""
    return central(cut, asked._replace(rho=0.0), smoke=smoke)


def from_surrogates(cut: Cut, asked: Asked, *, smoke: bool, kind: str = "surrogate") -> Scores:
    """The global problem on the surrogates of all clients."""
    del smoke
    sent = surrogates(cut, kind)
    found = trained(sent.table, asked, federation(cut))
    return found._replace(
        clients_out=sent.clients_out, rows_out=sent.rows_out, client_seconds=sent.seconds
    )


def from_fair_releases(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """Wu et al. (2024): each client distils its own fair model, and an ordinary one is pooled.

    Clients that the method refuses, those of one label or one group, send nothing.
    """
    clients, config = federation(cut), _distill_config(cut, asked, smoke=smoke)
    releases, rows_out, start = {}, 0, time.perf_counter()
    for i, real in enumerate(clients.train):
        try:
            (made,) = sf.distill_clients([real], clients.schema, config)
        except sf.InputError:
            rows_out += len(real.y)
            continue
        releases[f"client {i}"] = made.release
    sent = time.perf_counter()
    model = sf.pool_and_train(releases, clients.schema)
    test = pooled(clients.test)
    return Scores(
        model.scores(test.x, test.s),
        len(clients.train) - len(releases),
        rows_out,
        (sent - start) / len(clients.train),
        time.perf_counter() - sent,
        model.converged is not False,
    )


def fedavg(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """A thousand rounds, in which each client has the penalty on its own rows."""
    return _compared("fedavg", cut, asked, smoke=smoke)


def alone(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """Each client's own model, with the penalty, on its own test rows; measured over all rows."""
    return _compared("local", cut, asked, smoke=smoke)


def constant(cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    """The more frequent label of all training rows, for everyone."""
    del asked, smoke
    clients = federation(cut)
    label = 1.0 if pooled(clients.train).y.mean() > 0 else -1.0
    return Scores(np.full(sum(len(part.y) for part in clients.test), label))


def trained(table: WeightedTable, asked: Asked, clients: Federation) -> Scores:
    """The server's part on weighted rows."""
    test, start = pooled(clients.test), time.perf_counter()
    model, n_groups = sf.LinearModel(), clients.n_groups
    solution = train_fair(
        table.rows(n_groups=n_groups), LAMBDA_THETA, asked.rho,
        model=model, penalty=PENALTIES[asked.penalty],
    )  # fmt: skip
    converged = bool(solution.converged)
    seconds = time.perf_counter() - start
    a = WeightedTable(*test, np.ones(len(test.y))).rows(n_groups=n_groups).a
    scores = np.asarray(model.scores(solution.params, a))
    return Scores(scores, seconds=seconds, converged=converged)


def _compared(method: str, cut: Cut, asked: Asked, *, smoke: bool) -> Scores:
    start = time.perf_counter()
    config = _distill_config(cut, asked, smoke=smoke)
    fitted: Fitted = compare.METHODS[method](federation(cut), config)
    seconds = time.perf_counter() - start
    scores = np.concatenate(fitted.scores)
    return Scores(scores, seconds=seconds, converged=fitted.converged is not False)


def _distill_config(cut: Cut, asked: Asked, *, smoke: bool) -> sf.DistillConfig:
    """The headline recipe of configs/, with the penalty asked for."""
    return sf.DistillConfig.model_validate(
        {
            "penalty": asked.penalty, "rho_o": asked.rho, "n_synthetic": 800, "seed": cut.seed,
            **({"steps": 5} if smoke else {}),
        }
    )  # fmt: skip


class Method(NamedTuple):
    """A method and where it is run.

    Attributes:
        label: its name on the page.
        train: given a cut, what is asked for, and whether this is a smoke run.
        seeds: how many at most; those of central training are the most.
        penalties: which of :data:`PENALTIES` it is run with.
    """

    label: str
    train: Callable[..., Scores]
    seeds: int = 3
    penalties: tuple[str, ...] = ("covariance",)


BOTH = ("covariance", "selection_rate")
METHODS = {
    "central": Method("central", central, 10, BOTH),
    "surrogate": Method("surrogates", from_surrogates, 3, BOTH),
    "private": Method(
        "private surrogates, epsilon = 1", partial(from_surrogates, kind="private"), 3, BOTH
    ),
    "fair": Method("fair releases", from_fair_releases),
    "fedavg": Method("FedAvg", fedavg),
    "alone": Method("each client alone", alone),
    "unpenalised": Method("central, no penalty", unpenalised),
    "constant": Method("constant classifier", constant, 10),
}
"""By name."""
