"""Surrogates that are records, of unlike clients: next to central training, and for any learner.

    python -m benchmarks.records                    # 3 seeds; goes on where it stopped

Four clients, cut by Dirichlet(0.3) on pairs of group and label. Each sends a surrogate with the
defaults, without epsilon or with epsilon = 1. Linear models have the server's penalty with weight
10; boosted trees and fairlearn's reductions are trained on the pooled records.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.harness import RESULTS, Experiment, main, surrogates_version
from benchmarks.runs import NO_RUNS, Runs
from benchmarks.showing import page, pair_text
from benchmarks.unlike.clients import TASKS, accuracy_and_spd, weighted
from benchmarks.unlike.pages import Difference, difference
from benchmarks.unlike.training import PENALTIES, C, problem_of
from synthfair.compare import Federation, federate
from synthfair.data.datasets import SOURCES
from synthfair.data.schema import Numeric
from synthfair.server.pooling import concatenated

TABLES = ("dutch", "law_school_race", "bank", "adult")
"""Of :data:`TASKS`."""

ENCODINGS = ("linear", "one-hot")
"""The shipped schema, and that of :func:`one_hot`."""

MOST_VALUES = 32
"""Of a column of whole numbers that is one-hot."""

CENTRAL, EXACT, PRIVATE = "all rows", "records", "records, epsilon = 1"
CONFIGS = {EXACT: sf.SurrogateConfig(), PRIVATE: sf.SurrogateConfig(epsilon=1.0, delta=1e-6)}
"""What the clients' surrogates are made with; else a learner has all training rows."""

RHO = 10.0
LEARNERS = {
    "covariance": "linear, covariance",
    "selection_rate": "linear, selection rate",
    "linear": "linear, no penalty",
    "trees": "boosted trees, no penalty",
    "reductions": "exponentiated gradient over boosted trees",
    "constant": "constant classifier",
}
"""By name; the last decides the more frequent label."""


class RecordSetting(NamedTuple):
    """One of :data:`TABLES`, :data:`ENCODINGS`, and :data:`LEARNERS`, and the rows it learns on."""

    table: str
    encoding: str
    rows: str
    learner: str


class RecordValues(NamedTuple):
    """On all clients' test rows together, and what it took.

    Attributes:
        accuracy: of the decisions; of random ones, expected.
        spd: signed.
        clients_out: clients that can send nothing.
        weight: sum of the records' weights, as a share of the number of training rows.
        records: number of them in the pool.
        client_seconds: of a client, the mean; compilation included.
        seconds: of training.
        converged: whether it met its tolerance.
    """

    accuracy: float
    spd: float
    clients_out: int = 0
    weight: float = 1.0
    records: int = 0
    client_seconds: float = 0.0
    seconds: float = 0.0
    converged: bool = True


def one_hot(table: pd.DataFrame, schema: sf.Schema) -> sf.Schema:
    """Return the schema with codes as categories.

    These are columns of whole numbers of which the public table has at most :data:`MOST_VALUES`.
    """
    body = schema.model_dump()
    for name, column in schema.columns.items():
        if isinstance(column, Numeric):
            values = np.unique(table[name].astype(float))
            if len(values) <= MOST_VALUES and not (values % 1).any():
                codes = [*map(int, values)]
                body["columns"][name] = {"kind": "categorical", "categories": codes}
    return sf.Schema.model_validate(body)


@lru_cache(maxsize=1)
def clients_of(name: str, encoding: str, seed: int) -> tuple[list[pd.DataFrame], Federation]:
    """Return the training tables of four clients; and the same with the test rows, encoded."""
    jax.clear_caches()  # each number of rows is compiled for
    table, schema = sf.load_dataset(*TASKS[name])
    if encoding == "one-hot":
        schema = one_hot(table, schema)
    parts = sf.partition(table, clients=4, seed=seed, skew=0.3, schema=schema, min_rows=5)
    return [part.train for part in parts], federate(parts, schema)


class Upload(NamedTuple):
    """The clients' releases by name, the records in them, and a client's mean seconds."""

    releases: dict[str, sf.Release]
    records: pd.DataFrame
    weight: np.ndarray
    seconds: float


