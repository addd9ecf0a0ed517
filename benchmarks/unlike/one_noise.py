"""Private surrogates with one noise for all clients, by secure sums, next to one noise each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment, surrogates_version
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import page
from benchmarks.unlike.clients import CONFIGS, TASKS, Cut, accuracy_and_spd, federation, surrogates
from benchmarks.unlike.training import MAIN, METHODS, trained
from synthfair.data.batches import in_memory
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import encode_records
from synthfair.surrogate import WeightedTable

DRAWS = 2
"""Of the noise, for each split."""


class NoiseSetting(NamedTuple):
    """One of :data:`TASKS`, cut into clients by Dirichlet(0.3), and whose noise there is."""

    task: str
    clients: int
    noise: str


def run_noise(setting: NoiseSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """Sizes of the differences to central training without privacy; one draw of the noise."""
    split = "0.3" if setting.clients > 1 else "alike"
    cut = Cut(setting.task, setting.clients, split, seed // DRAWS)
    central = METHODS["central"].train(cut, MAIN, smoke=smoke)
    clients = federation(cut)
    if setting.noise == "one each":
        surrogates.cache_clear()  # of an earlier draw
        private = METHODS["private"].train(cut, MAIN, smoke=smoke)
    else:
        private = trained(one_for_all(cut, CONFIGS["private"]), MAIN, clients)
    ours, theirs = (
        accuracy_and_spd(clients, (one.scores > 0).astype(float)) for one in (private, central)
    )
    return AccuracySpd(*(round(abs(a - b), 6) for a, b in zip(ours, theirs, strict=True)))


def one_for_all(cut: Cut, config: sf.SurrogateConfig) -> WeightedTable:
    """Return the surrogate of all clients together, by secure sums, with the seed of the split."""
    clients = federation(cut)
    batches = [in_memory(rows) for rows in clients.train]
    config = config.model_copy(update={"seed": cut.seed})
    one = sf.secure.make_secure_surrogate(batches, config, clients.schema)
    return WeightedTable(
        encode_records(one.x, clients.schema), one.s, one.y, np.asarray(one.weight)
    )


def one_noise_lines(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield a row for each setting: mean and largest difference in accuracy and in SPD."""
    for setting, own in runs.by().items():
        values = (own.values(name) for name in AccuracySpd._fields)
        yield *setting, *(f"{np.mean(some):.4f} ({max(some):.4f})" for some in values)


TABLES = ("dutch", "law_school_race", "adult")
CLIENTS = {"one each": (1, 4, 20), "one for all": (4, 20, 100)}
SETTINGS = tuple(
    NoiseSetting(task, clients, noise)
    for task in TABLES
    for noise, some in CLIENTS.items()
    for clients in some
)
"""One client has the rows of all: the least that noise can cost."""

ONE_NOISE = Experiment(
    name="one_noise",
    settings=SETTINGS, run=run_noise,
    summary=lambda runs: {
        "one_noise.md": page("unlike/one_noise", runs, rows=one_noise_lines(runs))
    },
    seeds=3 * DRAWS, sources=lambda setting: SOURCES[TASKS[setting.task][0]],
    behind=lambda _: (surrogates_version(1.0), CONFIGS["private"]), default=False,
)  # fmt: skip
