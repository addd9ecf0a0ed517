"""Clients that cannot be trusted: what a small trusted table at the server saves.

    python -m benchmarks.unreliable runs            # 3 seeds; goes on where it stopped

Eight clients with up to 2,000 rows each, cut at random; of 2 or 5 of them the rows are false. The
server has 200 rows of its own (``server --trusted``), which no client has; the rows that are left
are the test rows. The weight of the penalty and that of the method's own term are fixed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import NO_RUNS, Runs
from benchmarks.showing import COLORS, as_svg, legend, page, pair_text, panels
from benchmarks.unlike.clients import TASKS, weighted
from benchmarks.unlike.pages import difference
from benchmarks.unlike.training import C, problem_of
from synthfair.data.datasets import SOURCES
from synthfair.server.pooling import make_pool, train_pool
from synthfair.server.trust import MAX_PRIOR_MEDIANS, MIN_TRUST, PRIOR_WEIGHT

TABLES = ("dutch", "adult", "law_school_race")
"""Of :data:`TASKS`."""

RHO = 10.0
CONFIGS = {
    "surrogates": sf.SurrogateConfig(),
    "fair releases": sf.DistillConfig(penalty="covariance", rho_o=RHO),
}
"""What clients send."""

ASKED = {"surrogates": "selection_rate", "fair releases": "covariance"}
"""The penalty, of weight :data:`RHO`."""

CLIENTS, ROWS, TRUSTED = 8, 2000, 200

ATTACKS = {
    "swapped": "groups exchanged",
    "reversed": "labels reversed",
    "denied40": "40 % of one group's positives denied",
    "denied80": "80 % of one group's positives denied",
    "shuffled": "columns shuffled",
    "heavier": "groups exchanged, 19 times the rows",
}
"""What false rows are; shuffled columns are of another distribution."""

HONEST = "honest"
"""No attack."""

DEFENCES = {
    "none": "no defence",
    "trusted": "with trusted rows",
    "alone": "honest clients alone",
    "central": "all honest rows in one place",
    "constant": "constant classifier",
}
"""What is trained."""


class UnreliableSetting(NamedTuple):
    """A table, a kind of release, the attack of so many clients, and a defence."""

    table: str
    kind: str
    attack: str
    bad: int
    defence: str


class UnreliableValues(NamedTuple):
    """On test rows, and with trusted rows what the releases count.

    Attributes:
        accuracy: of the decisions.
        spd: signed.
        bad_weight: share of the bad clients in the weight of all rows.
        little: honest clients that hardly count.
        seconds: of the server.
    """

    accuracy: float
    spd: float
    bad_weight: float = 0.0
    little: int = 0
    seconds: float = 0.0


class Split(NamedTuple):
    """Rows of the clients, of the server, and of nobody."""

    schema: sf.Schema
    clients: list[pd.DataFrame]
    trusted: pd.DataFrame
    test: sf.Encoded


@lru_cache(maxsize=1)
def split(name: str, seed: int) -> Split:
    """Return a table cut at random into the rows of clients, trusted rows and test rows."""
    jax.clear_caches()
    table, schema = sf.load_dataset(*TASKS[name])
    table = table.sample(frac=1.0, random_state=seed)
    n = min(ROWS, int(0.7 * (len(table) - TRUSTED)) // CLIENTS)
    ends = TRUSTED + n * np.arange(CLIENTS + 1)
    clients = [table.iloc[slice(*pair)] for pair in pairwise(ends)]
    test = sf.encode(table.iloc[ends[-1] :], schema)
    return Split(schema, clients, table.iloc[:TRUSTED], test)


def attacked(table: pd.DataFrame, schema: sf.Schema, attack: str, seed: int) -> pd.DataFrame:
    """Return the rows of a client as an attack makes them; those of an honest one as they are."""
    rng, group, label = np.random.default_rng(seed), schema.sensitive, schema.label
    encoded, table = sf.encode(table, schema), table.copy()
    if attack in ("swapped", "heavier"):
        here = [table[group][encoded.s == i].iloc[0] for i in range(len(schema.groups))]
        table[group] = pd.Series(here).iloc[len(here) - 1 - encoded.s].to_numpy()
    elif attack == "shuffled":
        table = pd.DataFrame({name: rng.permutation(table[name].array) for name in table})
    elif attack != HONEST:
        y, decisions = encoded.y, [table[label][encoded.y == y].iloc[0] for y in (-1, 1)]
        if attack == "reversed":
            y = -y
        else:
            share = float(attack.removeprefix("denied")) / 100
            y = np.where((encoded.s == 0) & (rng.random(len(table)) < share), -1, y)
        table[label] = pd.Series(decisions).iloc[(y > 0).astype(int)].to_numpy()
    return table


@lru_cache(maxsize=8)
def upload(setting: UnreliableSetting, seed: int, *, smoke: bool) -> list[sf.Release]:
    """Releases of the clients that an attack makes bad, or with none of all."""
    here, releases = split(setting.table, seed), []
    for k, table in enumerate(here.clients[: setting.bad or CLIENTS]):
        few = {"steps": 5} if smoke and setting.kind == "fair releases" else {}
        config = CONFIGS[setting.kind].model_copy(update={"seed": k} | few)
        false = attacked(table, here.schema, setting.attack, 1000 * seed + k)
        release = sf.distill_table(false, here.schema, config).release
        if setting.attack == "heavier" and release.weight is not None:
            release = replace(release, weight=19 * release.weight)
        releases.append(release)
    return releases


def run_unreliable(setting: UnreliableSetting, seed: int, *, smoke: bool) -> UnreliableValues:
    """One federation."""
    _, kind, attack, bad, defence = setting
    here, start = split(setting.table, seed), time.perf_counter()
    x, s, y = here.test
    if defence in ("central", "constant"):
        rows = weighted(sf.encode(pd.concat(here.clients), here.schema))
        scores = np.full(len(y), rows.y.mean())
        if defence == "central":
            theta = problem_of(rows, ASKED[kind]).solve(RHO).theta
            scores = weighted(here.test).rows(n_groups=1).a @ theta
        values = {}
    else:
        sent = setting._replace(defence="")  # the same, whatever is done with them
        honest = upload(sent._replace(attack=HONEST, bad=0), seed, smoke=smoke)
        false = upload(sent, seed, smoke=smoke) if attack != HONEST else []
        releases = {f"client {k}": one for k, one in enumerate([*false, *honest[bad:]])}
        server = (
            sf.ServerConfig(penalty="selection_rate", rho=RHO) if kind == "surrogates" else None
        )
        start = time.perf_counter()
        trusted = here.trusted if defence == "trusted" else None
        pool = make_pool(releases, here.schema, server, trusted=trusted)
        trained, _ = train_pool(pool, here.schema)
        scores = trained.scores(x, s)
        sums = [float(np.sum(pool.weight[part])) for part in pool.parts.values()]
        values = {
            "bad_weight": round(sum(sums[: len(false)]) / sum(sums), 4),
            "little": sum(one < MIN_TRUST for one in [*pool.trust.values()][len(false) :]),
        }
    chosen = np.asarray(scores) > 0
    spd = chosen[s == 1].mean() - chosen[s == 0].mean()
    accuracy, seconds = np.mean(chosen == (y > 0)), time.perf_counter() - start
    return UnreliableValues(
        round(float(accuracy), 6), round(float(spd), 6), **values, seconds=round(seconds, 2)
    )


# The page


def show(runs: Runs) -> dict[str, str]:
    """Return the page of all settings, and the plot, by file name."""
    parts = {
        "lines": list(all_lines(runs)), "differences": difference_lines(runs), "pull": PRIOR_WEIGHT,
    }  # fmt: skip
    return {
        "unreliable.md": page("unreliable/unreliable", runs, **parts),
        "unreliable.svg": plot(runs),
    }


def federations(runs: Runs) -> Iterator[tuple[UnreliableSetting, dict[str, Runs]]]:
    """Each attack of so many clients, and its runs by defence; those without the attack, too."""
    for (table, kind), own in runs.by("table", "kind").items():
        for attack, bad in own.select(defence="trusted").by("attack", "bad"):
            here = {one: own.select(attack=attack, bad=bad, defence=one) for one in DEFENCES}
            here["alone"] = own.select(bad=bad, defence="alone" if bad else "none")
            here |= {one: own.select(defence=one) for one in ("central", "constant")}
            yield UnreliableSetting(table, kind, attack, bad, "trusted"), here


def words_of(setting: UnreliableSetting) -> str:
    """Return words for the attack and the number of clients that make it."""
    if not setting.bad:
        return f"all {CLIENTS} honest"
    return f"{setting.bad} of {CLIENTS}: {ATTACKS[setting.attack]}"


def all_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Accuracy / SPD of each federation with each defence, and what bad clients count."""
    for setting, here in federations(runs):
        cells = [
            pair_text(here[one], constants=NO_RUNS if one == "constant" else here["constant"])
            for one in DEFENCES
        ]
        share = here["trusted"].mean("bad_weight").text(".3f")
        little = here["trusted"].mean("little").text(".2f")
        yield setting.table, setting.kind, words_of(setting), *cells, share, little


