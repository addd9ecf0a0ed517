"""Additive models from one upload: next to boosted trees, EBM, and fairlearn's reductions.

    python -m benchmarks.additive                   # 3 seeds; goes on where it stopped

Four clients, cut by Dirichlet(0.3) on pairs of group and label. Each sends a surrogate with the
defaults, without epsilon or with epsilon = 1. All learners are blind to the group, but for
thresholds by group, which need it to decide. Where a gap is asked for, the weight of the penalty,
or fairlearn's bound, is chosen on the rows that a learner has.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import NO_RUNS, Run, Runs
from benchmarks.showing import COLORS, as_svg, legend, page, pair_text, panels
from benchmarks.unlike.clients import CONFIGS, TASKS, accuracy_and_spd, weighted
from benchmarks.unlike.training import PENALTIES, C
from synthfair.compare import Federation, federate
from synthfair.data.datasets import ADDITIVE, SOURCES
from synthfair.data.partition import ClientTable
from synthfair.fairness.penalties import SumPenalty
from synthfair.federated.exchange import Exchange, first_state
from synthfair.federated.exchange import refined as refined_model
from synthfair.federated.single_rows import UserRows
from synthfair.release.format import name_of
from synthfair.server.pooling import Pool, concatenated, make_pool, train_pool
from synthfair.surrogate.fair import Price, ridge_of

TABLES = ("dutch", "adult")
"""Of :data:`TASKS`."""

LEARNERS = {
    "linear": "linear",
    "additive": "additive",
    "trees": "boosted trees (HistGradientBoosting)",
    "reductions": "ExponentiatedGradient over boosted trees",
    "ebm": "EBM",
    "constant": "constant classifier",
}
"""By name; linear and additive models are ours, with the shipped schemas of these names."""

CENTRAL, EXACT, PRIVATE = "all rows", "surrogates", "surrogates, epsilon = 1"
REFINED, EXCHANGES = "surrogates and five exchanges", 5
KINDS = {EXACT: "surrogate", REFINED: "surrogate", PRIVATE: "private"}
"""What clients send, of :data:`CONFIGS`; else a learner has all training rows in one place."""

BAGS = 5
"""Outer bags of an EBM, of usually 14, as they take minutes."""

GAP, WEIGHT = 0.02, 10.0
"""The gap that is asked for, of thresholds by group, too; and the fixed weight of a penalty."""

ASKED = {
    "nothing": "nothing",
    "gap": f"gap of at most {GAP:g}",
    "thresholds": f"gap of at most {GAP:g}",
    "covariance": f"covariance, weight {WEIGHT:g}",
    "selection_rate": f"selection rate, weight {WEIGHT:g}",
}
"""What is asked of a learner."""


class AdditiveSetting(NamedTuple):
    """One of :data:`TABLES`; the rest are keys of what stands above."""

    table: str
    learner: str
    rows: str
    asked: str


class AdditiveValues(NamedTuple):
    """On all clients' test rows together, and what it took.

    Attributes:
        accuracy: of the decisions; of random ones, expected.
        spd: signed.
        rho: weight of the penalty, as given or found.
        client_seconds: of a client, the mean; compilation included.
        seconds: of training; after surrogates those of the exchanges.
        converged: whether it met its tolerance.
    """

    accuracy: float
    spd: float
    rho: float = 0.0
    client_seconds: float = 0.0
    seconds: float = 0.0
    converged: bool = True


class Split(NamedTuple):
    """The tables of four clients, and the same encoded, linear and additive."""

    parts: list[ClientTable]
    clients: dict[str, Federation]

    def features(self, part: str) -> pd.DataFrame:
        """Return the features of all clients' ``train`` or ``test`` rows, not encoded."""
        table = pd.concat([getattr(one, part) for one in self.parts])
        return table[list(self.clients["linear"].schema.features)]


@lru_cache(maxsize=1)
def split(name: str, seed: int) -> Split:
    """Return a table cut into four clients, and the same encoded, linear and additive."""
    jax.clear_caches()  # each number of rows is compiled for
    dataset, sensitive = TASKS[name]
    linear = "dutch_numbers" if dataset == "dutch" else dataset  # codes are numbers, as published
    table, schema = sf.load_dataset(linear, sensitive)
    _, additive = sf.load_dataset(dataset + ADDITIVE, sensitive)
    parts = sf.partition(table, clients=4, seed=seed, skew=0.3, schema=schema, min_rows=5)
    schemas = {"linear": schema, "additive": additive}
    return Split(parts, {key: federate(parts, one) for key, one in schemas.items()})


