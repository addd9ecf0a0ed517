"""One upload or many rounds: accuracy against SPD, with what each method sends.

    python -m benchmarks.methods                    # 3 seeds; goes on where it stopped
    python -m benchmarks.methods --only table=dutch --output elsewhere

Law School by race, Dutch and Adult by sex, each cut into 2 clients: the same splits, seeds and
logistic model for all. Weights are rho_o = 0, 10, 100; methods with a tolerance take 1 / rho_o for
it, and have no constraint for 0. The constant classifier gives everybody the more frequent label:
what has less accuracy is worth nothing. Private methods protect one row, with epsilon = 1 and
delta = 1 / N^1.1, N the rows of a client: of FPFL each row is a user by itself. Settings are in
this file.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import Runs
from benchmarks.showing import COLORS, accuracy_text, as_svg, legend, page, panels
from synthfair import compare
from synthfair.data.datasets import SOURCES

TABLES = {"law_school": "race", "dutch": "sex", "adult": "sex"}
EPSILON = 1.0
NO_INTERVALS = sf.ServerConfig(resamples=1)

PLAIN_ROUNDS = {"rounds": 1000, "learning_rate": 3.0, "multiplier_rate": 1.0}
"""Of FPFL on two clients, all of them in every round."""

PRIVATE_ROUNDS = {
    "rounds": 150,
    "cohort": 2000,
    "learning_rate": 2.0,
    "multiplier_rate": 0.3,
    "clip": 3.0,
    "epsilon": EPSILON,
}
"""Of FPFL on single rows."""

TWO_PHASES = {"method": "two_phase", "clip": 1.5, "epsilon": EPSILON}

CONSTANT = "constant classifier"

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "central": ("central", {}),
    "fair releases": ("single_shot", {}),
    "fair releases, epsilon = 1": ("single_shot", {"epsilon": EPSILON}),
    "surrogates": ("surrogate", {}),
    "surrogates, epsilon = 1": ("surrogate", {"epsilon": EPSILON}),
    "FedAvg": ("fedavg", {}),
    "FPFL": ("fpfl", PLAIN_ROUNDS),
    "FPFL, epsilon = 1": ("fpfl", PRIVATE_ROUNDS),
    "two-phase, epsilon = 1, phase 1 not covered": ("two_phase", TWO_PHASES),
    "two-phase end to end, epsilon = 1": ("two_phase", TWO_PHASES | {"end_to_end": True}),
    CONSTANT: ("constant", {}),
}
"""By the name they are shown under: synthfair's name and settings."""

MARKERS = "osD^v<P*Xhp"
WEIGHTS = (0.0, 10.0, 100.0)


class MethodSetting(NamedTuple):
    """What is compared."""

    table: str
    method: str
    weight: float


class MethodValues(NamedTuple):
    """What a method reached, and what it took; bytes are of all clients together."""

    accuracy: float
    spd: float
    rounds: int
    bytes_sent: int
    seconds: float
    converged: bool


def run_method(setting: MethodSetting, seed: int, *, smoke: bool) -> MethodValues:
    """One method with one weight on one seed."""
    rows, schema = sf.load_dataset(setting.table, TABLES[setting.table])
    clients = compare.federate(sf.partition(rows, clients=2, seed=seed), schema)
    method, changes = METHODS[setting.method]
    if "epsilon" in changes:
        changes = changes | {"delta": len(clients.train[0].y) ** -1.1}
    config: dict[str, Any] = {"rho_o": setting.weight, "n_synthetic": 800, "seed": seed}
    config |= {"steps": 5} if smoke else {}
    more: dict[str, Any] = {}
    if method in ("fpfl", "two_phase"):
        small = {"rounds": 5} if smoke and method == "fpfl" else {}
        more["rounds"] = changes | small
        more["users"] = {"each_row": True} if "cohort" in changes else None
    else:
        config |= changes
    settings = sf.DistillConfig.model_validate(config)
    found, made = compare.run_method(method, clients, settings, NO_INTERVALS, **more)
    overall, cost = found.overall, made.cost
    assert cost is not None
    return MethodValues(
        overall["accuracy"].value, overall["spd"].value, cost.rounds, cost.bytes_sent, made.seconds,
        made.converged is not False,
    )  # fmt: skip


def show(runs: Runs) -> dict[str, str]:
    """One table and one plot."""
    lines = []
    for setting, own in runs.by().items():
        sent, seconds = own.mean("bytes_sent").mean / 1e3, own.mean("seconds").mean
        accuracy = accuracy_text(own, runs.select(table=setting.table, method=CONSTANT))
        lines.append(
            f"{setting.table} | {setting.method}{' *' * (False in own.values('converged'))}"
            f" | {setting.weight:g} | {accuracy} | {own.mean('spd').text()}"
            f" | {own[0].values.rounds:,} | {sent:,.1f} kB | {seconds:.1f}"
        )
    text = page("methods/methods", runs, rows=lines)
    return {"methods.md": text, "frontier.svg": plot(runs)}


def plot(runs: Runs) -> str:
    """Accuracy against |SPD|, a panel for each table and a line for each method."""
    tables = runs.by("table")
    figure, across = panels(1, len(tables), 4 * len(tables), 3.8)
    for axes, (name, here) in zip(across, tables.items(), strict=True):
        for i, method in enumerate(METHODS):
            weights = here.select(method=method).by("weight").values()
            # Mean sizes of SPDs: their signs would cancel.
            gaps = [float(np.mean(np.abs(own.values("spd")))) for own in weights]
            accuracies = [own.mean("accuracy").mean for own in weights]
            look: Any = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i], "linewidth": 1}
            axes.plot(gaps, accuracies, label=method, **look)
        axes.set(title=name, xlabel="mean size of the SPD", ylabel="accuracy")
    legend(figure, 4)
    return as_svg(figure)


def behind(setting: MethodSetting) -> tuple[object, ...]:
    """Return what a run depends on: the method's settings, and the version of surrogates."""
    method = METHODS[setting.method]
    version = [surrogates_version(method[1].get("epsilon"))] if method[0] == "surrogate" else []
    return *version, method


METHOD_COMPARISON = Experiment(
    name="runs",
    settings=tuple(
        MethodSetting(*one)
        for one in product(TABLES, METHODS, WEIGHTS)
        if one[1] != CONSTANT or one[2] == 0
    ),
    run=run_method, summary=show,
    smoke=tuple(
        MethodSetting("law_school", method, 10.0)
        for method in ("central", "fair releases", "surrogates", "FedAvg", "FPFL, epsilon = 1")
    ),
    seeds=3, sources=lambda setting: SOURCES[setting.table], behind=behind,
)  # fmt: skip

EXPERIMENTS = (METHOD_COMPARISON,)

if __name__ == "__main__":
    main(__doc__, "methods", *EXPERIMENTS)
