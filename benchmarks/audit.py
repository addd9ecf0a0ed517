"""Whether an attacker can tell from a file that somebody's row is in the table.

    python -m benchmarks.audit                      # goes on where it stopped

A client has 600 rows of Dutch, a hundredth, and makes files as everybody does, with the defaults.
The attacker knows code, settings and schema, makes shadow files with and without the target's row
(Stadler, Oprisanu and Troncoso 2022; Houssiau et al. 2022), and fits a log-likelihood ratio to
them. What is reported is counted on as many other files.

``private``: files with epsilon, of an attacker who knows all rows but the target's. Shadow files
come in pairs with the same noise, so that they differ by the row alone; the files that count have
the system's. Rates of success, with the intervals of Clopper and Pearson, bound epsilon from below
(Jagielski, Ullman and Oprea 2020), and better if noise is Gaussian, as the privacy statement says
(Nasr et al. 2023). Files with a thirtieth of the noise show that the attack sees what is wrong.

``open``: files without epsilon. An attacker who knows all other rows makes both files that there
may be, and compares. One who knows the target and the population, but not the client's rows, makes
files of rows drawn anew from the population, each with half of all targets (Carlini et al. 2022).

``membership``: the best linear test on the sums that a file tells, by what is in
:mod:`benchmarks.membership`.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.stats import beta, norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.membership import MEMBERSHIP
from benchmarks.showing import page_of
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import encode_records
from synthfair.data.schema import Numeric
from synthfair.privacy.accounting import epsilon_of
from synthfair.privacy.mechanism import GaussianMechanism, NoisySum
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release.settings import ReleaseConfig
from synthfair.surrogate.levels import Columns

KINDS = {"surrogate": sf.SurrogateConfig, "fair": partial(sf.DistillConfig, group_input=True)}
"""Kinds of files, and their settings."""

ROWS, FILES, DELTA, CONFIDENCE = 600, 64, 1e-6, 0.99
"""The rows of a client; the files of a run, half of them shadow files; delta; and the
confidence of a bound, both rates together."""

TARGETS, POOL, COMPARED, RARE = 64, 1200, 10, 0.001
"""Without epsilon: targets, the rows that they are drawn from, those whose file with and without
them is compared, and the rate of false alarms, of 1,024 pairs of a file and a target outside."""

QUIET = 30
"""By how much noise is too small where a bug is planted: as if a sum were a mean of 30 rows."""


def inputs(rows: sf.Encoded) -> np.ndarray:
    """[N, n] of a model; of two groups."""
    return np.column_stack([rows.x, rows.s, np.ones(len(rows.y))])


def statistics_of(
    release: sf.Release, targets: sf.Encoded, known: sf.Encoded, schema: sf.Schema
) -> np.ndarray:
    """[K, 8] what a file says of each target, in numbers that the target's row would change.

    A sum with Gaussian noise is best told apart by its product with the row's own term. These are
    such products for what files are made of, over the weighted records in the target's pair of
    group and label: rows, levels that are the target's, pairs of them, numbers and their products.
    Then how many records are nearly like the target. Of the model theta that is trained on the file
    they are y a'theta and y a'S theta, with S the second moment of the rows that are known: a row
    moves theta by about S^-1 y a, and other rows, or noise, by errors of covariance S^-1 or S^-2.
    """
    x, weight = release.x, np.ones(len(release.y))
    if release.weight is not None:
        x, weight = encode_records(x, schema), np.asarray(release.weight)
    rows, columns = sf.Encoded(x, release.s, release.y), Columns.of(schema, private=False)
    same = (columns.levels(targets)[:, None] == columns.levels(rows)).sum(axis=2)
    product = (targets.x - 0.5) @ (x - 0.5).T
    inside = weight * ((targets.s[:, None] == rows.s) & (targets.y[:, None] == rows.y))
    functions = 1, same, same * (same - 1) / 2, product, product**2, 2.0**same
    sums = [(inside * one).sum(axis=1) for one in functions]

    a, own, b = map(inputs, (rows, targets, known))
    strength = a.shape[1] ** 2 / (sf.DistillConfig().lambda_theta * weight.sum())
    exact: Any = {"fit_intercept": False, "solver": "newton-cholesky", "tol": 1e-10}
    theta = LogisticRegression(C=strength, **exact).fit(a, rows.y, sample_weight=weight).coef_[0]
    second = b.T @ b / len(b)
    return np.column_stack([*sums, targets.y * (own @ theta), targets.y * (own @ second @ theta)])


def guesses(numbers: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the second half of the files, log-likelihood ratios, and whether the target is in.

    The ratio is that of two Gaussians with one covariance, shrunk as by Ledoit and Wolf (2004),
    which are fitted to the first half, less each target's mean over files without it.

    Args:
        numbers: [F, K, m] of each file and target, see :func:`statistics_of`.
        inside: [F, K] whether the target is in the file.
    """
    half = len(numbers) // 2
    out = ~inside[:half, :, None]
    off = numbers - (numbers[:half] * out).sum(axis=0) / out.sum(axis=0)
    off /= off[:half].std(axis=(0, 1)) + 1e-9
    flat, truth, seen = off.reshape(-1, off.shape[2]), inside.ravel(), half * inside.shape[1]
    learner = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])
    return learner.fit(flat[:seen], truth[:seen]).decision_function(flat[seen:]), truth[seen:]


