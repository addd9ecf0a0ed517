"""PrivFairFL (Pentyala et al. 2022): DP-SGD in rounds, with sums over clients before or after.

Pre weighs rows by counts of group and label; post chooses decisions by group from a histogram of
scores. Both are summed as :mod:`synthfair.secure` sums, here in one process: all shares are made
and added up, and each of two aggregators adds noise of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from synthfair.data.schema import Schema
from synthfair.fairness.target import Target
from synthfair.federated.dp_sgd import NoisySteps
from synthfair.federated.engine import AGGREGATORS
from synthfair.federated.method import Share
from synthfair.federated.users import UserData, Users
from synthfair.model import Params
from synthfair.postprocess.histogram import ScoreHistogram, count_scores, make_weights, score_bins
from synthfair.postprocess.thresholds import choose_decision
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.secure import GroupCounts, noisy_sum, score_histogram
from synthfair.settings import MAX_GUARANTEE_EPSILON, Epsilon, Notion, WeightMethod
from synthfair.trained import TrainedModel

# Settings, and what is done with the counts


class Counting(NoisySteps):
    """A method of DP-SGD with counts of rows over all clients."""

    counts_epsilon: Epsilon | None = None
    """Privacy budget of the counts over all clients, for one row; on top of the training's epsilon.
    Without it counts are exact."""

    is_job: ClassVar[bool] = False

    @model_validator(mode="after")
    def _adds_up(self) -> Counting:
        if self.epsilon is not None:
            if self.counts_epsilon is None:
                raise ValueError("epsilon needs counts_epsilon: exact counts have no guarantee")
            if self.epsilon + self.counts_epsilon > MAX_GUARANTEE_EPSILON:
                raise ValueError(
                    f"epsilon + counts_epsilon: must be at most {MAX_GUARANTEE_EPSILON:g}"
                )
        return self

    def plan(self, data: UserData) -> Self:
        """Return DP-SGD, whose guarantee includes the counts."""
        method, counts = super().plan(data), self.counts_epsilon
        if (guarantee := method.guarantee) and counts:
            both = {"epsilon": guarantee.epsilon + counts, "counts_epsilon": counts}
            return method.bound(guarantee=guarantee.model_copy(update=both))
        return method


class PrivFairFLPre(Counting):
    """A method of DP-SGD with rows weighed by counts of group and label."""

    method: Literal["privfairfl_pre"] = "privfairfl_pre"
    weight_method: WeightMethod = "kamiran_calders"
    """How weights follow from counts: pairs of group and label weigh the same (``published``), or
    the two become independent."""

    @property
    def asked(self) -> Target:
        """Fairness is asked for by the weights."""
        return Target(by="row_weights")

    def count_first(self, data: UserData, noise_seed: int | None) -> tuple[Self, ScoreHistogram]:
        """Return the method with weights by group and label, and the counts behind these.

        Raises:
            InputError: a count that does not stand out from its noise.
        """
        counts = sum_counts(data.users, data.schema, self.counts_epsilon, seed=noise_seed)
        weights = make_weights(counts, self.weight_method).array()
        return self.bound(row_weights=jnp.asarray(weights, data.users.a.dtype)), counts


class PrivFairFLPost(Counting):
    """A method of DP-SGD, then of decisions by group from a histogram of scores."""

    method: Literal["privfairfl_post"] = "privfairfl_post"
    notion: Notion = "statistical_parity"
    """Rates that must not differ between groups."""

    alpha: Share = 0.02
    """Most by which a group's rate may differ from another's."""

    bins: Annotated[int, Field(ge=2, le=2**11)] = 101
    """Number of score bins; take 21 where counts_epsilon is 0.1 or less."""

    randomized: bool = False
    """Whether decisions may be drawn by coins."""

    counts_share: Share = 0.0
    """Share of each client's rows that are counted and not trained on; 0: all are trained on, and
    counted, as published, so that estimates flatter."""

    takes_weights: ClassVar[bool] = True
    unconstrained: ClassVar[Mapping[str, str | float]] = {"method": "dp_sgd"}

    def decide(
        self, model: TrainedModel, params: Params, data: UserData, noise_seed: int | None
    ) -> tuple[TrainedModel, ScoreHistogram]:
        """Return the model with decisions by group, and the histogram they were chosen from.

        Raises:
            InputError: a group whose rows do not stand out from the noise.
        """
        counted = data.users if data.held_out is None else data.held_out
        scores = np.asarray(self.model.scores(params, counted.a))
        counts = sum_counts(
            counted, data.schema, self.counts_epsilon, (model, scores, self.bins), seed=noise_seed
        )
        choice = choose_decision(counts, self.notion, self.alpha, randomized=self.randomized)
        return model.model_copy(update={"decision": choice.decision}), counts


# Sums over clients


def sum_counts(
    users: Users,
    schema: Schema,
    epsilon: float | None,
    scored: tuple[TrainedModel, np.ndarray, int] | None = None,
    *,
    seed: int | None = None,
) -> ScoreHistogram:
    """Return the rows of all users by group and label, and by bin where they are scored.

    Guarantee: epsilon-differential privacy (pure) with noise from the system's entropy, against
    each single aggregator and everyone else. Unit: one row. Neighbouring relation: add or remove
    one.

    Args:
        users: with their rows.
        schema: of the rows.
        epsilon: None for exact counts, which guarantee nothing.
        scored: a public model, its scores [N] of the users' rows, and the number of their bins.
        seed: of shares and noise, for tests; with one nothing is guaranteed.
    """
    groups, bins = tuple(map(str, schema.groups)), scored[2] if scored else 1
    model = scored[0].sha256 if scored else None
    about: dict[str, Any] = {"schema_hash": schema.hash, "groups": groups, "model": model}
    s, y = np.asarray(users.s[:, 0]), np.asarray(users.y)
    in_bin = score_bins(scored[1], bins) if scored else np.zeros(len(y), np.int64)

    if epsilon is None:
        return ScoreHistogram(
            **about, counts=count_scores(in_bin, s, y, len(groups), bins).tolist()
        )
    # What each user adds to the sum, [2 G B].
    ends = zip(np.asarray(users.first), np.asarray(users.first + users.size), strict=True)
    parts = (
        count_scores(in_bin[i:j], s[i:j], y[i:j], len(groups), bins).ravel().astype(np.int64)
        for i, j in ends
    )
    summand = GroupCounts(**about, bins=bins, epsilon=epsilon, rows_per_client=users.largest)
    source = system_entropy if seed is None else seeded(seed)
    total = noisy_sum(parts, summand, aggregators=AGGREGATORS, source=source)
    return score_histogram(summand, total)