@lru_cache(maxsize=2)
def upload(cut: tuple[str, int], learner: str, kind: str) -> tuple[dict[str, sf.Release], float]:
    """Return the clients' surrogates by name, made once for all, and the mean seconds of one."""
    here, releases = split(*cut), {}
    clients, start = here.clients[learner], time.perf_counter()
    config = CONFIGS[kind].model_copy(update={"seed": cut[-1]})
    for name, own in zip(clients.names, here.parts, strict=True):
        with suppress(sf.InputError):  # no pair of group and label has rows enough
            releases[name] = sf.distill_table(own.train, clients.schema, config).release
    return releases, (time.perf_counter() - start) / len(here.parts)


def run_additive(setting: AdditiveSetting, seed: int, *, smoke: bool) -> AdditiveValues:
    """One learner on the rows of one split."""
    here = split(setting.table, seed)
    took: dict[str, Any] = {}
    if setting.rows in KINDS:
        _, seconds = upload((setting.table, seed), setting.learner, KINDS[setting.rows])
        took = {"client_seconds": round(seconds, 3)}
    start = time.perf_counter()
    if setting.learner in here.clients:
        chance, more = ours(setting, seed)
        took |= more
    else:
        chance = OTHERS[setting.learner](here, setting, seed, smoke=smoke)
    took["seconds"] = round(time.perf_counter() - start, 3)
    accuracy, spd = accuracy_and_spd(here.clients["linear"], chance)
    return AdditiveValues(round(accuracy, 6), round(spd, 6), **took)


