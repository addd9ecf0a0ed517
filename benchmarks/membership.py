"""The best linear test of whether a row is in a table, by the sums that a surrogate's file tells.

``membership`` of :mod:`benchmarks.audit`. The weights of a cell's records are
log p = const + f'lambda with lambda = (t - p'f) / v, so that whoever has the file solves for
combinations of the sums t, which are rounded or noisy; levels and pairs of levels are counted in
the records. The attacker, who has the population, but not the client's rows, compares these sums
with those of other rows: a row of the cell is scored by (f - mu)' (n Cov + R)^-1 (t - n mu), with R
the variance of the errors. The tree and the models follow from the records, too, up to those of
hardly any weight; they are given to the attacker. Cells of a block are left alone.

The same sums are equations for the labels of a client's persons whose columns and groups are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import synthfair as sf
from benchmarks.harness import Experiment, surrogates_version
from benchmarks.showing import page_of
from synthfair.data.batches import in_memory
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import expand
from synthfair.privacy.accounting import discrete_mu_for
from synthfair.privacy.mechanism import SumName
from synthfair.surrogate.records import Sums, Surrogate, read_sums, surrogate_of, variance_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums, moment_terms, smooth_rates

DELTA, FOUND_AT = 1e-6, 0.01
"""Delta, with an epsilon; and the rate of false alarms at which members are found."""

COUNTED = 1.0
"""Variance of a count of records, beside that of the sum that they were drawn by."""

ENOUGH = 200
"""Rows of other clients in a cell, without which it is left alone."""


class MemberSetting(NamedTuple):
    """A table, how many clients share it, k_min, and an epsilon; one that is infinite is none."""

    table: str
    clients: int
    k_min: int
    epsilon: float

    @property
    def config(self) -> sf.SurrogateConfig:
        """The settings; of a table with another row in place of one, as the attack compares."""
        private: Any = {"epsilon": self.epsilon, "delta": DELTA, "relation": "replace"}
        return sf.SurrogateConfig(k_min=self.k_min, **(private if self.epsilon < np.inf else {}))

    @property
    def most(self) -> float:
        """The largest area under the curve that epsilon allows."""
        private = self.epsilon < np.inf
        return float(norm.cdf(discrete_mu_for(self.epsilon, DELTA) / 2**0.5)) if private else 1.0


class MemberValues(NamedTuple):
    """The attack's success, and the share of labels guessed from columns alone, and with the file.

    Attributes:
        rows: of the client.
        auc: area under the curve, over members and as many others.
        found: share of members at FOUND_AT false alarms.
        before: share of labels that a model of others' rows guesses.
        after: the same with the file's sums.
    """

    rows: int
    auc: float
    found: float
    before: float
    after: float


def cell_of(rows: sf.Encoded | Surrogate) -> np.ndarray:
    """Return the cell of each row."""
    return 2 * rows.s + (rows.y > 0)


class Told(NamedTuple):
    """What the file tells of a cell.

    Attributes:
        n: number of rows, rounded or noisy.
        directions: [k, m] of the functions that weights meet, those whose sums are solved for.
        sums: [k + l] these, and of the functions that records are drawn by.
        errors: [k + l, k + l] covariance of the errors of these sums.
    """

    n: float
    directions: np.ndarray
    sums: np.ndarray
    errors: np.ndarray


class Terms(NamedTuple):
    """The functions of rows whose sums make a surrogate, and the deviation of each sum's error."""

    met: np.ndarray
    drawn: np.ndarray
    met_sd: np.ndarray
    drawn_sd: np.ndarray

    def of(self, rows: np.ndarray, told: Told) -> np.ndarray:
        """Return the functions [N, k + l] of some rows, whose sums are told."""
        return np.hstack([self.met[rows] @ told.directions.T, self.drawn[rows]])


def terms_of(rows: sf.Encoded, spec: SurrogateSpec, sums: Sums) -> Terms:
    """Return rates, moments, levels, that weights meet; and fine levels and pairs of the tree."""
    columns, margins, ends = spec.columns, sums.margins, spec.columns.ends
    wide, level = rows._replace(x=expand(rows.x, spec.schema)), columns.levels(rows)
    fine = [np.eye(column.size)[one] for column, one in zip(columns, level.T, strict=True)]
    named = np.repeat([column.categories > 0 for column in columns], np.diff(ends))
    named[ends[1:] - 1] |= [column.missing for column in columns]
    few = [own[one] for own, one in zip(margins.coarse, level.T, strict=True)]
    size = margins.sizes
    pairs = [np.eye(int(size[i] * size[j]))[few[i] * size[j] + few[j]] for i, j in sums.edges]
    rates = smooth_rates(wide, sums.thetas, spec.n_groups)
    names: list[tuple[SumName, np.ndarray]] = [
        ("anchors", rates), ("column_moments", moment_terms(columns, rows.x)),
        ("histograms", np.hstack(fine)[:, named]), ("histograms", np.hstack(fine)),
        ("pairs", np.hstack(pairs)),
    ]  # fmt: skip
    sd = [np.full(f.shape[1], spec.sd(name)) for name, f in names]
    met, drawn = (np.hstack([f for _, f in some]) for some in (names[:3], names[3:]))
    return Terms(met, drawn, np.concatenate(sd[:3]), np.concatenate(sd[3:]))


