"""Histograms over all clients: by shares and aggregators, or locally private."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.privacy import randomised_response
from benchmarks.privfairfl.training import CLIENTS, SplitTable
from synthfair.postprocess import ScoreHistogram, count_scores, score_bins
from synthfair.secure import GroupCounts, NoisyTotal, noisy_sum, score_histogram

MODEL = "0" * 64
"""Takes the place of a model's hash: scores here are arrays."""


class Counting(NamedTuple):
    """How rows are counted.

    Attributes:
        privacy: MPC+DP; or local noise or local response, at each client.
        epsilon: infinite for exact counts.
        bins: B, of scores.
        seed: of responses; noise is the system's.
    """

    privacy: str
    epsilon: float
    bins: int
    seed: tuple[int, int]


def counted(rows: SplitTable, scores: np.ndarray | None, how: Counting) -> ScoreHistogram:
    """Rows by group and label, and by bin where there are scores.

    Guarantee: of MPC+DP, the sum's; of local noise and local response, epsilon-differential
    privacy of one row against everybody but its client, when the row is added or removed (noise),
    or replaced (response).
    """
    exact, bins = np.isinf(how.epsilon), 1 if scores is None else how.bins
    what = GroupCounts(
        schema_hash=rows.schema.hash, groups=tuple(map(str, rows.schema.groups)),
        model=None if scores is None else MODEL, bins=bins,
        epsilon=1.0 if exact else how.epsilon, rows_per_client=len(rows.user),
    )  # fmt: skip
    parts = client_counts(rows, scores, bins)
    if how.privacy == "MPC+DP" and not exact:
        return score_histogram(what, noisy_sum(parts, what))
    total = parts.sum(axis=0)
    if how.privacy == "local noise":
        total = total + np.sum([what.noise() for _ in parts], axis=0)
    if how.privacy == "local response":
        total = responses(total, how.epsilon, np.random.default_rng(how.seed))
    # Nothing is refused here for its noise: the baselines are published without such a rule.
    return score_histogram(what, NoisyTotal(total, 0.0, {}))


def client_counts(rows: SplitTable, scores: np.ndarray | None, bins: int) -> np.ndarray:
    """[clients, 2 G B] int64."""
    _, s, y = rows.train
    in_bin = np.zeros(len(y), np.int64) if scores is None else score_bins(scores, bins)
    parts = [
        count_scores(in_bin[own], s[own], y[own], rows.n_groups, bins).ravel()
        for own in (rows.user == client for client in range(CLIENTS))
    ]
    return np.array(parts, np.int64)


def responses(total: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """[k] counts of k-ary randomised responses of rows in k cells, without their bias.

    A row reports its cell with the odds e^epsilon against each other one.
    """
    k = len(total)
    reported = randomised_response(np.repeat(np.arange(k), total), k, epsilon, rng)
    other = 1 / (np.exp(epsilon) + k - 1)
    excess = np.bincount(reported, minlength=k) - total.sum() * other
    return np.rint(excess / ((np.exp(epsilon) - 1) * other)).astype(np.int64)