def ours(setting: AdditiveSetting, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """[N_test] chances of the decision +1 of a linear or additive model, and how it was trained."""
    test = concatenated(split(setting.table, seed).clients[setting.learner].test)
    model, price = trained(setting, seed)
    if setting.asked == "thresholds":
        releases, _ = upload((setting.table, seed), setting.learner, KINDS[setting.rows])
        histogram = sf.postprocess.surrogate_histogram(releases, model)
        choice = sf.postprocess.choose_decision(histogram, "statistical_parity", GAP)
        model = model.model_copy(update={"decision": choice.decision})
    chance = model.probabilities(model.scores(test.x, test.s), test.s)
    return chance, {"rho": price.rho, "converged": model.converged is not False}


@lru_cache(maxsize=8)
def trained(setting: AdditiveSetting, seed: int) -> tuple[sf.TrainedModel, Price]:
    """Return a linear or additive model, and the price of a gap, as given or as found."""
    clients = split(setting.table, seed).clients[setting.learner]
    schema, n_groups = clients.schema, clients.n_groups
    fixed = setting.asked in PENALTIES
    penalty = setting.asked if fixed else "selection_rate"
    rows = weighted(concatenated(clients.train)).rows(n_groups=1)
    if setting.rows == REFINED:
        model, price = trained(setting._replace(rows=EXACT), seed)
        return refined(model, rows, PENALTIES[penalty], price), price
    if setting.rows == CENTRAL:
        ridge = ridge_of(C, *rows.a.shape, intercept=True)
        name, every = name_of(sf.LinearModel()), {"all": slice(None)}
        pool = Pool(rows, every, name, sf.ServerConfig(), ridge, n_groups, PENALTIES[penalty])
    else:
        releases, _ = upload((setting.table, seed), setting.learner, KINDS[setting.rows])
        config = sf.ServerConfig.model_validate({"penalty": penalty})
        pool = make_pool(releases, schema, config)

    asked = {"rho": WEIGHT if fixed else 0.0, "max_gap": GAP if setting.asked == "gap" else None}
    pool = pool._replace(config=pool.config.model_copy(update=asked))
    model, point = train_pool(pool, schema)
    assert point
    return model, point.price


def refined(
    model: sf.TrainedModel, rows: sf.Rows, penalty: SumPenalty, price: Price
) -> sf.TrainedModel:
    """Return a model after exchanges; the clients' sums are those over all their rows."""
    every = UserRows(rows.a, rows.s[:, None], rows.y, rows.weight)
    exchange = Exchange(penalty, price.rho, C, price.free)
    state = first_state(np.asarray(model.theta))
    for _ in range(EXCHANGES):
        state, _ = exchange.update(state, exchange.report(state, every))
    return refined_model(model, state)


# Other learners, on all rows in one place


def trees(here: Split, setting: AdditiveSetting, seed: int, *, smoke: bool) -> np.ndarray:
    """[N_test] decisions of boosted trees without a notion of fairness."""
    x, _, y = concatenated(here.clients["linear"].train)
    learner = boosted(seed, smoke=smoke).fit(x, y)
    return (learner.predict(concatenated(here.clients["linear"].test).x) > 0).astype(float)


def reductions(here: Split, setting: AdditiveSetting, seed: int, *, smoke: bool) -> np.ndarray:
    """[N_test] chances of the decision +1 of fairlearn's, Agarwal et al. (2018).

    Its bound is of a group's rate to that of all rows: of two groups, the gap times the share of
    the other group.
    """
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    clients = here.clients["linear"]
    x, s, y = concatenated(clients.train)
    bound = GAP * max(s.mean(), 1 - s.mean())
    parity, most = DemographicParity(difference_bound=bound), 2 if smoke else 50
    fair = ExponentiatedGradient(boosted(seed, smoke=smoke), parity, max_iter=most)
    with warnings.catch_warnings():  # fairlearn writes to pandas in a way that pandas will give up
        warnings.simplefilter("ignore", DeprecationWarning)
        fair.fit(x, (y > 0).astype(int), sensitive_features=s)
    parts = zip(fair.weights_, fair.predictors_, strict=True)
    test = concatenated(clients.test).x
    return np.sum([share * part.predict(test) for share, part in parts if share], axis=0)


def boosted(seed: int, *, smoke: bool) -> Any:
    """Boosted trees, scikit-learn's with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed, max_iter=2 if smoke else 100)


def ebm(here: Split, setting: AdditiveSetting, seed: int, *, smoke: bool) -> np.ndarray:
    """[N_test] decisions of interpret's, with fewer bags and the columns as they are.

    Thresholds by group are those of our postprocess, on the scores of the training rows.
    """
    clients = here.clients["linear"]
    train, test = concatenated(clients.train), concatenated(clients.test)
    learner = ebm_of(setting.table, seed, smoke=smoke)
    scores = learner.decision_function(here.features("test"))
    if setting.asked == "nothing":
        return (scores > 0).astype(float)
    own = learner.decision_function(here.features("train"))
    return by_thresholds(clients, (own, train.s, train.y), (scores, test.s))


def by_thresholds(
    clients: Federation,
    train: tuple[np.ndarray, np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """[N_test] chances of the decision +1 by group, of scores and groups of test rows.

    The thresholds are chosen on scores, groups and labels of training rows.
    """
    scores, s, y = train
    bins = sf.postprocess.score_bins(scores, 101)
    counts = sf.postprocess.count_scores(bins, s, y, clients.n_groups, 101)
    histogram = sf.postprocess.ScoreHistogram(
        schema_hash=clients.schema.hash, model="0" * 64, counts=counts.tolist(),
        groups=tuple(map(str, clients.schema.groups)),
    )  # fmt: skip
    choice = sf.postprocess.choose_decision(histogram, "statistical_parity", GAP)
    return choice.decision.probabilities(*test)


@lru_cache(maxsize=1)
def ebm_of(name: str, seed: int, *, smoke: bool) -> Any:
    """Return an EBM that is fitted to a split's training rows."""
    from interpret.glassbox import (  # pyright: ignore[reportMissingImports]
        ExplainableBoostingClassifier,
    )

    here = split(name, seed)
    few: dict[str, Any] = {"outer_bags": BAGS}
    if smoke:
        few = {"max_rounds": 2, "outer_bags": 1, "interactions": 0}
    learner = ExplainableBoostingClassifier(random_state=seed, n_jobs=1, **few)
    return learner.fit(here.features("train"), concatenated(here.clients["linear"].train).y > 0)


def constant(here: Split, setting: AdditiveSetting, seed: int, *, smoke: bool) -> np.ndarray:
    """[N_test] decisions for the more frequent label of all training rows."""
    label = concatenated(here.clients["linear"].train).y.mean() > 0
    return np.full(len(concatenated(here.clients["linear"].test).y), float(label))


OTHERS = {"trees": trees, "reductions": reductions, "ebm": ebm, "constant": constant}
"""How other learners than ours are trained."""


# The page


def show(runs: Runs) -> dict[str, str]:
    """Return the page of all settings, and the plot, by file name."""
    text = page("additive/additive", runs, gap=GAP, lines=all_lines(runs))
    return {"additive.md": text, "additive.svg": plot(runs)}


def label_of(setting: AdditiveSetting) -> str:
    """Return words for the learner and its rows; and for thresholds by group, if it has them."""
    label = LEARNERS[setting.learner]
    label += f", {setting.rows}" * (setting.learner in ("linear", "additive"))
    return label + ", thresholds by group" * (setting.asked == "thresholds")


def all_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Accuracy / SPD on both tables, and seconds, of everything that is asked of every learner."""
    constants = runs.select(learner="constant").by("table")
    for own in runs.by("asked", "learner", "rows").values():
        setting, cells, took = own[0].setting, [], []
        for name in TABLES:
            here = own.select(table=name)
            text = pair_text(here, constants=constants.get(name, NO_RUNS), form=".4f")
            cells.append(text + " *" * (False in here.values("converged")))
            spent = [here.mean(value).mean for value in ("client_seconds", "seconds")]
            took.append(f"{spent[0]:.1f} + {spent[1]:.1f}" if here else "")
        yield ASKED[setting.asked], label_of(setting), *cells, *took


def plot(runs: Runs) -> str:
    """Accuracy against |SPD|, a panel for each table and a line for each learner and its rows."""
    figure, across = panels(1, len(TABLES), 9, 4.5)
    curves: dict[str, list[Run]] = {}
    for run in runs:
        if run.setting.asked != "covariance":  # another penalty's frontier
            curves.setdefault(label_of(run.setting), []).append(run)
    for axes, name in zip(across, TABLES, strict=True):
        for i, (label, every) in enumerate(curves.items()):
            # Mean sizes of SPDs: their signs would cancel.
            points = sorted(
                (float(np.mean(np.abs(own.values("spd")))), own.mean("accuracy").mean)
                for own in Runs(every).select(table=name).by().values()
            )
            look: Any = {"color": COLORS[i % len(COLORS)], "marker": "osD^vPX*<>p"[i % 11]}
            axes.plot(*np.reshape(points, (-1, 2)).T, label=label, linewidth=1, **look)
        axes.set(title=name, xlabel="mean size of the SPD", ylabel="accuracy")
    legend(figure, 2)
    return as_svg(figure)


def settings_of_all() -> Iterator[AdditiveSetting]:
    """Yield the settings, a split's one after the other, those that share surrogates together."""
    for name in TABLES:
        for learner, kind, *wishes in (
            ("constant", CENTRAL, "nothing"),
            ("linear", CENTRAL, "nothing", "gap", "selection_rate"),
            ("additive", CENTRAL, "nothing", "gap", *PENALTIES),
            ("linear", EXACT, "gap", "thresholds"),
            ("additive", EXACT, "gap", "thresholds", *PENALTIES),
            ("additive", REFINED, "gap", *PENALTIES),
            ("additive", PRIVATE, *PENALTIES),
            ("trees", CENTRAL, "nothing"),
            ("ebm", CENTRAL, "nothing", "thresholds"),
            ("reductions", CENTRAL, "gap"),
        ):
            for asked in wishes:
                yield AdditiveSetting(name, learner, kind, asked)


def behind(setting: AdditiveSetting) -> tuple[object, ...]:
    """Return what a run depends on: the settings of surrogates and server."""
    given = GAP, WEIGHT, C
    if setting.rows not in KINDS:
        return given
    config = CONFIGS[KINDS[setting.rows]]
    return *given, surrogates_version(config.epsilon), config, config.k_min


ADDITIVE_MODELS = Experiment(
    name="runs", settings=tuple(settings_of_all()), run=run_additive, summary=show,
    smoke=(
        AdditiveSetting("dutch", "additive", EXACT, "thresholds"),
        AdditiveSetting("dutch", "additive", CENTRAL, "selection_rate"),
        AdditiveSetting("dutch", "reductions", CENTRAL, "gap"),
    ),
    seeds=3, sources=lambda setting: SOURCES[TASKS[setting.table][0]], behind=behind,
)  # fmt: skip

EXPERIMENTS = (ADDITIVE_MODELS,)

if __name__ == "__main__":
    main(__doc__, "additive", *EXPERIMENTS)