@lru_cache(maxsize=1)
def upload(cut: tuple[str, str, int], epsilon: float | None) -> Upload:
    """Surrogates of all clients that can make one, with one of :data:`CONFIGS` and this epsilon."""
    tables, clients = clients_of(*cut)
    usual = CONFIGS[PRIVATE if epsilon else EXACT]
    config = usual.model_copy(update={"epsilon": epsilon, "seed": cut[-1]})
    releases, start = {}, time.perf_counter()
    for name, own in zip(clients.names, tables, strict=True):
        with suppress(sf.InputError):  # no pair of group and label has rows enough
            releases[name] = sf.distill_table(own, clients.schema, config).release
    seconds = (time.perf_counter() - start) / len(tables)
    return Upload(releases, *sf.pool_records(releases, clients.schema), seconds)


def run_records(setting: RecordSetting, seed: int, *, smoke: bool) -> RecordValues:
    """One learner on the rows of one split."""
    cut = setting.table, setting.encoding, seed
    clients = clients_of(*cut)[1]
    sent = None if setting.rows == CENTRAL else upload(cut, CONFIGS[setting.rows].epsilon)
    start, converged = time.perf_counter(), True
    if setting.learner in ("linear", *PENALTIES):
        chance, converged = linear(setting.learner, clients, sent)
    else:
        chance = LEARNING[setting.learner](clients, sent, smoke=smoke)
    seconds = time.perf_counter() - start
    took: dict[str, Any] = {"seconds": round(seconds, 3), "converged": bool(converged)}
    if sent is not None:
        n = sum(len(part.y) for part in clients.train)
        took |= {
            "clients_out": len(clients.names) - len(sent.releases),
            "weight": round(float(sent.weight.sum()) / n, 4),
            "records": len(sent.weight),
            "client_seconds": round(sent.seconds, 3),
        }
    accuracy, spd = accuracy_and_spd(clients, chance)
    return RecordValues(round(accuracy, 6), round(spd, 6), **took)


def linear(
    learner: str, clients: Federation, sent: Upload | None
) -> tuple[np.ndarray, bool | None]:
    """[N_test] decisions of the server's model, and whether its training met its tolerance."""
    test, rho = concatenated(clients.test), RHO if learner in PENALTIES else 0.0
    name = learner if rho else "covariance"
    if sent is not None:
        config = sf.ServerConfig.model_validate({"penalty": name, "rho": rho})
        model = sf.pool_and_train(sent.releases, clients.schema, config)
        return (model.scores(test.x, test.s) > 0).astype(float), model.converged
    point = problem_of(weighted(concatenated(clients.train)), name).solve(rho)
    return (weighted(test).rows(n_groups=1).a @ point.theta > 0).astype(float), point.converged


def trees(clients: Federation, sent: Upload | None, *, smoke: bool) -> np.ndarray:
    """[N_test] decisions of boosted trees, which read the records with their weights."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, _, y = (
        concatenated(clients.train) if sent is None else sf.encode(sent.records, clients.schema)
    )
    learner = HistGradientBoostingClassifier(random_state=0, max_iter=2 if smoke else 100)
    learner.fit(x, y, sample_weight=None if sent is None else sent.weight)
    return (learner.predict(concatenated(clients.test).x) > 0).astype(float)


def reductions(clients: Federation, sent: Upload | None, *, smoke: bool) -> np.ndarray:
    """[N_test] chances of the decision +1, by Agarwal et al. (2018) on records drawn by weight."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.ensemble import HistGradientBoostingClassifier

    train = concatenated(clients.train)
    if sent is not None:
        n, weight = round(sent.weight.sum()), sent.weight
        drawn = sent.records.sample(n, replace=True, weights=weight, random_state=0)
        train = sf.encode(drawn, clients.schema)
    learner = HistGradientBoostingClassifier(random_state=0, max_iter=2 if smoke else 40)
    parity, most = DemographicParity(difference_bound=0.01), 2 if smoke else 15
    fair = ExponentiatedGradient(learner, parity, max_iter=most)
    with warnings.catch_warnings():  # fairlearn writes to pandas in a way that pandas will give up
        warnings.simplefilter("ignore", DeprecationWarning)
        fair.fit(train.x, (train.y > 0).astype(int), sensitive_features=train.s)
    parts, x = zip(fair.weights_, fair.predictors_, strict=True), concatenated(clients.test).x
    return np.sum([share * part.predict(x) for share, part in parts if share], axis=0)


def constant(clients: Federation, sent: Upload | None, *, smoke: bool) -> np.ndarray:
    """[N_test] decisions for the more frequent label of all training rows."""
    label = concatenated(clients.train).y.mean() > 0
    return np.full(len(concatenated(clients.test).y), float(label))


