"""Clients that are biased differently: fair on average, and unfair at each?

    python -m benchmarks.unlike_bias                # 3 seeds; goes on where it stopped

The two settings of FeDa4Fair (arXiv 2506.21095), on 20,000 rows of each table and eight clients,
cut by Dirichlet(5) on pairs of group and label, a third of each client's rows for testing. At each
client half of the positive labels of one group are denied, in training and test rows: of two
attributes by turns (attribute bias), or of the one group and the other of one attribute by turns
(value bias). Where a gap is asked for, it is that of one attribute, the least weight is looked for
that meets it on the rows that a method has, and the penalty is that of selection rates. A client's
gap is measured where two groups have 30 test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import NO_RUNS, Mean, Runs
from benchmarks.showing import COLORS, as_svg, legend, mark, page, panels
from synthfair import compare
from synthfair.compare import Federation, federate
from synthfair.data.datasets import SOURCES
from synthfair.data.partition import ClientTable
from synthfair.data.schema import Categorical
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.intervals import size
from synthfair.fairness.metrics import Scored
from synthfair.release.format import name_of
from synthfair.server.pooling import Pool, concatenated, make_pool, train_pool
from synthfair.surrogate import WeightedTable
from synthfair.surrogate.fair import ridge_of

TABLES = {
    "adult": ("sex", "race"),
    "dutch": ("sex", "marital_status"),
    "law_school": ("race", "male"),
}
"""Two attributes of each table."""

MAIN_VALUE = {"race": "White", "marital_status": "1"}
"""Of attributes of many values, the one that is a group of its own; all others are one, too."""

BIASES = {
    "attribute": "attribute bias: each other client against another attribute",
    "value": "value bias: each other client against another group of one attribute",
}

MOST_ROWS = 20_000
"""Of a larger table, so many rows are drawn."""

CLIENTS, SKEW, TEST_SHARE = 8, 5.0, 1 / 3
DENIED = 0.5
"""Share of the positive labels of a group that a client denies."""

GAP, CLIENT_GAP = 0.05, 0.1
"""The largest gap over all rows that is asked for, and, of one method, the largest of a client."""

WEIGHT = 10.0
"""Of FedAvg's penalty, which has no search for one."""

ROUNDS = {"rounds": 1000, "learning_rate": 3.0, "multiplier_rate": 1.0}
"""Of FPFL, whose tolerance is half of :data:`GAP`: rates may differ so much from all rows'."""

LIMIT = 0.1
"""The gap above which a client counts as treated unfairly, if its interval lies there."""


class BiasSetting(NamedTuple):
    """One of :data:`TABLES`, of :data:`BIASES`, an attribute, and one of :data:`METHODS`."""

    table: str
    bias: str
    asked: str
    method: str


class BiasValues(NamedTuple):
    """On the test rows of all clients, and what it took.

    Attributes:
        accuracy: by the labels as they are, some denied.
        before: by the labels before some were denied.
        gap: size of SPD over all rows, by the attribute asked for.
        client_gap: the largest size of a client's SPD.
        unfair: clients whose SPD is clearly above :data:`LIMIT`, by intervals that hold together.
        other_gap: as ``gap``, by the other attribute.
        other_client_gap: as ``client_gap``, by the other attribute.
        other_unfair: as ``unfair``, by the other attribute.
        rho: weight of the penalty, as given or found.
        seconds: of all clients and the server, one after the other.
        converged: whether training met its tolerance.
    """

    accuracy: float
    before: float
    gap: float
    client_gap: float
    unfair: int
    other_gap: float
    other_client_gap: float
    other_unfair: int
    rho: float = 0.0
    seconds: float = 0.0
    converged: bool = True


# Biased clients


class BiasedClients(NamedTuple):
    """Eight clients.

    Attributes:
        tables: their rows, some labels denied.
        by: the same encoded, with each of two attributes as the sensitive one.
        before: [N] labels of all test rows before some were denied, -1 or +1.
    """

    tables: list[ClientTable]
    by: dict[str, Federation]
    before: np.ndarray


