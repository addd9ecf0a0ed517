"""PrivFairFL (Pentyala et al. 2022): a training in rounds, with sums over clients before or after.

Pre weighs rows by counts of group and label; post chooses decisions by group from a histogram of
scores. Both are summed as :mod:`synthfair.secure` sums, here in one process: all shares are made
and added up, and each of two aggregators adds noise of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import TrainConfig
from synthfair.config.notions import Notion
from synthfair.data.schema import Schema
from synthfair.federated.user_data import UserData
from synthfair.federated.users import Users
from synthfair.postprocess.histogram import ScoreHistogram, count_scores, score_bins
from synthfair.postprocess.thresholds import choose_decision
from synthfair.postprocess.weights import make_weights
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.secure import GroupCounts, noisy_sum, score_histogram
from synthfair.secure.shares import SEED_BYTES
from synthfair.trained import TrainedModel

AGGREGATORS = 2


def weigh_rows(
    data: UserData, config: TrainConfig, noise_seed: int | None
) -> tuple[UserData, ScoreHistogram]:
    """PrivFairFL-Pre: the same users with weights by group and label, and the counts behind them.

    Guarantee: that of the counts, see :func:`sum_counts`.

    Raises:
        InputError: a count that does not stand out from its noise.
    """
    counts = sum_counts(
        data.users, data.schema, epsilon=config.counts_epsilon, source=_source(noise_seed)
    )
    weights = make_weights(counts, config.weight_method).array()
    return data._replace(row_weights=jnp.asarray(weights, data.users.a.dtype)), counts


def decide_by_group(
    model: TrainedModel,
    scores: jax.Array,
    data: UserData,
    config: TrainConfig,
    noise_seed: int | None,
) -> tuple[TrainedModel, ScoreHistogram]:
    """PrivFairFL-Post: the model with decisions by group, and the histogram they were chosen from.

    Guarantee: that of the histogram, see :func:`sum_counts`.

    Args:
        model: trained, and public.
        scores: [N] of the rows of ``data.counted``, by this model.
        data: users.
        config: notion, alpha, bins, and whether decisions may be drawn by coins.
        noise_seed: for tests.

    Raises:
        InputError: a group whose rows do not stand out from the noise.
    """
    counts = sum_counts(
        data.counted,
        data.schema,
        epsilon=config.counts_epsilon,
        scored=(model, np.asarray(scores)),
        bins=config.bins,
        source=_source(noise_seed),
    )
    notion: Notion = config.notion  # type: ignore[assignment] - accuracy_parity is refused
    chosen = choose_decision(counts, notion, config.alpha, randomized=config.randomized)
    return model.model_copy(update={"decision": chosen.decision}), counts


def sum_counts(
    users: Users,
    schema: Schema,
    *,
    epsilon: float | None,
    scored: tuple[TrainedModel, np.ndarray] | None = None,
    bins: int = 1,
    source: RandomBytes = system_entropy,
) -> ScoreHistogram:
    """Rows of all users by group and label, and by bin where they are scored.

    Guarantee: epsilon-differential privacy (pure) with noise from the system's entropy, against
    each single aggregator and everyone else. Unit: one row. Neighbouring relation: add or remove
    one.

    Args:
        users: with their rows.
        schema: of the rows.
        epsilon: None for exact counts, which guarantee nothing.
        scored: a model, and its scores [N] of the users' rows.
        bins: B, 1 where there are no scores.
        source: of shares and noise; with another one than the system's nothing is guaranteed.
    """
    groups = tuple(map(str, schema.groups))
    what = GroupCounts(
        schema_hash=schema.hash,
        groups=groups,
        model=scored[0].sha256 if scored else None,
        bins=bins,
        epsilon=epsilon or 1.0,
        rows_per_client=users.largest,
    )
    parts = user_counts(users, scored[1] if scored else None, len(groups), bins)
    if epsilon is not None:
        return score_histogram(what, noisy_sum(parts, what, aggregators=AGGREGATORS, source=source))
    exact = np.sum(list(parts), axis=0).reshape(len(groups), 2, bins)
    return ScoreHistogram(
        schema_hash=what.schema_hash, model=what.model, groups=groups, counts=exact.tolist()
    )


def user_counts(
    users: Users, scores: np.ndarray | None, n_groups: int, bins: int
) -> Iterator[np.ndarray]:
    """[2 G B] int64 of each user: what it adds to the sum."""
    s, y = np.asarray(users.s[:, 0]), np.asarray(users.y)
    in_bin = np.zeros(len(y), np.int64) if scores is None else score_bins(scores, bins)
    for first, size in zip(np.asarray(users.first), np.asarray(users.size), strict=True):
        own = slice(first, first + size)
        counts = count_scores(in_bin[own], s[own], y[own], n_groups, bins)
        yield counts.ravel().astype(np.int64)


def counts_bytes(counts: ScoreHistogram) -> int:
    """Of one user: to each aggregator a share, or a seed that is padded to its length."""
    return AGGREGATORS * max(counts.array().nbytes, SEED_BYTES)


def _source(noise_seed: int | None) -> RandomBytes:
    return system_entropy if noise_seed is None else seeded(noise_seed)
