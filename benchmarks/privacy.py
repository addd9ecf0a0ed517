"""Accuracy and SPD against epsilon.

    python -m benchmarks.privacy                    # 10 seeds; goes on where it stopped
    python -m benchmarks.privacy every              # all ways to one private and fair model

The runs of ``every`` have a file for each table, so that two processes can share the tables:

    python -m benchmarks.privacy every --only table=dutch
    python -m benchmarks.privacy every --only table=law_school_race table=adult

Law School by race and Dutch with the settings in configs/, delta = 1 / N^1.1 with N a client's
training rows; private runs start in the middle of the range. Each
client spends epsilon. For comparison: the constant classifier, the non-private run, and local
randomisation of (s, y): each row's pair of group and label is replaced by a random one so that
epsilon holds for the pair (k-ary randomised response), and the rows are then distilled without
further noise. That protects neither the features nor whether a row is there at all. Noise comes
from the system, so that a repetition differs within the errors shown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.findings import NOTHING, nothing_learned
from benchmarks.harness import ROOT, Experiment, main
from benchmarks.private_methods import EVERY
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import accuracy_text, as_svg, over_epsilon, page, panels, verdict
from synthfair.compare import federate, run_method
from synthfair.config.loading import WITHOUT_EPSILON, load_settings
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
"""Name, colour and marker of each; none of those without an epsilon."""

TASKS = {
    "law_school_race": ("law_school", "race", 2, "law_school/race.toml"),
    "dutch_gender": ("dutch", "sex", 4, "dutch/gender.toml"),
}
"""Table, sensitive attribute, number of clients, and the file of configs/."""


class BudgetSetting(NamedTuple):
    """A method with a budget; epsilon is infinite without one."""

    task: str
    method: str
    epsilon: float


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


def config_of(task: str, **changes: int) -> sf.DistillConfig:
    """Without an epsilon."""
    path = ROOT.parent / "configs" / TASKS[task][-1]
    changes |= {"group_input": False}
    return load_settings(sf.DistillConfig, path, changes, leave_out={WITHOUT_EPSILON})


def run_budget(setting: BudgetSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """One method with one budget on one seed."""
    dataset, sensitive, n_clients, _ = TASKS[setting.task]
    table, schema = sf.load_dataset(dataset, sensitive)
    clients = federate(sf.partition(table, clients=n_clients, seed=seed), schema)
    config = config_of(setting.task, seed=seed, **({"steps": 5} if smoke else {}))
    epsilon, train = setting.epsilon, clients.train
    if setting.method == "private":
        private = {"epsilon": epsilon, "delta": len(train[0].y) ** -1.1, "start": "middle"}
        config = sf.DistillConfig.model_validate(config.model_dump() | private)
    if setting.method == "randomised":
        noisy = (randomised(r, epsilon, clients.n_groups, seed + i) for i, r in enumerate(train))
        clients = clients._replace(train=tuple(noisy))
    method = "constant" if setting.method == "constant" else "single_shot"
    row, _ = run_method(method, clients, config, sf.ServerConfig(resamples=1))
    return AccuracySpd(*(row.evaluation.overall[name].value for name in AccuracySpd._fields))


def show(runs: Runs) -> dict[str, str]:
    """All means next to the non-private run, and a plot for each task."""
    lines = []
    for (task, method, epsilon), own in runs.by().items():
        plain, constants = (runs.select(task=task, method=name) for name in ("plain", "constant"))
        accuracy, spd, differences = own.mean("accuracy"), own.mean("spd"), " |  | "
        if plain:
            lost = plain.mean("accuracy").mean - accuracy.mean
            changed, goal = spd.mean - plain.mean("spd").mean, ""
            if method == "private" and epsilon in GOALS:
                most = GOALS[epsilon]
                met = verdict(lost <= most[0] and abs(changed) <= most[1])
                met = NOTHING if nothing_learned(own, constants) else met
                goal = f"{most[0]:g} and {most[1]:g}: {met}"
            differences = f"{lost:.4f} | {changed:+.4f} | {goal}"
        both = f"{accuracy_text(own, constants, error=True)} | {spd.text(error=True)}"
        lines.append((task, METHODS[method][0], epsilon, both, differences))
    plots = {f"{task}.svg": plot(own) for task, own in runs.by("task").items()}
    return {"privacy.md": page("privacy/privacy", runs, rows=lines)} | plots


def plot(runs: Runs) -> str:
    """Accuracy and SPD over epsilon, with the non-private run as a band."""
    figure, both = panels(1, 2, 8, 3.2)
    for axes, field in zip(both, ("accuracy", "spd"), strict=True):
        over_epsilon(axes, runs, field, METHODS, error=True)
    both[0].legend(frameon=False, fontsize=8)
    return as_svg(figure)


BUDGETS = Experiment(
    name="runs",
    settings=tuple(
        BudgetSetting(task, method, epsilon)
        for task in TASKS
        for method, (_, _, marker) in METHODS.items()
        for epsilon in (EPSILONS if marker else (np.inf,))
    ),
    run=run_budget, summary=show,
    smoke=(
        BudgetSetting("law_school_race", "plain", np.inf),
        BudgetSetting("law_school_race", "private", 1.0),
        BudgetSetting("law_school_race", "randomised", 1.0),
    ),
    seeds=10, sources=lambda setting: SOURCES[TASKS[setting.task][0]],
    behind=lambda setting: (config_of(setting.task),), parallel=True,
)  # fmt: skip

EXPERIMENTS = (BUDGETS, EVERY)

if __name__ == "__main__":
    main(__doc__, "privacy", *EXPERIMENTS)
