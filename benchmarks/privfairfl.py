"""Fairness before and after federated training, from counts that nobody sees the parts of.

    python -m benchmarks.privfairfl                 # 3 seeds; goes on where it stopped
    python -m benchmarks.privfairfl --seeds 1 --only table=adult training=FL

Adult and Dutch by sex, Law School by race, each among 100 clients: the comparison of Table 3 of
Pentyala et al. (2022). Noise comes from the system, so that a repetition differs within the errors
shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.harness import Experiment, main
from benchmarks.runs import Mean, Runs, mean_of
from benchmarks.showing import mark, page, published
from benchmarks.unlike.clients import weighted
from synthfair.data.datasets import SOURCES
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.postprocess import (
    RowWeights,
    ScoreHistogram,
    choose_decision,
    count_scores,
    make_weights,
    score_bins,
)
from synthfair.secure import GroupCounts, NoisyTotal, noisy_sum, score_histogram
from synthfair.settings import WeightMethod
from synthfair.surrogate import GlobalProblem
from synthfair.surrogate.fair import ridge_of

# A table among the clients, and models of it

TABLES = {"adult": "sex", "dutch": "sex", "law_school": "race"}
CLIENTS = 100

IN_ROUNDS = {"method": "dp_sgd", "rounds": 20, "batch": 50, "group_input": True}
"""Without an epsilon, local steps on batches and a mean: FedAvg. Published models read groups."""

PRIVATE = {"clip": 1.0, "epsilon": 1.0, "delta": 1e-4}
"""Of DP-SGD, for one row of one client."""


def training_settings(training: str, seed: int = 0) -> sf.TrainConfig:
    """Of training in rounds; of others, those of FL, which they do not need."""
    own = IN_ROUNDS | (PRIVATE if training == "FL-DP-SGD" else {})
    return sf.TrainConfig.model_validate(own | {"seed": seed})


def named(settings: sf.TrainConfig) -> list[tuple[str, object]]:
    """Return names and values of settings that are no defaults, and of method and learning rate."""
    always = {"method": settings.method, "learning_rate": settings.learning_rate}
    return sorted((settings.model_dump(exclude_defaults=True) | always).items())


class SplitTable(NamedTuple):
    """The rows of all clients.

    Attributes:
        schema: theirs.
        train: rows.
        user: [N] whose each training row is.
        test: rows.
    """

    schema: sf.Schema
    train: sf.Encoded
    user: np.ndarray
    test: sf.Encoded

    @property
    def n_groups(self) -> int:
        """G."""
        return len(self.schema.groups)


class ModelScores(NamedTuple):
    """A model's, of all rows."""

    train: np.ndarray
    test: np.ndarray


@lru_cache(maxsize=3)
def split(name: str, seed: int) -> SplitTable:
    """Return a table cut among the clients, a fifth of each for testing."""
    table, schema = sf.load_dataset("dutch_numbers" if name == "dutch" else name, TABLES[name])
    parts = sf.partition(table, clients=CLIENTS, seed=seed)
    user = np.repeat(np.arange(CLIENTS), [len(part.train) for part in parts])
    train, test = (
        sf.encode(pd.concat(list(some)), schema)
        for some in ([part.train for part in parts], [part.test for part in parts])
    )
    return SplitTable(schema, train, user, test)


@lru_cache(maxsize=12)
def trained(name: str, seed: int, training: str, *, smoke: bool) -> ModelScores:
    """Without anything for fairness; of CL all training rows in one place."""
    rows = split(name, seed)
    if training != "CL":
        return in_rounds(rows, seed, private=training == "FL-DP-SGD", smoke=smoke)
    parts = [weighted(part).rows(n_groups=rows.n_groups) for part in (rows.train, rows.test)]
    a, s, y, _ = parts[0]
    ridge = ridge_of(sf.ServerConfig().C, *a.shape, intercept=True)
    problem = GlobalProblem(a, s, y, np.ones(len(y)), sf.CovariancePenalty(), ridge)
    theta = problem.solve(0.0).theta
    return ModelScores(*(part.a @ theta for part in parts))


