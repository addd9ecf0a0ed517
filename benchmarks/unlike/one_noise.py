"""Private surrogates with one noise for all clients, by secure sums, next to one noise each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment, Run, fingerprint, surrogates_version
from benchmarks.showing import by, page, table
from benchmarks.unlike.clients import CONFIGS, Cut, federation, surrogates
from benchmarks.unlike.comparison import MAIN
from benchmarks.unlike.training import METHODS, Scores, trained
from synthfair.compare.federation import pooled
from synthfair.data.batches import in_memory
from synthfair.data.datasets import SOURCES
from synthfair.fairness.intervals import metrics
from synthfair.fairness.metrics import Scored
from synthfair.surrogate import WeightedTable

DRAWS = 2
"""Of the noise, for each split."""


class NoiseSetting(NamedTuple):
    """Clients of Dutch, and whose noise there is."""

    clients: int
    split: str
    noise: str


class Away(NamedTuple):
    """Sizes of the differences to central training without privacy, on the same test rows."""

    accuracy: float
    spd: float


def run_noise(setting: NoiseSetting, seed: int, *, smoke: bool) -> Away:
    """One draw of the noise."""
    del smoke
    cut = Cut("dutch", setting.clients, setting.split, seed // DRAWS)
    central = METHODS["central"].train(cut, MAIN, smoke=False)
    found = from_releases(cut) if setting.noise == "one each" else from_secure_sums(cut)
    away = np.abs(on_test(cut, found) - on_test(cut, central))
    return Away(*(round(float(one), 6) for one in away))


def from_releases(cut: Cut) -> Scores:
    """The global problem on the surrogates of each client, with noise of its own."""
    surrogates.cache_clear()  # of an earlier draw
    return METHODS["private"].train(cut, MAIN, smoke=False)


def from_secure_sums(cut: Cut) -> Scores:
    """The same on one surrogate of all clients."""
    clients = federation(cut)
    config = CONFIGS["private"].model_copy(update={"seed": cut.seed})
    made = sf.surrogate.make_secure_surrogate(
        [in_memory(rows) for rows in clients.train], config, clients.schema
    )
    table = WeightedTable(*made.surrogate.rows(clients.schema), made.surrogate.weight)
    return trained(table, MAIN, clients)


def on_test(cut: Cut, found: Scores) -> np.ndarray:
    """[2] accuracy and SPD over all clients' test rows."""
    clients = federation(cut)
    test = pooled(clients.test)
    measured = metrics(Scored(test.y, found.scores, test.s, clients.n_groups))
    return np.array([measured["accuracy"], measured["spd"]])


def show(runs: Sequence[Run[NoiseSetting, Away]]) -> dict[str, str]:
    """Means and largest."""
    before = (
        "`python -m benchmarks.unlike one_noise`: Dutch, covariance at rho = 10,"
        " epsilon = 1, delta = 1e-6. Sizes of the differences to central training without privacy,"
        f" on the same test rows: mean (largest) of {len({run.seed for run in runs})} draws."
    )
    return {"one_noise.md": page("# One noise for all clients", before, table_of(runs))}


def table_of(runs: Sequence[Run[NoiseSetting, Away]]) -> str:
    """A row a setting."""
    rows = []
    for setting, own in by(runs, lambda one: one).items():
        found = np.array([run.values for run in own])
        both = zip(found.mean(axis=0), found.max(axis=0), strict=True)
        rows.append((*setting, *(f"{mean:.4f} ({most:.4f})" for mean, most in both)))
    return table("clients | split | noise | difference in accuracy | in SPD", rows)


ONE_NOISE = Experiment(
    name="one_noise",
    settings=tuple(
        NoiseSetting(*one)
        for one in product((4, 20), ("alike", "0.3"), ("one each", "one for all"))
    ),
    run=run_noise,
    summary=show,
    smoke=(),
    seeds=3 * DRAWS,
    sources=lambda _: SOURCES["dutch"],
    fingerprint=lambda _: fingerprint(surrogates_version(1.0), CONFIGS["private"]),
    default=False,
)