def two_groups(table: pd.DataFrame, schema: sf.Schema) -> tuple[pd.DataFrame, sf.Schema]:
    """Attributes of many values have two groups: a main value, and all others."""
    columns = dict(schema.columns)
    for name, value in MAIN_VALUE.items():
        if len(getattr(columns.get(name), "categories", ())) != 2 and name in columns:
            columns[name] = Categorical(categories=("other", value))
            table = table.assign(**{name: table[name].where(table[name] == value, "other")})
    return table, sf.Schema.model_validate(schema.model_dump() | {"columns": columns})


def denied(table: pd.DataFrame, schema: sf.Schema, group: int, seed: int) -> pd.DataFrame:
    """Return a table in which a share of one group's positive labels is made negative."""
    _, s, y = sf.encode(table, schema)
    positive = np.flatnonzero((y > 0) & (s == group))
    rng = np.random.default_rng(seed)
    some = rng.choice(positive, round(DENIED * len(positive)), replace=False)
    label = table[schema.label].to_numpy().copy()
    label[some] = label[np.flatnonzero(y < 0)[0]]
    return table.assign(**{schema.label: label})


@lru_cache(maxsize=1)
def biased(name: str, bias: str, seed: int) -> BiasedClients:
    """Return the clients of a table, each with some labels denied."""
    jax.clear_caches()  # each number of rows is compiled for
    table, first = two_groups(*sf.load_dataset(name, TABLES[name][0]))
    table = table.sample(min(len(table), MOST_ROWS), random_state=seed)
    schemas = {attribute: first.with_sensitive(attribute) for attribute in TABLES[name]}
    lesser = {}
    for attribute, schema in schemas.items():
        _, s, y = sf.encode(table, schema)
        lesser[attribute] = int(np.argmin([np.mean(y[s == group]) for group in (0, 1)]))
    tables, before = [], []
    parts = sf.partition(
        table, clients=CLIENTS, seed=seed, skew=SKEW, schema=first, min_rows=5,
        test_fraction=TEST_SHARE,
    )  # fmt: skip
    for i, part in enumerate(parts):
        attribute = TABLES[name][i % 2 if bias == "attribute" else 0]
        group = lesser[attribute] if bias == "attribute" else i % 2
        before.append(sf.encode(part.test, first).y)
        sides = (denied(side, schemas[attribute], group, seed + i) for side in part)
        tables.append(ClientTable(*sides))
    by = {attribute: federate(tables, schema) for attribute, schema in schemas.items()}
    return BiasedClients(tables, by, np.concatenate(before))


# Methods: scores of each client's test rows, the weight, and whether training converged

Trained = tuple[list[np.ndarray], float, bool]


def constant(here: BiasedClients, asked: str, seed: int, *, smoke: bool) -> Trained:
    """Return scores for the more frequent label of all training rows; there is no penalty."""
    clients = here.by[asked]
    label = np.sign(np.concatenate([part.y for part in clients.train]).mean())
    return [np.full(len(part.y), label) for part in clients.test], 0.0, True


def scores_of(pool: Pool, clients: Federation) -> Trained:
    """Train on a pool; return test scores, the penalty's weight, and whether it converged."""
    model, point = train_pool(pool, clients.schema)
    assert point
    scores = [model.scores(part.x, part.s) for part in clients.test]
    return scores, point.price.rho, point.converged


def pool_of(parts: Sequence[sf.Encoded], max_gap: float | None) -> Pool:
    """Real rows in place of surrogates."""
    rows = concatenated(parts)
    own = WeightedTable(*rows, np.ones(len(rows.y))).rows(n_groups=1)
    ridge = ridge_of(sf.ServerConfig().C, *own.a.shape, intercept=True)
    config = sf.ServerConfig().model_copy(update={"rho": 0.0, "max_gap": max_gap})
    name, penalty = name_of(sf.LinearModel()), sf.SelectionRatePenalty()
    return Pool(own, {"all": slice(None)}, name, config, ridge, 2, penalty)


def central(
    here: BiasedClients, asked: str, seed: int, *, smoke: bool, max_gap: float | None = GAP
) -> Trained:
    """All training rows in one place."""
    clients = here.by[asked]
    return scores_of(pool_of(clients.train, max_gap), clients)


