"""Accuracy and SPD against epsilon.

    python -m benchmarks.privacy                    # 10 seeds; goes on where it stopped

Law School by race and Dutch with the settings in configs/, delta = 1 / N^1.1 with N a client's
training rows; private runs start in the middle of the range, as is the default with epsilon. Each
client spends epsilon. For comparison: the constant classifier, the non-private run, and local
randomisation of (s, y): each row's pair of group and label is replaced by a random one so that
epsilon holds for the pair (k-ary randomised response), and the rows are then distilled without
further noise. That protects neither the features nor whether a row is there at all. Noise comes
from the system, so that a repetition differs within the errors shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks import showing
from benchmarks.harness import ROOT, Experiment, Run, fingerprint, main
from benchmarks.papers.finding import NOTHING, nothing_learned
from synthfair.compare import federate, run_method
from synthfair.config import load_distill_config
from synthfair.data.datasets import SOURCES

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
GOALS = {0.5: (0.010, 0.030), 1.0: (0.005, 0.020)}
"""Largest loss of accuracy and change of SPD, by epsilon."""

METHODS = {
    "constant": ("constant classifier", "#CC79A7", ""),
    "plain": ("not private", "0.4", ""),
    "private": ("private fair releases", "#0072B2", "o"),
    "randomised": ("local randomisation of (s, y)", "#D55E00", "s"),
}
"""Name, colour and marker of each."""


class PrivateTask(NamedTuple):
    """A table cut into clients."""

    dataset: str
    sensitive: str
    clients: int
    config: Path


TASKS = {
    "law_school_race": PrivateTask("law_school", "race", 2, Path("law_school/race.toml")),
    "dutch_gender": PrivateTask("dutch", "sex", 4, Path("dutch/gender.toml")),
}


class BudgetSetting(NamedTuple):
    """A method with a budget; epsilon is infinite without one."""

    task: str
    method: str
    epsilon: float


class BudgetValues(NamedTuple):
    """On all clients' test rows."""

    accuracy: float
    spd: float


def randomised(real: sf.Encoded, epsilon: float, n_groups: int, seed: int) -> sf.Encoded:
    """The rows with (s, y) unchanged with the odds exp(epsilon) against each other pair."""
    pairs = 2 * real.s + (real.y > 0)
    reported = randomised_response(pairs, 2 * n_groups, epsilon, np.random.default_rng(seed))
    return sf.Encoded(real.x, reported // 2, np.where(reported % 2, 1.0, -1.0))


def randomised_response(
    values: np.ndarray, k: int, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """[N] values 0 to k - 1, unchanged with the odds exp(epsilon) against each other one."""
    unchanged = rng.random(len(values)) < np.exp(epsilon) / (np.exp(epsilon) + k - 1)
    others = (values + rng.integers(1, k, len(values))) % k
    return np.where(unchanged, values, others)


def config_of(task: PrivateTask, **changes: int) -> sf.DistillConfig:
    """Without an epsilon."""
    return load_distill_config(ROOT.parent / "configs" / task.config, **changes)


def run_budget(setting: BudgetSetting, seed: int, *, smoke: bool) -> BudgetValues:
    """One method with one budget on one seed."""
    task, epsilon = TASKS[setting.task], setting.epsilon
    rows, schema = sf.load_dataset(task.dataset, task.sensitive)
    clients = federate(sf.partition(rows, clients=task.clients, seed=seed), schema)
    config = config_of(task, seed=seed, **({"steps": 5} if smoke else {}))
    if setting.method == "private":
        # Settings that a file leaves open have other defaults with an epsilon.
        private = {"epsilon": epsilon, "delta": len(clients.train[0].y) ** -1.1, "start": "middle"}
        config = sf.DistillConfig.model_validate(config.model_dump() | private)
    if setting.method == "randomised":
        noisy = (
            randomised(real, epsilon, clients.n_groups, seed + i)
            for i, real in enumerate(clients.train)
        )
        clients = clients._replace(train=tuple(noisy))
    method = "constant" if setting.method == "constant" else "single_shot"
    made, _ = run_method(method, clients, config, sf.ServerConfig(resamples=1))
    overall = made.evaluation.overall
    return BudgetValues(overall["accuracy"].value, overall["spd"].value)


BudgetRuns = Sequence[Run[BudgetSetting, BudgetValues]]


def show(runs: BudgetRuns) -> dict[str, str]:
    """All means next to the non-private run, and a plot for each task."""
    before = (
        f"`python -m benchmarks.privacy`: mean ± standard error over"
        f" {showing.n_seeds(runs)} seeds, all clients' test rows. Differences are between the"
        " means and those of the non-private run on the same splits."
        f" {showing.WORSE_NOTE}"
    )
    rows = [
        _cells(setting, own, showing.select(runs, task=setting.task))
        for setting, own in showing.by(runs, lambda setting: setting).items()
    ]
    header = "task | method | epsilon | accuracy | SPD | accuracy lost | SPD changed by | goal"
    plots = {
        f"{task}.svg": plot(own) for task, own in showing.by(runs, lambda one: one.task).items()
    }
    return {
        "privacy.md": showing.page(
            "# Accuracy and SPD against epsilon", before, showing.table(header, rows)
        )
    } | plots


def _cells(setting: BudgetSetting, runs: BudgetRuns, others: BudgetRuns) -> tuple[object, ...]:
    """A row, next to the task's other runs."""
    plain, constants = (showing.select(others, method=name) for name in ("plain", "constant"))
    accuracy, spd, goal = showing.means(runs, "accuracy"), showing.means(runs, "spd"), ""
    texts = (showing.marked(runs, constants, error=True), spd.text(error=True))
    if not plain:
        return setting.task, METHODS[setting.method][0], setting.epsilon, *texts, "", "", ""
    lost = showing.means(plain, "accuracy").mean - accuracy.mean
    changed = spd.mean - showing.means(plain, "spd").mean
    if setting.method == "private" and setting.epsilon in GOALS:
        most = GOALS[setting.epsilon]
        met = showing.verdict(lost <= most[0] and abs(changed) <= most[1])
        nothing = nothing_learned(runs, constants)
        goal = f"{most[0]:g} and {most[1]:g}: {NOTHING if nothing else met}"
    texts += (f"{lost:.4f}", f"{changed:+.4f}")
    return setting.task, METHODS[setting.method][0], setting.epsilon, *texts, goal


def plot(runs: BudgetRuns) -> str:
    """Accuracy and SPD over epsilon, with the non-private run as a band."""
    figure, both = showing.panels(1, 2, 8, 3.2)
    for axes, field in zip(both, ("accuracy", "spd"), strict=True):
        showing.over_epsilon(axes, runs, field, METHODS, error=True)
    both[0].legend(frameon=False, fontsize=8)
    return showing.as_svg(figure)


BUDGETS = Experiment(
    name="runs",
    settings=tuple(
        BudgetSetting(task, method, epsilon)
        for task in TASKS
        for method in METHODS
        for epsilon in ((np.inf,) if method in ("constant", "plain") else EPSILONS)
    ),
    run=run_budget,
    summary=show,
    smoke=(
        BudgetSetting("law_school_race", "plain", np.inf),
        BudgetSetting("law_school_race", "private", 1.0),
        BudgetSetting("law_school_race", "randomised", 1.0),
    ),
    seeds=10,
    sources=lambda setting: SOURCES[TASKS[setting.task].dataset],
    fingerprint=lambda setting: fingerprint(config_of(TASKS[setting.task])),
    parallel=True,
)

EXPERIMENTS = (BUDGETS,)

if __name__ == "__main__":
    main(__doc__, "privacy", *EXPERIMENTS)