LEARNING = {"trees": trees, "reductions": reductions, "constant": constant}
"""How other learners than linear ones are trained."""


# The page


def earlier_runs() -> Runs:
    """Return runs of earlier surrogates: rows moved until their sums agree with the client's."""
    return replace(RECORDS, file="moved_rows.csv").read(RESULTS / "records")


def show(runs: Runs) -> dict[str, str]:
    """Return the page by file name, with the differences to central training."""
    text = page(
        "records/records",
        runs,
        rho=RHO,
        most=MOST_VALUES,
        records=differences(runs, EXACT),
        private=differences(runs, PRIVATE),
        any_learner=any_learner_lines(runs),
    )
    return {"records.md": text}


Groups = dict[RecordSetting, Runs]


def differences(runs: Runs, kind: str) -> Iterator[str]:
    """Yield a line for each setting with this kind of rows, next to central training."""
    own, earlier = runs.by(), earlier_runs().by()
    for setting, mine in runs.select(rows=kind).by().items():
        constants = own.get(RecordSetting(setting.table, "linear", CENTRAL, "constant"), NO_RUNS)
        central = pair_text(own.get(setting._replace(rows=CENTRAL), NO_RUNS))
        label = LEARNERS[setting.learner] + " *" * (False in mine.values("converged"))
        yield (
            f"{setting.table} | {setting.encoding} | {label} | {central}"
            f" | {pair_text(mine, constants=constants)}"
            f" | {constants.mean('accuracy').text('.3f') if constants else ''}"
            f" | {off_text(setting, own)}"
            f" | {off_text(setting, earlier)} | {mine.mean('client_seconds').mean:.1f}"
            f" | {mine.mean('records').mean:.0f}"
        )


def off_of(setting: RecordSetting, own: Groups) -> Difference | None:
    """Difference to the same learner on all rows."""
    central = own.get(setting._replace(rows=CENTRAL), NO_RUNS)
    return difference(own.get(setting, NO_RUNS), central)


def off_text(setting: RecordSetting, own: Groups) -> str:
    """Signed mean and mean size of the accuracy's, mean size and largest of the SPD's."""
    if (off := off_of(setting, own)) is None:
        return ""
    mean = own[setting].less(own[setting._replace(rows=CENTRAL)], "accuracy").mean
    return f"{mean:+.4f} ({off.accuracy:.4f}) / {off.spd:.4f} ({off.spd_most:.4f})"


def any_learner_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Accuracy / SPD of each learner on all rows and on the records of one upload."""
    for name in ("dutch", "adult"):
        here = runs.select(encoding="linear", table=name)
        constants = here.select(learner="constant")
        for learner in ("linear", "trees", "reductions", "constant"):
            some = [here.select(learner=learner, rows=kind) for kind in (CENTRAL, EXACT, PRIVATE)]
            cells = (pair_text(own, constants=constants) for own in some)
            yield name, LEARNERS[learner], *cells


def settings_of_all() -> Iterator[RecordSetting]:
    """Yield the settings, a split's one after the other, so that its surrogates are made once."""
    for name in TABLES:
        yield RecordSetting(name, "linear", CENTRAL, "constant")
        for encoding in ENCODINGS:
            more = name in ("dutch", "adult") and encoding == "linear"
            for kind in (CENTRAL, *CONFIGS):
                for learner in (*PENALTIES, *(("linear", "trees", "reductions") if more else ())):
                    yield RecordSetting(name, encoding, kind, learner)


def behind(setting: RecordSetting) -> tuple[object, ...]:
    """Return what a run depends on: the settings of surrogates and server."""
    config = CONFIGS.get(setting.rows)
    of_client = (surrogates_version(config.epsilon), config, config.k_min) if config else ()
    return *of_client, RHO, MOST_VALUES, C


RECORDS = Experiment(
    name="runs", settings=tuple(settings_of_all()), run=run_records, summary=show,
    smoke=(
        RecordSetting("law_school_race", "one-hot", CENTRAL, "covariance"),
        RecordSetting("law_school_race", "one-hot", EXACT, "covariance"),
        RecordSetting("law_school_race", "one-hot", EXACT, "trees"),
        RecordSetting("law_school_race", "one-hot", EXACT, "reductions"),
    ),
    seeds=3, sources=lambda setting: SOURCES[TASKS[setting.table][0]], behind=behind,
)  # fmt: skip

EXPERIMENTS = (RECORDS,)

if __name__ == "__main__":
    main(__doc__, "records", *EXPERIMENTS)