def in_rounds(
    rows: SplitTable, seed: int, *, private: bool, smoke: bool, weights: RowWeights | None = None
) -> ModelScores:
    """By all clients, in rounds."""
    config = training_settings("FL-DP-SGD" if private else "FL", seed=seed)
    config = config.model_copy(update={"rounds": 1}) if smoke else config
    data = sf.federated.make_user_data(rows.train, rows.user, rows.schema, config, weights=weights)
    model = sf.federated.train_rounds(data, config).model
    return ModelScores(*(model.scores(part.x, part.s) for part in (rows.train, rows.test)))


# What is done for fairness

POST = "thresholds", "randomised"

LOCAL = "local noise", "local response"

EPSILONS = (0.1, 0.5, 1.0, 5.0, np.inf)
"""Of the counts. Training with DP-SGD has one of its own."""

ALPHA = 0.02
"""Of pairs of thresholds; the randomised rule has 0."""

HISTOGRAMS = 5
"""Of Post in a run, each with noise of its own: the values are means over them."""

MODEL = "0" * 64
"""Takes the place of a model's hash: scores here are arrays."""

PRE: tuple[WeightMethod, ...] = get_args(WeightMethod)


class FairSetting(NamedTuple):
    """A training, what is done for fairness, and how its counts are protected.

    Attributes:
        table: of :data:`TABLES`.
        training: CL, FL, FL-DP-SGD; or constant, the more frequent label for everybody.
        fairness: none, a weight method, thresholds, randomised, or ThresholdOptimizer.
        privacy: of the counts: none, MPC+DP, local noise, or local response.
        epsilon: of the counts, infinite without.
    """

    table: str
    training: str
    fairness: str
    privacy: str
    epsilon: float


class FairValues(NamedTuple):
    """On all clients' test rows; not-a-number where the noise left nothing to decide from.

    Attributes:
        accuracy: of the decisions.
        di: |1 - DI|, DI the larger ratio of the groups' true positive rates.
        eop: difference of true positive rates.
        eodd: mean of the differences of true and of false positive rates.
        sp: difference of selection rates.
        gap: larger difference of true and of false positive rates: that of equalized odds.
    """

    accuracy: float
    di: float
    eop: float
    eodd: float
    sp: float
    gap: float


def counted(
    rows: SplitTable, scores: np.ndarray | None, setting: FairSetting, seed: tuple[int, int]
) -> ScoreHistogram:
    """Rows by group and label, and by bin where there are scores; a seed is of responses.

    Guarantee: of MPC+DP, the sum's; of local noise and local response, epsilon-differential
    privacy of one row against everybody but its client, when the row is added or removed (noise),
    or replaced (response).
    """
    privacy, epsilon = setting[-2:]
    exact, bins = (
        np.isinf(epsilon),
        21 if epsilon <= 0.1 else 101,
    )  # fewer where there is much noise
    bins = 1 if scores is None else bins
    what = GroupCounts(
        schema_hash=rows.schema.hash, groups=tuple(map(str, rows.schema.groups)),
        model=None if scores is None else MODEL, bins=bins,
        epsilon=1.0 if exact else epsilon, rows_per_client=len(rows.user),
    )  # fmt: skip
    # [clients, 2 G B]
    _, s, y = rows.train
    in_bin = np.zeros(len(y), np.int64) if scores is None else score_bins(scores, bins)
    own = [rows.user == client for client in range(CLIENTS)]
    counts = [count_scores(in_bin[one], s[one], y[one], rows.n_groups, bins) for one in own]
    parts = np.array(counts, np.int64).reshape(CLIENTS, -1)
    if privacy == "MPC+DP" and not exact:
        return score_histogram(what, noisy_sum(parts, what))
    total = parts.sum(axis=0)
    if privacy == "local noise":
        total = total + np.sum([what.noise() for _ in parts], axis=0)
    if privacy == "local response":
        total = responses(total, epsilon, np.random.default_rng(seed))
    # Nothing is refused here for its noise: the baselines are published without such a rule.
    return score_histogram(what, NoisyTotal(total, 0.0, ("all",), 2, seeded=True))