def alone(here: BiasedClients, asked: str, seed: int, *, smoke: bool) -> Trained:
    """Train a model for each client on its own rows; return scores, mean weight and convergence."""
    clients = here.by[asked]
    found = []
    for train, test in zip(clients.train, clients.test, strict=True):
        own = clients._replace(test=(test,))
        found.append(scores_of(pool_of([train], GAP), own))
    scores, weights, converged = zip(*found, strict=True)
    return [one for (one,) in scores], float(np.mean(weights)), all(converged)


def single_shot(
    here: BiasedClients, asked: str, seed: int, *, smoke: bool, each: float | None = None
) -> Trained:
    """Surrogates, and a limit on the gap of all rows, or on that of each client, too."""
    clients, releases = here.by[asked], {}
    config = sf.SurrogateConfig(seed=seed)
    for name, own in zip(clients.names, here.tables, strict=True):
        with suppress(sf.InputError):  # no pair of group and label has rows enough
            releases[name] = sf.distill_table(own.train, clients.schema, config).release
    server = sf.ServerConfig(max_gap=GAP, max_client_gap=each)
    return scores_of(make_pool(releases, clients.schema, server), clients)


def in_rounds(
    here: BiasedClients, asked: str, seed: int, *, smoke: bool, method: str, weight: float
) -> Trained:
    """As ``synthfair.compare`` has it; the clients are the users."""
    config = sf.DistillConfig(penalty="selection_rate", rho_o=weight, seed=seed)
    rounds = ROUNDS | ({"rounds": 5} if smoke else {})
    _, fitted = compare.run_method(
        method, here.by[asked], config, sf.ServerConfig(resamples=1), rounds=rounds
    )
    return [*map(np.asarray, fitted.scores)], weight, fitted.converged is not False


Method = Callable[..., Trained]
METHODS: Mapping[str, Method] = {
    "constant classifier": constant,
    "central, no penalty": partial(central, max_gap=None),
    "central": central,
    "single shot": single_shot,
    "single shot, each client": partial(single_shot, each=CLIENT_GAP),
    "FedAvg with penalty": partial(in_rounds, method="fedavg", weight=WEIGHT),
    "FPFL": partial(in_rounds, method="fpfl", weight=2 / GAP),
    "each client alone": alone,
}
"""By the name that they are shown under; of two groups, no rate is further than the gap from the
other where both are within half of it of all rows'."""

ONE_FOR_BOTH = ("constant classifier", "central, no penalty")
"""Methods of which nothing is asked."""


def run_bias(setting: BiasSetting, seed: int, *, smoke: bool) -> BiasValues:
    """One method on the clients of one seed."""
    here, start = biased(setting.table, setting.bias, seed), time.perf_counter()
    train = METHODS[setting.method]
    scores, rho, converged = train(here, setting.asked, seed, smoke=smoke)
    seconds = time.perf_counter() - start
    first, second = TABLES[setting.table]
    gaps: list[Any] = []
    for attribute in (setting.asked, second if setting.asked == first else first):
        clients = here.by[attribute]
        rows = {
            name: Scored(part.y, own, part.s)
            for name, part, own in zip(clients.names, clients.test, scores, strict=True)
        }
        found = evaluate_scores(rows, sf.ServerConfig(resamples=1), schema=clients.schema)
        sizes = [size(gap) for gap in found.client_gaps["spd"].values()]
        gaps.append(abs(found.overall["spd"].value))
        gaps.append(max(gap.value for gap in sizes))
        gaps.append(sum(gap.low > LIMIT for gap in sizes))
    decided = np.concatenate(scores) > 0
    y = np.concatenate([part.y for part in here.by[setting.asked].test])
    accuracy, before = (float(np.mean(decided == (label > 0))) for label in (y, here.before))
    values: list[Any] = [accuracy, before, *gaps, rho, round(seconds, 3), converged]
    return BiasValues(*values)


# The page


def show(runs: Runs) -> dict[str, str]:
    """Return the page with a table of each bias, and the plot, by file name."""
    parts: dict[str, Any] = {bias: list(bias_lines(runs.select(bias=bias))) for bias in BIASES}
    text = page(
        "unlike_bias/unlike_bias", runs, **parts, clients=CLIENTS, denied=f"{DENIED:.0%}", gap=GAP,
        client_gap=CLIENT_GAP, weight=WEIGHT, limit=LIMIT, costs=list(cost_lines(runs)),
    )  # fmt: skip
    return {"unlike_bias.md": text, "unlike_bias.svg": plot(runs)}