def difference_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Yield how far from the honest clients alone each federation ends."""
    for setting, here in federations(runs):
        if off := difference(here["trusted"], here["alone"]):
            texts = [f"{off.accuracy:.4f} / {off.spd:.4f}"]
            before = difference(here["none"], here["alone"])
            texts.append(f"{before.accuracy:.4f} / {before.spd:.4f}" if before else "")
            yield setting.table, setting.kind, words_of(setting), *texts[::-1]


def plot(runs: Runs) -> str:
    """Mean SPD less that of the honest clients alone, a panel for each table and kind."""
    figure, every = panels(len(TABLES), len(CONFIGS), 9, 11)
    places = [(table, kind) for table in TABLES for kind in CONFIGS]
    for axes, (table, kind) in zip(every, places, strict=True):
        here = list(federations(runs.select(table=table, kind=kind)))
        for i, defence in enumerate(("none", "trusted")):
            points = [own[defence].less(own["alone"], "spd").mean for _, own in here]
            look: Any = {"color": COLORS[i], "marker": "os"[i], "linestyle": "none"}
            axes.plot(points, range(len(points)), label=DEFENCES[defence], **look)
        axes.axvline(0.0, color="0.6", linewidth=0.8)
        axes.set_yticks(range(len(here)), [words_of(setting) for setting, _ in here])
        axes.set(title=f"{table}, {kind}", xlabel="SPD less that of the honest clients alone")
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
    legend(figure, 2)
    return as_svg(figure)


def settings_of_all() -> Iterator[UnreliableSetting]:
    """Yield the settings, a table's one after the other, those that share releases together."""
    for table in TABLES:
        for kind in CONFIGS:
            for defence in ("constant", "central", "none", "trusted"):
                yield UnreliableSetting(table, kind, HONEST, 0, defence)
            for bad in (2, 5):
                yield UnreliableSetting(table, kind, HONEST, bad, "alone")
                for attack in ATTACKS:
                    if attack == "heavier" and (bad > 2 or kind == "fair releases"):
                        continue  # fair releases have no weights, and 5 of 8 would be all
                    for defence in ("none", "trusted"):
                        yield UnreliableSetting(table, kind, attack, bad, defence)


def behind(setting: UnreliableSetting) -> tuple[object, ...]:
    """Return what a run depends on: the settings of releases, server and defence."""
    own = CONFIGS[setting.kind], surrogates_version(None), C
    return (
        CLIENTS,
        ROWS,
        TRUSTED,
        RHO,
        *own,
        *((PRIOR_WEIGHT, MAX_PRIOR_MEDIANS) * (setting.defence == "trusted")),
    )


UNRELIABLE = Experiment(
    name="runs", settings=tuple(settings_of_all()), run=run_unreliable, summary=show,
    smoke=(
        UnreliableSetting("law_school_race", "surrogates", "swapped", 2, "trusted"),
        UnreliableSetting("law_school_race", "surrogates", HONEST, 2, "alone"),
        UnreliableSetting("law_school_race", "fair releases", "reversed", 2, "trusted"),
    ),
    seeds=3, sources=lambda setting: SOURCES[TASKS[setting.table][0]], behind=behind,
)  # fmt: skip

EXPERIMENTS = (UNRELIABLE,)

if __name__ == "__main__":
    main(__doc__, "unreliable", *EXPERIMENTS)
