"""What epsilon costs: accuracy and SPD of both kinds of releases, and of other private ways.

    python -m benchmarks.privacy                    # 5 seeds; goes on where it stopped

The runs have a file for each table, so that two processes can share the tables:

    python -m benchmarks.privacy --only table=dutch
    python -m benchmarks.privacy --only table=law_school_race table=adult

Four clients are alike, or unlike: cut by Dirichlet(0.3) on pairs of group and label. Each client
spends epsilon. Ways that are not federated have all training rows in one place. Noise comes from
the system, so that a repetition differs within the spread that is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import synthfair as sf
from benchmarks.additive import GAP, boosted, by_thresholds
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import accuracy_text, as_svg, legend, over_epsilon, page, panels
from benchmarks.unlike.clients import (
    DELTA,
    TASKS,
    Cut,
    accuracy_and_spd,
    federation,
    surrogate_config,
    surrogates,
    weighted,
)
from benchmarks.unlike.training import MAIN, METHODS, Scores, from_fair_releases, trained
from synthfair.data.batches import in_memory
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import encode_records
from synthfair.federated import Cohorts, LogisticRegression, engine, make_users
from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.method import given
from synthfair.federated.single_rows import UserRows
from synthfair.model import Params
from synthfair.privacy.accounting import mu_for
from synthfair.server.pooling import concatenated
from synthfair.surrogate import WeightedTable

TABLES = ("law_school_race", "dutch", "adult")
"""Of :data:`TASKS`."""

SPLITS = {"alike": "alike", "unlike": "0.3"}
"""How the four clients are cut, for :class:`Cut`."""

EPSILONS = (0.5, 1.0, 2.0, 5.0)


LOOKS = {
    "constant": ("constant classifier", "#CC79A7", ""),
    "central": ("central, not private", "0.4", ""),
    "unpenalised": ("central, not private, no penalty", "0.7", ""),
    "surrogate": ("surrogates, each its own noise", "#0072B2", "o"),
    "fair": ("fair releases", "#000000", "v"),
    "for_all": ("surrogates, one noise for all", "#56B4E9", "D"),
    "trees": ("boosted trees on surrogates, thresholds by group", "#009E73", "s"),
    "dp_sgd": ("DP-SGD, central", "#E69F00", "^"),
}
"""Name, colour and marker of each method; none of those without an epsilon."""


class PrivateSetting(NamedTuple):
    """One of :data:`TABLES`, :data:`SPLITS` and :data:`LOOKS`; epsilon is infinite without one."""

    table: str
    clients: str
    method: str
    epsilon: float


def run_private(setting: PrivateSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """One method on one split."""
    cut = Cut(setting.table, 4, SPLITS[setting.clients], seed)
    if setting.epsilon == np.inf:
        chance = decisions(METHODS[setting.method].train(cut, MAIN, smoke=smoke))
    else:
        chance = PRIVATE[setting.method](cut, setting.epsilon, smoke=smoke)
    accuracy, spd = accuracy_and_spd(federation(cut), chance)
    return AccuracySpd(round(accuracy, 6), round(spd, 6))


def decisions(found: Scores) -> np.ndarray:
    """Return [N_test] chances of the decision +1, which are 0 and 1."""
    return (found.scores > 0).astype(float)


# One upload of each client


def pool(cut: Cut, epsilon: float) -> WeightedTable:
    """Return the clients' surrogates together, made once for all learners."""
    return surrogates(cut, epsilon).table