def bias_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Accuracy, gaps and unfair clients of every method, by the attribute that is asked for."""
    constants = runs.select(method="constant classifier").by("table")
    for (table, asked, method), own in runs.by("table", "asked", "method").items():
        plain = constants.get(table, NO_RUNS)
        known = bool(plain) and method != "constant classifier"
        worse = mark(own.mean("accuracy"), plain.mean("accuracy") if known else None)
        stars = " *" * (False in own.values("converged"))
        yield (
            table.replace("_", " "),
            "nothing" if method in ONE_FOR_BOTH else asked.replace("_", " "),
            f"{method}{stars}",
            f"{own.mean('accuracy').text('.3f')}{worse}",
            own.mean("before").text(".3f"),
            gaps_text(own),
            gaps_text(own, "other_"),
        )


def gaps_text(runs: Runs, prefix: str = "") -> str:
    """Gap over all rows / the largest of a client / clients that are treated unfairly."""
    gaps = (runs.mean(f"{prefix}{name}").text(".3f") for name in ("gap", "client_gap"))
    return f"{' / '.join(gaps)} / {runs.mean(f'{prefix}unfair').mean:.1f}"


def cost_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Yield lines of what a limit on each client's gap changes, on the same clients."""
    for (bias, table, asked), own in runs.by("bias", "table", "asked").items():
        each, plain = (own.select(method=m) for m in ("single shot, each client", "single shot"))
        changes: list[Mean] = [each.less(plain, v) for v in ("accuracy", "gap", "client_gap")]
        if changes[0].n:
            name = table.replace("_", " "), asked.replace("_", " ")
            yield bias, *name, *(change.text("+.3f") for change in changes)


def plot(runs: Runs) -> str:
    """Accuracy against the largest gap of a client, a panel for each bias and table."""
    panes = runs.by("bias", "table")
    figure, across = panels(len(runs.by("bias")), len(runs.by("table")), 12, 7)
    for axes, ((bias, table), here) in zip(across, panes.items(), strict=False):
        for i, method in enumerate(METHODS):
            for own in here.select(method=method).by("asked").values():
                point = own.mean("client_gap").mean, own.mean("accuracy").mean
                look: Any = {"color": COLORS[i % len(COLORS)], "marker": "osD^v<P*"[i]}
                label = method if own == here.select(method=method) else "_"
                first = own[0].setting.asked == TABLES[table][0]
                axes.plot(*point, **look, linestyle="", label=method if first else label)
        axes.axvline(CLIENT_GAP, color="0.7", linewidth=1, zorder=0)
        title = f"{table.replace('_', ' ')}, {bias} bias"
        axes.set(title=title, xlabel="largest size of a client's SPD", ylabel="accuracy")
    legend(figure, 4)
    return as_svg(figure)


@cache
def settings_of_all() -> tuple[BiasSetting, ...]:
    """All that is run; of value bias there is one attribute."""
    return tuple(
        BiasSetting(table, bias, asked, method)
        for table, attributes in TABLES.items()
        for bias in BIASES
        for asked in attributes[: 2 if bias == "attribute" else 1]
        for method in METHODS
        if asked == attributes[0] or method not in ONE_FOR_BOTH
    )


def behind(setting: BiasSetting) -> tuple[object, ...]:
    """All that clients and methods depend on."""
    given = MOST_ROWS, CLIENTS, SKEW, TEST_SHARE, DENIED, GAP, CLIENT_GAP, WEIGHT, LIMIT
    version = [surrogates_version(None)] if setting.method.startswith("single shot") else []
    return *given, ROUNDS, MAIN_VALUE, *version


UNLIKE_BIAS = Experiment(
    name="runs", settings=settings_of_all(), run=run_bias, summary=show,
    smoke=tuple(BiasSetting("law_school", "value", "race", method) for method in METHODS),
    seeds=3, sources=lambda setting: SOURCES[setting.table], behind=behind,
)  # fmt: skip

EXPERIMENTS = (UNLIKE_BIAS,)

if __name__ == "__main__":
    main(__doc__, "unlike_bias", *EXPERIMENTS)
