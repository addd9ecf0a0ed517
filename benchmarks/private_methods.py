"""All ways to one private and fair model: accuracy and SPD against epsilon.

These are runs of :mod:`benchmarks.privacy`: four clients, cut by Dirichlet(0.3) on pairs of group
and label; methods that are not federated have all training rows in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import root_scalar

import synthfair as sf
from benchmarks import records
from benchmarks.additive import GAP, boosted, by_thresholds
from benchmarks.harness import Experiment, surrogates_version
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import accuracy_text, as_svg, legend, over_epsilon, page, panels
from benchmarks.unlike.clients import TASKS, Cut, accuracy_and_spd, federation, weighted
from benchmarks.unlike.one_noise import one_for_all
from benchmarks.unlike.training import MAIN, METHODS, Scores, from_fair_releases, trained
from synthfair.compare.federation import pooled
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import Encoded
from synthfair.federated import Cohorts, LogisticRegression, engine, make_users
from synthfair.federated.algorithm import algorithm
from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.user_rows import UserRows
from synthfair.model import Params
from synthfair.privacy.accounting import mu_for

TABLES = ("law_school_race", "dutch", "adult")
"""Of :data:`TASKS`."""

EPSILONS, DELTA = (0.3, 1.0, 3.0, 10.0), 1e-6

LOOKS = {
    "constant": ("constant classifier", "#CC79A7", ""),
    "central": ("central, not private", "0.4", ""),
    "unpenalised": ("central, not private, no penalty", "0.7", ""),
    "each": ("surrogates, each its own noise", "#0072B2", "o"),
    "for_all": ("surrogates, one noise for all", "#56B4E9", "D"),
    "trees": ("boosted trees on these records, thresholds by group", "#009E73", "s"),
    "fair": ("fair releases", "#000000", "v"),
    "dp_sgd": ("DP-SGD, central", "#E69F00", "^"),
    "aim": ("AIM, central", "#D55E00", "P"),
    "safes": ("SAFES, central", "#7F3C00", "X"),
}
"""Name, colour and marker of each method; none of those without an epsilon."""

OF_AIM, FEWER = ("aim", "safes"), {"aim": 2, "safes": 2, "fair": 3}
"""Methods on AIM's records, which are not run on Adult; and seeds where there are fewer than 5."""


class EverySetting(NamedTuple):
    """One of :data:`TABLES`, and of :data:`LOOKS`; epsilon is infinite without privacy."""

    table: str
    method: str
    epsilon: float