def surrogate(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Return the decisions of the linear model on surrogates of the clients."""
    return decisions(trained(pool(cut, epsilon), MAIN, federation(cut)))


def trees(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Return the decisions of boosted trees on the same surrogates.

    Their thresholds by group are chosen on rows that are drawn by weight.
    """
    clients, sent = federation(cut), pool(cut, epsilon)
    learner = boosted(cut.seed, smoke=smoke).fit(sent.x, sent.y, sample_weight=sent.weight)
    total, rng = sent.weight.sum(), np.random.default_rng(cut.seed)
    drawn = rng.choice(len(sent.y), round(total), p=sent.weight / total)
    test, scores = concatenated(clients.test), learner.decision_function(sent.x)[drawn]
    chosen_on = scores, sent.s[drawn], sent.y[drawn]
    return by_thresholds(clients, chosen_on, (learner.decision_function(test.x), test.s))


def one_for_all(cut: Cut, config: sf.SurrogateConfig) -> WeightedTable:
    """Return the surrogate of all clients together, by secure sums, with the seed of the split."""
    clients = federation(cut)
    batches = [in_memory(rows) for rows in clients.train]
    config = config.model_copy(update={"seed": cut.seed})
    one = sf.secure.make_secure_surrogate(batches, config, clients.schema)
    x = encode_records(one.x, clients.schema)
    return WeightedTable(x, one.s, one.y, np.asarray(one.weight))


def for_all(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Return the decisions of the linear model on a surrogate of the clients' secure sums."""
    return decisions(trained(one_for_all(cut, surrogate_config(epsilon)), MAIN, federation(cut)))


def fair(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Return the decisions that Wu et al. (2024) lead to, each client with this epsilon."""
    return decisions(from_fair_releases(cut, MAIN, smoke=smoke, epsilon=epsilon, delta=DELTA))


# DP-SGD on all rows
SGD_RATE, SGD_CLIP, SGD_STEPS = 4.0, 1.0, 200
"""Between 8 and 100 steps and 4 and 400, the best of ten on training rows of Law School and Dutch.
Each step is on all rows: all releases are Gaussian mechanisms, whose composition is exact."""

MOMENT = 0.1
"""The share of mu^2 that the covariance's moment takes; the gradients have the rest."""


class FairDpSgd(DpSgd):
    """DP-SGD in which each step is followed by the proximal step of the covariance penalty.

    The penalty is rho/2 (m'theta)^2. Once m is released with noise, it is a public function.
    """

    moment: jax.Array | None = given()

    def noisy_gradient(self, params: Params, rows: UserRows, key: jax.Array) -> Params:
        """Return the gradient of which one step equals the gradient's step and the proximal one."""
        assert self.moment is not None
        slope, m = super().noisy_gradient(params, rows, key), self.moment
        after = m @ (params - self.learning_rate * slope)
        return slope + MAIN.rho * after / (1 + self.learning_rate * MAIN.rho * m @ m) * m


def noise_of_parts(epsilon: float) -> tuple[float, float]:
    """Return the noise of the moment and of a step's gradient, in units of their sensitivities."""
    mu = mu_for(epsilon, DELTA)
    return 1 / (MOMENT**0.5 * mu), (SGD_STEPS / (1 - MOMENT)) ** 0.5 / mu


def dp_sgd(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Return the decisions of DP-SGD, one client with all rows; its noise has the split's seed."""
    clients, (of_moment, of_gradient) = federation(cut), noise_of_parts(epsilon)
    real = weighted(concatenated(clients.train)).rows(n_groups=1)
    a, s, y = map(np.asarray, real[:3])
    # Sums of inputs by group. A column adds at most 1 to a row's square, as do group and intercept.
    longest = (len(clients.schema.features) + 2) ** 0.5
    by_group = np.stack([a[s == group].sum(0) for group in range(2)])
    noise = np.random.default_rng(cut.seed).normal(size=by_group.shape)
    by_group += longest * of_moment * noise
    share = by_group[1, -1] / by_group[:, -1].sum()
    method = FairDpSgd(
        model=LogisticRegression(a.shape[1]), batch=len(y), local_steps=1 if smoke else SGD_STEPS,
        noise=of_gradient, learning_rate=SGD_RATE, clip=SGD_CLIP,
        moment=jnp.asarray((by_group[1] - share * by_group.sum(0)) / len(y)),
    )  # fmt: skip
    users = make_users(a, s, y, np.zeros(len(y)))
    done = engine.run(method, users, Cohorts(1, 1), rounds=1, seed=cut.seed)
    test = weighted(concatenated(clients.test)).rows(n_groups=1)
    return (np.asarray(test.a @ method.params(done.state)) > 0).astype(float)


PRIVATE = {
    "surrogate": surrogate, "fair": fair, "for_all": for_all, "trees": trees, "dp_sgd": dp_sgd,
}  # fmt: skip
"""Of a cut, an epsilon and smoke: [N_test] chances of the decision +1."""


# The page


def show(runs: Runs) -> dict[str, str]:
    """Return the page of all means, and a plot for each table."""
    numbers = {
        "rho": MAIN.rho, "gap": GAP, "clip": SGD_CLIP, "steps": SGD_STEPS, "moment": MOMENT,
    }  # fmt: skip
    text = page("privacy/privacy", runs, rows=lines(runs), **numbers)
    return {"privacy.md": text} | {
        f"{name}.svg": plot(own) for name, own in runs.by("table").items()
    }


def lines(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield a row a setting."""
    for (name, clients, method, epsilon), own in runs.by().items():
        constants = runs.select(table=name, clients=clients, method="constant")
        both = accuracy_text(own, constants), own.mean("spd").text("+.4f")
        yield name, clients, LOOKS[method][0], epsilon, own.n_seeds, *both


def plot(runs: Runs) -> str:
    """Return accuracy and SPD over epsilon, with standard deviations, for both splits."""
    splits = runs.by("clients")
    figure, each = panels(len(splits), 2, 9, 3.6 * len(splits) + 1)
    for (clients, own), both in zip(
        splits.items(), zip(each[::2], each[1::2], strict=True), strict=True
    ):
        for axes, field in zip(both, AccuracySpd._fields, strict=True):
            over_epsilon(axes, own, field, LOOKS)
            axes.set_title(f"{clients} clients", fontsize=9)
    legend(figure, 2)
    return as_svg(figure)


def settings_of_all() -> Iterator[PrivateSetting]:
    """Yield an epsilon's settings one after the other, so that surrogates are made once."""
    for name, clients in product(TABLES, SPLITS):
        methods = PRIVATE if clients == "unlike" else ("surrogate", "fair")
        for method in ("constant", "central", "unpenalised", "surrogate", "fair"):
            yield PrivateSetting(name, clients, method, np.inf)
        for epsilon, method in product(EPSILONS, methods):
            yield PrivateSetting(name, clients, method, epsilon)


def behind(setting: PrivateSetting) -> tuple[object, ...]:
    """Return the settings of each method."""
    private = setting.epsilon < np.inf
    of_surrogates = surrogates_version(1.0 if private else None), sf.SurrogateConfig().k_min
    own: Mapping[str, tuple[object, ...]] = {
        "dp_sgd": (SGD_RATE, SGD_CLIP, SGD_STEPS, MOMENT),
        "fair": of_surrogates * private,
        **dict.fromkeys(("surrogate", "for_all", "trees"), of_surrogates),
    }
    return MAIN.rho, DELTA, *own.get(setting.method, ())


EXPERIMENTS = (
    Experiment(
        name="runs", settings=tuple(settings_of_all()), run=run_private, summary=show,
        smoke=tuple(
            one for one in settings_of_all()
            if one.table == TABLES[0] and one.clients == "unlike" and one.epsilon in (1.0, np.inf)
        ),
        seeds=5, file="{table}.csv", sources=lambda setting: SOURCES[TASKS[setting.table][0]],
        behind=behind,
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, "privacy", *EXPERIMENTS)