def randomised_response(
    values: np.ndarray, k: int, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Return [N] values 0 to k - 1, unchanged with the odds exp(epsilon) against each other one."""
    unchanged = rng.random(len(values)) < np.exp(epsilon) / (np.exp(epsilon) + k - 1)
    others = (values + rng.integers(1, k, len(values))) % k
    return np.where(unchanged, values, others)


def responses(total: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """[k] counts of k-ary randomised responses of rows in k cells, without their bias.

    A row reports its cell with the odds e^epsilon against each other one.
    """
    k = len(total)
    reported = randomised_response(np.repeat(np.arange(k), total), k, epsilon, rng)
    other = 1 / (np.exp(epsilon) + k - 1)
    excess = np.bincount(reported, minlength=k) - total.sum() * other
    return np.rint(excess / ((np.exp(epsilon) - 1) * other)).astype(np.int64)


def run_fair(setting: FairSetting, seed: int, *, smoke: bool) -> FairValues:
    """One method on one split."""
    rows = split(setting.table, seed)
    noisy = setting.fairness in POST and np.isfinite(setting.epsilon)
    draws = range(HISTOGRAMS if noisy and not smoke else 1)
    try:
        each = [measured(rows, chances(rows, setting, seed, i, smoke=smoke)) for i in draws]
    except sf.InputError:
        return FairValues(*[np.nan] * len(FairValues._fields))
    return FairValues(*np.mean(each, axis=0).round(6).tolist())


def chances(
    rows: SplitTable, setting: FairSetting, seed: int, draw: int, *, smoke: bool
) -> np.ndarray:
    """[N_test] probability of the decision +1.

    Raises:
        InputError: counts do not stand out from their noise.
    """
    if setting.training == "constant":
        return np.full(len(rows.test.y), float(rows.train.y.mean() > 0))
    for method in PRE:
        if setting.fairness == method:
            weights = make_weights(counted(rows, None, setting, (seed, draw)), method)
            private = setting.training == "FL-DP-SGD"
            scores = in_rounds(rows, seed, private=private, smoke=smoke, weights=weights)
            return (scores.test > 0).astype(float)
    scores = trained(setting.table, seed, setting.training, smoke=smoke)
    if setting.fairness == "none":
        return (scores.test > 0).astype(float)
    if setting.fairness == "ThresholdOptimizer":
        return threshold_optimizer(rows, scores)
    histogram = counted(rows, scores.train, setting, (seed, draw))
    randomized = setting.fairness == "randomised"
    alpha = 0.0 if randomized else ALPHA
    chosen = choose_decision(histogram, "equalized_odds", alpha, randomized=randomized)
    return chosen.decision.probabilities(scores.test, rows.test.s)


def threshold_optimizer(rows: SplitTable, scores: ModelScores) -> np.ndarray:
    """[N_test] chances of fairlearn's rule, chosen of all training rows without privacy."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.linear_model import LogisticRegression

    same = LogisticRegression()  # of one input, the score z: its probability is sigma(z)
    same.classes_, same.coef_, same.intercept_ = np.array([0, 1]), np.ones((1, 1)), np.zeros(1)
    with warnings.catch_warnings():  # fairlearn writes to pandas in a way that pandas will give up
        warnings.simplefilter("ignore")
        rule = ThresholdOptimizer(
            estimator=same, constraints="equalized_odds", prefit=True,
            objective="accuracy_score", predict_method="predict_proba",
        )  # fmt: skip
        rule.fit(scores.train[:, None], (rows.train.y > 0) * 1, sensitive_features=rows.train.s)
        chance = rule._pmf_predict(scores.test[:, None], sensitive_features=rows.test.s)
    return np.asarray(chance)[:, 1]


def measured(rows: SplitTable, chance: np.ndarray) -> FairValues:
    """Metrics as means over coins, of the chances [N_test] of the decision +1."""
    _, s, y = rows.test
    rates = group_rates(Scored(y, np.zeros(len(y)), s, rows.n_groups, chance))
    true, false, selected = (
        np.array([getattr(group, name) for group in rates])
        for name in ("true_positive_rate", "false_positive_rate", "selection_rate")
    )
    eop, fpr, sp = (float(np.ptp(rate)) for rate in (true, false, selected))
    ratio = 1.0 if eop == 0 else float(true.max() / true.min()) if true.min() else np.inf
    right = float(np.mean((1 + y * (2 * chance - 1)) / 2))
    return FairValues(right, ratio - 1, eop, (eop + fpr) / 2, sp, max(eop, fpr))


# The page


THRESHOLDS = 1001
"""Of Post, as published."""

DELTA = 1e-6
"""Of what the published accounting costs."""


def show(runs: Runs) -> dict[str, str]:
    """Return the page by file name."""
    epsilons = [
        f"{e:g} | {THRESHOLDS * e:,.4g} | {least_epsilon(e, DELTA):,.4g} | {e:g}"
        for e in (0.1, 0.5, 1.0)
    ]
    text = page(
        "privfairfl/privfairfl",
        runs,
        thresholds=THRESHOLDS,
        delta=DELTA,
        epsilons=epsilons,
        settings=setting_lines(runs),
        published=[tuple(line.values()) for line in published("pentyala_2022_table3")],
    )
    return {"privfairfl.md": text}


def setting_lines(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield a line of the page for each setting."""
    constants = runs.select(training="constant").by("table")
    for setting, own in runs.by().items():
        refused = int(np.isnan(own.values("accuracy")).sum())
        means = [of_seeds(own, name) for name in ("accuracy", "di", "eop", "eodd", "sp", "gap")]
        cells = [mean.text() if mean else "" for mean in means]
        if setting.training != "constant" and setting.table in constants:
            cells[0] += mark(means[0], of_seeds(constants[setting.table], "accuracy"))
        epsilon = "" if setting.privacy == "none" else f"{setting.epsilon:g}"
        yield *setting[:4], epsilon, *cells, refused or ""


def of_seeds(runs: Runs, field: str) -> Mean | None:
    """Return the mean over the seeds that were not refused; None if all were."""
    known = [value for value in runs.values(field) if not np.isnan(value)]
    return mean_of(known) if known else None


@cache
def least_epsilon(printed: float, delta: float) -> float:
    """Return the epsilon of all thresholds together."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp.LaplaceDpEvent(1 / printed), THRESHOLDS)
    return float(accountant.get_epsilon(delta))


def settings_of(table: str) -> Iterator[FairSetting]:
    """Of one table."""
    yield FairSetting(table, "constant", "none", "none", np.inf)
    for training in ("CL", "FL", "FL-DP-SGD"):
        yield FairSetting(table, training, "none", "none", np.inf)
        yield FairSetting(table, training, "ThresholdOptimizer", "none", np.inf)
        for fairness, epsilon in product(POST, EPSILONS):
            yield FairSetting(table, training, fairness, "MPC+DP", epsilon)
    for fairness, epsilon in product(PRE, EPSILONS):
        yield FairSetting(table, "FL", fairness, "MPC+DP", epsilon)
    for fairness, privacy, epsilon in product((*POST, "published"), LOCAL, EPSILONS[:-1]):
        yield FairSetting(table, "FL", fairness, privacy, epsilon)
    for privacy in ("MPC+DP", "local noise"):  # the rows of Table 3
        yield FairSetting(table, "FL-DP-SGD", "published", privacy, 1.0)


SMOKE = (
    ("constant", "none", "none", np.inf), ("FL", "none", "none", np.inf),
    ("FL", "ThresholdOptimizer", "none", np.inf), ("FL", "randomised", "MPC+DP", 1.0),
    ("FL", "thresholds", "local response", 1.0), ("FL", "published", "MPC+DP", 1.0),
    ("FL", "published", "local noise", 1.0),
)  # fmt: skip

COMPARISON = Experiment(
    name="runs", settings=tuple(one for table in TABLES for one in settings_of(table)),
    run=run_fair, summary=show, smoke=tuple(FairSetting("law_school", *one) for one in SMOKE),
    seeds=3, sources=lambda setting: SOURCES[setting.table],
    behind=lambda setting: (ALPHA, HISTOGRAMS, named(training_settings(setting.training))),
)  # fmt: skip

EXPERIMENTS = (COMPARISON,)

if __name__ == "__main__":
    main(__doc__, "privfairfl", *EXPERIMENTS)