def bounds(
    hits: int, ins: int, alarms: int, outs: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Least epsilon at DELTA, of any mechanism and with Gaussian noise, by how often "in" was said.

    With rates of false alarms a and of misses b, (epsilon, delta)-DP asks for
    1 - delta - b <= exp(epsilon) a, and for the same with a and b exchanged; mu-GDP for
    Phi^-1(1 - a) - Phi^-1(b) <= mu. Both are put at the upper ends of their intervals, which are
    right for the mean rates of several runs, too (Hoeffding 1956), as both conditions are convex.
    """
    each, counts = (1 + confidence) / 2, ((alarms, outs), (ins - hits, ins))
    a, b = (float(beta.ppf(each, k + 1, n - k)) if k < n else 1.0 for k, n in counts)
    mu = float(norm.isf(a) - norm.ppf(b))
    least = math.log(max(1.0, (1 - DELTA - a) / b, (1 - DELTA - b) / a))
    return least, epsilon_of(mu, DELTA) if mu > 0 else 0.0


class AuditSetting(NamedTuple):
    """A kind of file, the epsilon it claims, whose row is looked for, and how small noise is."""

    kind: str
    epsilon: float
    target: str
    quiet: int = 1

    @property
    def config(self) -> ReleaseConfig:
        """The defaults; an epsilon that is infinite is none."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return KINDS[self.kind](epsilon=epsilon, delta=epsilon and DELTA)


class PrivateValues(NamedTuple):
    """Of the files that count: area under the curve, and how many where "in" is likelier."""

    auc: float
    hits: int
    ins: int
    alarms: int
    outs: int


@lru_cache(maxsize=1)
def population() -> tuple[pd.DataFrame, sf.Schema, sf.Encoded]:
    """Return the whole table, its schema, and its rows encoded."""
    table, schema = sf.load_dataset("dutch")
    return table, schema, sf.encode(table, schema)


def extreme() -> pd.DataFrame:
    """One row: rarest categories, and of numbers the bound farther from the mean.

    Its group and label are the pair of which a model of the population is most wrong.
    """
    table, schema, encoded = population()
    row = {}
    for name, column in schema.features.items():
        if isinstance(column, Numeric):
            low = table[name].astype(float).mean() > (column.lower + column.upper) / 2
            row[name] = f"{column.lower if low else column.upper:g}"
        else:
            row[name] = table[name].value_counts().idxmin()
    learner = LogisticRegression(max_iter=300).fit(inputs(encoded), encoded.y)
    pairs = table[[schema.sensitive, schema.label]].drop_duplicates().to_dict("records")
    rows = pd.DataFrame([row | pair for pair in pairs])[table.columns].astype(table.dtypes)
    ends = sf.encode(rows, schema)
    return rows.iloc[[int((ends.y * learner.decision_function(inputs(ends))).argmin())]]


def quiet_sum(mechanism: GaussianMechanism, *more: Any) -> NoisySum:
    """Return a noisy sum with a planted bug: its noise is too small."""
    return NoisySum(mechanism.model_copy(update={"noise": mechanism.noise / QUIET}), *more)


def run_private(setting: AuditSetting, seed: int, *, smoke: bool) -> PrivateValues:
    """One table, and an attack on its files."""
    table, schema, _ = population()
    drawn = table.sample(ROWS + 1, random_state=seed)
    others, target = drawn[1:], extreme() if setting.target == "extreme" else drawn[:1]
    config = setting.config.model_copy(update={"seed": seed})
    sums = quiet_sum if setting.quiet > 1 else NoisySum
    with patch("synthfair.surrogate.sums.NoisySum", sums):
        return attack(others, target, schema, config, files=8 if smoke else FILES)


def attack(
    others: pd.DataFrame, target: pd.DataFrame, schema: sf.Schema, config: ReleaseConfig, files: int
) -> PrivateValues:
    """So many files, without and with the target by turns; the first half are shadow files."""
    known, row = sf.encode(others, schema), sf.encode(target, schema)
    inside, numbers = np.arange(files) % 2 > 0, []
    for i, there in enumerate(inside):
        noise = seeded(files * config.seed + i // 2) if i < files // 2 else system_entropy
        rows = pd.concat([others, target]) if there else others
        release = sf.distill_table(rows, schema, config, noise=noise).release
        numbers.append(statistics_of(release, row, known, schema))
    score, truth = guesses(np.array(numbers), inside[:, None])
    auc, n = round(float(roc_auc_score(truth, score)), 4), len(truth) // 2
    return PrivateValues(auc, int((score[truth] > 0).sum()), n, int((score[~truth] > 0).sum()), n)


class OpenValues(NamedTuple):
    """Area under the curve, share of targets found at RARE, and share of rows that change the file.

    The first two are of an attacker who knows the population, the last of one who knows all other
    rows.
    """

    auc: float
    found: float
    changed: float


def targets_of(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """[TARGETS] positions of targets in the population, and those of all rows out of the pool.

    Of the pool they are those farthest from the mean of their pair of group and label, in standard
    deviations; or any.
    """
    x, s, y = population()[2]
    drawn = np.random.default_rng(seed).permutation(len(y))
    pool, rest = drawn[:POOL], drawn[POOL:]
    cells = pd.DataFrame(x).groupby(2 * s + (y > 0))
    off = (x - cells.transform("mean")) / (cells.transform("std") + 1e-9)
    if kind == "farthest":
        pool = pool[np.argsort(-(off**2).sum(axis=1).to_numpy()[pool], kind="stable")]
    return pool[:TARGETS], rest


def run_open(setting: AuditSetting, seed: int, *, smoke: bool) -> OpenValues:
    """Files of other rows of the population each; and of one client with and without a row."""
    table, schema, encoded = population()
    targets, rest = targets_of(setting.target, seed)
    rows, config = sf.Encoded(*(part[targets] for part in encoded)), setting.config
    rng, numbers, members = np.random.default_rng(seed), [], []
    for i in range(8 if smoke else FILES):  # by turns those that the file before has not
        members.append(~members[-1] if i % 2 else rng.permutation(TARGETS) < TARGETS // 2)
        others = rng.choice(rest, ROWS - TARGETS // 2, replace=False)
        own = table.iloc[np.concatenate([others, targets[members[-1]]])]
        numbers.append(
            statistics_of(sf.distill_table(own, schema, config).release, rows, encoded, schema)
        )
    score, truth = guesses(np.array(numbers), np.array(members))
    least = np.sort(score[~truth])[::-1][int(RARE * (~truth).sum())]

    others = table.iloc[rng.choice(rest, ROWS - 1, replace=False)]
    without, changed = sf.distill_table(others, schema, config).release, []
    for at in targets[: 1 if smoke else COMPARED]:
        there = sf.distill_table(pd.concat([others, table.iloc[[at]]]), schema, config).release
        names = ("x", "s", "y", "weight")
        pairs = ((getattr(there, name), getattr(without, name)) for name in names)
        changed.append(not all(np.array_equal(*pair) for pair in pairs))
    auc, found = roc_auc_score(truth, score), (score[truth] > least).mean()
    return OpenValues(round(float(auc), 4), round(float(found), 4), float(np.mean(changed)))


def behind(setting: AuditSetting) -> tuple[object, ...]:
    """Return what a run depends on: the settings of a file, and of the attack."""
    config = setting.config
    of_records = setting.kind == "surrogate" or config.epsilon is not None
    version = [surrogates_version(config.epsilon)] * of_records
    return (
        *version,
        config,
        getattr(config, "k_min", None),
        ROWS,
        FILES,
        TARGETS,
        POOL,
        COMPARED,
        RARE,
        QUIET,
    )


ATTACKED = (1.0, "extreme", 1), (4.0, "extreme", 1), (4.0, "random", 1), (4.0, "extreme", QUIET)
"""Epsilon, target, and how small noise is."""

PRIVATE = Experiment(
    name="private", settings=tuple(AuditSetting(k, *one) for one in ATTACKED for k in KINDS),
    run=run_private, summary=page_of("audit/private"),
    smoke=(AuditSetting("surrogate", 4.0, "extreme", QUIET),), seeds=5,
    most_seeds=lambda setting: 3 if setting.quiet > 1 else 5,
    sources=lambda _: SOURCES["dutch"], behind=behind, parallel=True,
)  # fmt: skip

OPEN = Experiment(
    name="open",
    settings=tuple(AuditSetting(k, math.inf, to) for to in ("random", "farthest") for k in KINDS),
    run=run_open, summary=page_of("audit/open"),
    smoke=(AuditSetting("fair", math.inf, "random"),), seeds=5,
    sources=lambda _: SOURCES["dutch"], behind=behind, parallel=True,
)  # fmt: skip

EXPERIMENTS = (PRIVATE, OPEN, MEMBERSHIP)

if __name__ == "__main__":
    main(__doc__, "audit", *EXPERIMENTS)