def told_by(file: Surrogate, spec: SurrogateSpec, sums: Sums) -> dict[int, Told]:
    """Return what the file tells of each cell out of the block."""
    cell, found = cell_of(file), {}
    terms = terms_of(file.rows(spec.schema.plain), spec, sums)
    block = np.flatnonzero(sums.margins.strata.tilted.any(axis=0))
    for c in np.setdiff1d(cell, block):
        f, w = terms.met[cell == c], file.weight[cell == c]
        n, p, log = w.sum(), w / w.sum(), np.log(w) - np.log(w).mean()
        v = np.array([variance_of(sd, float(n), noisy=spec.step == 0) for sd in terms.met_sd])
        u, size, directions = np.linalg.svd((f - f.mean(axis=0)) / v, full_matrices=False)
        seen = size > 1e-7 * size[0]
        directions = directions[seen]
        solved = n * (directions @ (p @ f) + u[:, seen].T @ log / size[seen])
        drawn = n * terms.drawn[cell == c].mean(axis=0)
        errors = block_diag(
            (directions * terms.met_sd**2) @ directions.T, np.diag(terms.drawn_sd**2 + COUNTED)
        )
        found[int(c)] = Told(float(n), directions, np.append(solved, drawn), np.asarray(errors))
    return found


def run_membership(setting: MemberSetting, seed: int, *, smoke: bool) -> MemberValues:
    """Make one client's file, and score its rows and as many others."""
    table, schema = sf.load_dataset(setting.table)
    rows = sf.encode(table, schema)
    order = np.random.default_rng(seed).permutation(len(rows.y))
    n = len(order) // setting.clients
    members, others, rest = np.split(order, [n, 2 * n])
    config = setting.config.model_copy(update={"seed": seed})
    spec = SurrogateSpec(config, schema)
    x, s, y = (part[members] for part in rows)
    sums = read_sums(TableSums(in_memory(sf.Encoded(x, s, y)), spec), spec)
    told, terms = told_by(surrogate_of(sums, spec), spec, sums), terms_of(rows, spec, sums)
    scores, cell = [], cell_of(rows)
    for c, one in told.items():
        known = rest[cell[rest] == c]
        inside, outside = (some[cell[some] == c] for some in (members, others))
        if len(known) < ENOUGH:
            continue
        f = terms.of(known, one)
        mean, cov = f.mean(axis=0), np.cov(f.T, bias=True)
        way = np.linalg.solve(one.n * cov + one.errors, one.sums - one.n * mean)
        scale = np.sqrt(way @ cov @ way)
        scores += [
            (is_in, float(z))
            for is_in, some in ((True, inside), (False, outside))
            for z in (terms.of(some, one) - mean) @ way / scale
        ]
    truth, score = np.array(scores).T
    least = np.quantile(score[truth == 0], 1 - FOUND_AT)
    found, auc = (score[truth == 1] > least).mean(), roc_auc_score(truth, score)
    before, after = labels_told(rows, members, rest, told, terms)
    return MemberValues(n, *(round(float(one), 4) for one in (auc, found, before, after)))


def labels_told(
    rows: sf.Encoded, members: np.ndarray, rest: np.ndarray, told: dict[int, Told], terms: Terms
) -> tuple[float, float]:
    """Return how often labels are guessed by a model of others' rows, and with the file's sums.

    The sums are linear in the labels of a group's members, whose columns are known: the best linear
    estimate starts from the model's probabilities.
    """
    a, true = np.column_stack([rows.x, rows.s]), rows.y[members] > 0
    learner = HistGradientBoostingClassifier(random_state=0).fit(a[rest], rows.y[rest] > 0)
    prior = learner.predict_proba(a[members])[:, 1].clip(0.01, 0.99)
    posterior = prior.copy()
    for group in np.unique(rows.s[members]):
        here = np.flatnonzero(rows.s[members] == group)
        p, functions, off, errors = prior[here], [], [], []
        for label in (0, 1):
            if (one := told.get(2 * int(group) + label)) is not None:
                f = terms.of(members[here], one)
                functions.append(f if label else -f)  # by how much "yes" changes the sum
                off.append(one.sums - (p if label else 1 - p) @ f)
                errors.append(one.errors)
        if functions:
            f = np.hstack(functions)
            spread = f * (p * (1 - p))[:, None]
            total = f.T @ spread + block_diag(*errors)
            posterior[here] += spread @ np.linalg.solve(total, np.concatenate(off))
    before, after = (float(((one > 0.5) == true).mean()) for one in (prior, posterior))
    return before, after


def behind(setting: MemberSetting) -> tuple[object, ...]:
    """Return the settings of a file, and of the attack."""
    return surrogates_version(setting.config.epsilon), setting.config, COUNTED, ENOUGH, FOUND_AT


MEMBERSHIP = Experiment(
    name="membership",
    settings=tuple(
        MemberSetting(*table, epsilon)
        for epsilon in (np.inf, 1.0) for table in (("dutch", 100, 50), ("loanapp", 4, 10))
    ),
    run=run_membership, summary=page_of("audit/membership"),
    smoke=(MemberSetting("loanapp", 4, 10, np.inf),), seeds=5,
    sources=lambda setting: SOURCES[setting.table], behind=behind, parallel=True,
)  # fmt: skip