def run_every(setting: EverySetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """One method on one split."""
    cut = Cut(setting.table, 4, "0.3", seed)
    if setting.method in METHODS and setting.epsilon == np.inf:
        chance = decisions(METHODS[setting.method].train(cut, MAIN, smoke=smoke))
    else:
        chance = PRIVATE[setting.method](cut, setting.epsilon, smoke=smoke)
    accuracy, spd = accuracy_and_spd(federation(cut), chance)
    return AccuracySpd(round(accuracy, 6), round(spd, 6))


def decisions(found: Scores) -> np.ndarray:
    """[N_test] chances of the decision +1, which are 0 and 1."""
    return (found.scores > 0).astype(float)


# One upload of each client


def surrogate_config(epsilon: float) -> sf.SurrogateConfig:
    """The defaults, with this epsilon."""
    return sf.SurrogateConfig(epsilon=epsilon, delta=DELTA)


def each_upload(cut: Cut, epsilon: float) -> records.Upload:
    """The clients' surrogates, made once for all learners."""
    return records.upload((cut.task, "linear", cut.seed), epsilon)


def each(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """The linear model on surrogates of the clients."""
    return records.linear(MAIN.penalty, federation(cut), each_upload(cut, epsilon))[0]


def trees(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Boosted trees on the same surrogates; their thresholds by group on rows drawn by weight."""
    clients, sent = federation(cut), each_upload(cut, epsilon)
    x, s, y = sf.encode(sent.records, clients.schema)
    learner = boosted(cut.seed, smoke=smoke).fit(x, y, sample_weight=sent.weight)
    total, rng = sent.weight.sum(), np.random.default_rng(cut.seed)
    drawn = rng.choice(len(y), round(total), p=sent.weight / total)
    test, scores = pooled(clients.test), learner.decision_function(x)[drawn]
    chosen_on = scores, s[drawn], y[drawn]
    return by_thresholds(clients, chosen_on, (learner.decision_function(test.x), test.s))


def for_all(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """The linear model on a surrogate of the clients' secure sums."""
    table = one_for_all(cut, surrogate_config(epsilon))
    return decisions(trained(table, MAIN, federation(cut)))


def fair(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """Wu et al. (2024), each client with this epsilon."""
    found = from_fair_releases(cut, MAIN, smoke=smoke, epsilon=epsilon, delta=DELTA)
    return decisions(found)


# DP-SGD on all rows

SGD_RATE, SGD_CLIP, SGD_STEPS = 4.0, 1.0, 200
"""Between 8 and 100 steps and 4 and 400, the best of ten on training rows of Law School and Dutch.
Each step is on all rows: all releases are Gaussian mechanisms, whose composition is exact."""

MOMENT = 0.1
"""The share of mu^2 that the covariance's moment takes; the gradients have the rest."""


@algorithm
class FairDpSgd(DpSgd):
    """DP-SGD in which each step is followed by the proximal step of the covariance penalty.

    The penalty is rho/2 (m'theta)^2. Once m is released with noise, it is a public function.
    """

    moment: jax.Array | None = None

    def noisy_gradient(self, params: Params, rows: UserRows, key: jax.Array) -> Params:
        """The gradient by which both steps are one."""
        assert self.moment is not None
        slope, m = super().noisy_gradient(params, rows, key), self.moment
        after = m @ (params - self.learning_rate * slope)
        return slope + MAIN.rho * after / (1 + self.learning_rate * MAIN.rho * m @ m) * m


def noise_of_parts(epsilon: float) -> tuple[float, float]:
    """The noise of the moment and of a step's gradient, in units of their sensitivities."""
    mu = mu_for(epsilon, DELTA)
    return 1 / (MOMENT**0.5 * mu), (SGD_STEPS / (1 - MOMENT)) ** 0.5 / mu


def dp_sgd(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """The package's DP-SGD, one client with all rows; the noise follows from the split's seed."""
    clients, (of_moment, of_gradient) = federation(cut), noise_of_parts(epsilon)
    real = weighted(pooled(clients.train)).rows(n_groups=1)
    a, s, y = map(np.asarray, real[:3])
    # Sums of inputs by group. A column adds at most 1 to a row's square, as do group and intercept.
    longest = (len(clients.schema.features) + 2) ** 0.5
    by_group = np.stack([a[s == group].sum(0) for group in range(2)])
    noise = np.random.default_rng(cut.seed).normal(size=by_group.shape)
    by_group += longest * of_moment * noise
    share = by_group[1, -1] / by_group[:, -1].sum()
    method = FairDpSgd(
        LogisticRegression(a.shape[1]), batch=len(y), local_steps=1 if smoke else SGD_STEPS,
        noise=of_gradient, learning_rate=SGD_RATE, clip=SGD_CLIP,
        moment=jnp.asarray((by_group[1] - share * by_group.sum(0)) / len(y)),
    )  # fmt: skip
    users = make_users(a, s, y, np.zeros(len(y)))
    done = engine.run(method, users, Cohorts.everyone(1), rounds=1, seed=cut.seed)
    test = weighted(pooled(clients.test)).rows(n_groups=1)
    return (np.asarray(test.a @ method.params(done.state)) > 0).astype(float)


# AIM on all rows, which is imported only where it runs

MOST_VALUES, BINS = 16, 8
"""Values of a column up to which each is a level; else it is cut into so many bins, alike wide."""

AIM_ROUNDS, AIM_STEPS, AIM_SIZE = 8, 200, 0.1
"""Marginals of two columns at most; steps of a fit after each of them; and MB of a model."""


def levels(x: np.ndarray) -> list[np.ndarray]:
    """The values of each encoded column [N, d], or the middles of its bins."""
    found = [np.unique(column) for column in x.T]
    return [
        values if len(values) <= MOST_VALUES else (np.arange(BINS) + 0.5) / BINS for values in found
    ]


@lru_cache(maxsize=1)
def aim_records(cut: Cut, epsilon: float, *, smoke: bool) -> Encoded:
    """Records by AIM (McKenna et al. 2022), of pairs of columns."""
    # So, and not by import, they are of no type: types are checked with and without them.
    dp, pl, estimation = map(import_module, ("opendp.prelude", "polars", "mbi.estimation"))
    dp.enable_features("contrib")
    clients = federation(cut)
    x, s, y = pooled(clients.train)
    values = [*levels(x), np.arange(2), np.array([-1.0, 1.0])]
    rows = [*x.T, s, y]
    names = [f"x{i}" for i in range(x.shape[1])] + ["s", "y"]
    codes = {
        name: np.abs(column[:, None] - own).argmin(1)
        for name, column, own in zip(names, rows, values, strict=True)
    }

    def spends_more(rho: float) -> float:
        return RdpAccountant().compose(ZCDpEvent(rho)).get_epsilon(DELTA) - epsilon

    def fit(domain: Any, loss: Any, *, potentials: Any = None) -> Any:
        steps = 2 if smoke else AIM_STEPS
        return estimation.mirror_descent(domain, loss, potentials=potentials, iters=steps)

    rho = root_scalar(spends_more, bracket=(1e-8, 10 * epsilon)).root
    context = dp.Context.compositor(
        data=pl.LazyFrame(codes), privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )  # fmt: skip
    rounds = 1 if smoke else AIM_ROUNDS
    aim = dp.mbi.AIM(queries=2, rounds=rounds, max_size=AIM_SIZE, estimator=fit)
    keys = {name: list(range(len(own))) for name, own in zip(names, values, strict=True)}
    query = context.query(rho=rho).select(*names).contingency_table(keys=keys, algorithm=aim)
    # Not method="round": mbi 1.1.0 correlates columns then that are independent in its model. It
    # made -.15 of Law School's .07 between LSAT and label.
    table = query.release().synthesize(method="sample").drop_nulls()
    columns = [own[table[name].to_numpy()] for name, own in zip(names, values, strict=True)]
    return Encoded(np.column_stack(columns[:-2]), *columns[-2:])


def aim(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """The linear model with the covariance penalty on AIM's records."""
    table = weighted(aim_records(cut, epsilon, smoke=smoke))
    return decisions(trained(table, MAIN, federation(cut)))


def safes(cut: Cut, epsilon: float, *, smoke: bool) -> np.ndarray:
    """SAFES: fair preprocessing of AIM's records, then an ordinary logistic regression."""
    from fairlearn.preprocessing import CorrelationRemover
    from sklearn.linear_model import LogisticRegression as Logistic

    made, test = aim_records(cut, epsilon, smoke=smoke), pooled(federation(cut).test)
    remover = CorrelationRemover(sensitive_feature_ids=[made.x.shape[1]])
    x = remover.fit_transform(np.column_stack([made.x, made.s]))
    model = Logistic(max_iter=1000).fit(x, made.y)
    return (model.predict(remover.transform(np.column_stack([test.x, test.s]))) > 0).astype(float)


PRIVATE = {
    "each": each, "trees": trees, "for_all": for_all, "fair": fair, "dp_sgd": dp_sgd, "aim": aim,
    "safes": safes,
}  # fmt: skip
"""Of a cut, an epsilon and smoke: [N_test] chances of the decision +1."""


# The page


def show_every(runs: Runs) -> dict[str, str]:
    """All means, and a plot for each table."""
    numbers = {
        "rho": MAIN.rho, "gap": GAP, "clip": SGD_CLIP, "steps": SGD_STEPS, "moment": MOMENT,
        "most": MOST_VALUES, "bins": BINS, "rounds": AIM_ROUNDS, "fit_steps": AIM_STEPS,
        "size": AIM_SIZE, "of_aim": FEWER["aim"], "of_fair": FEWER["fair"],
    }  # fmt: skip
    text = page("privacy/every", runs, rows=every_lines(runs), **numbers)
    return {"every.md": text} | {
        f"every_{name}.svg": plot_every(own) for name, own in runs.by("table").items()
    }


def every_lines(runs: Runs) -> Iterator[tuple[object, ...]]:
    """A row a setting."""
    for (name, method, epsilon), own in runs.by().items():
        accuracy = accuracy_text(own, runs.select(table=name, method="constant"))
        yield name, LOOKS[method][0], epsilon, own.n_seeds, accuracy, own.mean("spd").text("+.4f")


def plot_every(runs: Runs) -> str:
    """Accuracy and SPD over epsilon, with standard deviations."""
    figure, both = panels(1, 2, 9, 4.6)
    for axes, field in zip(both, AccuracySpd._fields, strict=True):
        over_epsilon(axes, runs, field, LOOKS)
    legend(figure, 2)
    return as_svg(figure)


def settings_of_all() -> Iterator[EverySetting]:
    """An epsilon's one after the other, so that records are made once."""
    for name in TABLES:
        for method in ("constant", "central", "unpenalised"):
            yield EverySetting(name, method, np.inf)
        for epsilon, method in product(EPSILONS, PRIVATE):
            if name != "adult" or method not in OF_AIM:
                yield EverySetting(name, method, epsilon)


def behind(setting: EverySetting) -> tuple[object, ...]:
    """The settings of each method."""
    of_surrogates = surrogates_version(1.0), records.CONFIGS[records.PRIVATE]
    own: Mapping[str, tuple[object, ...]] = {
        "dp_sgd": (SGD_RATE, SGD_CLIP, SGD_STEPS, MOMENT),
        **dict.fromkeys(OF_AIM, (MOST_VALUES, BINS, AIM_ROUNDS, AIM_STEPS, AIM_SIZE)),
        **dict.fromkeys(("each", "for_all", "trees"), of_surrogates),
    }
    return MAIN.rho, DELTA, *own.get(setting.method, ())


EVERY = Experiment(
    name="every", settings=tuple(settings_of_all()), run=run_every, summary=show_every,
    smoke=tuple(
        one for one in settings_of_all()
        if one.table == TABLES[0] and one.epsilon in (1.0, np.inf) and one.method not in OF_AIM
    ),
    seeds=5, most_seeds=lambda setting: FEWER.get(setting.method, np.inf),
    file="every_{table}.csv", sources=lambda setting: SOURCES[TASKS[setting.table][0]],
    behind=behind, default=False,
)  # fmt: skip
