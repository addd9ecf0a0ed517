"""Decisions by group, chosen from a histogram of scores that may have noise in it.

PrivFairFL-Post (Pentyala et al. 2022, protocols 3 and 4), of one histogram in place of a confusion
matrix for each threshold: a row is in one entry, and so its noise protects all thresholds at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.postprocess.histogram import (
    BOTH_LABELS,
    MAX_HISTOGRAM_BINS,
    GroupDecision,
    Origin,
    ScoreHistogram,
    count_scores,
    require_rows,
    score_bins,
)
from synthfair.server.pooling import Releases, named_releases, pool_records
from synthfair.settings import Notion, notion_of
from synthfair.trained import TrainedModel

_COMPARED: dict[Notion, tuple[tuple[int, ...], ...]] = {
    "statistical_parity": (BOTH_LABELS,),
    "equal_opportunity": ((1,),),
    "equalized_odds": ((1,), (0,)),
}
"""Labels, 0 for -1 and 1 for +1, of the rows of which each rate is the selected share."""

RECORD_BINS = 101
"""B, the number of bins of a histogram of surrogates' records."""

MIN_MIXTURE_WEIGHT = 1e-9
"""The least weight of a threshold in a mixture; less is rounding of the linear programme."""


class NoisyShare(NamedTuple):
    """A share that was estimated from noisy counts.

    Attributes:
        value: the estimate.
        error: its standard error due to the noise, to first order; 0 without noise. What other
            rows would have given is not in it.
    """

    value: float
    error: float


class DecisionChoice(NamedTuple):
    """A decision rule with its effect on the rows of the histogram.

    Attributes:
        decision: by group and score.
        accuracy: share of right decisions, on average over coins.
        gap: largest difference of the notion's rates between two groups, likewise.
        constant_accuracy: of the more frequent label for everybody.
    """

    decision: GroupDecision
    accuracy: NoisyShare
    gap: NoisyShare
    constant_accuracy: NoisyShare


def surrogate_histogram(releases: Releases, model: TrainedModel) -> ScoreHistogram:
    """Return the weights of surrogates' records in B = 101 equal bins of the probability.

        C(s, y, b) = sum of w_i over records i with group s, label y and floor(B sigma(z_i)) = b,

    rounded so that the sum over the bins from any one on is within 1 of that of the weights. It
    stands in for the histogram of the clients' rows, from which thresholds by group are chosen. It
    is computed from the releases alone, so that their guarantees are those of the thresholds.

    Args:
        releases: surrogates of the model's schema, as :func:`synthfair.pool_and_train` takes them.
        model: that scores the records; whether it was trained on them does not matter.

    Raises:
        InputError: a file is refused, see :func:`synthfair.server.read_releases`; or a release is
            no surrogate.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> releases = [sf.distill_table(table, schema, sf.SurrogateConfig(k_min=10))]
        >>> model = sf.pool_and_train(releases, schema, sf.ServerConfig(rho=0.0))
        >>> histogram = sf.postprocess.surrogate_histogram(releases, model)
        >>> chosen = sf.postprocess.choose_decision(histogram, "statistical_parity", alpha=0.03)
        >>> round(chosen.accuracy.value, 1)
        0.9
    """
    schema = model.schema_
    releases = named_releases(releases, schema)
    records, weight = pool_records(releases, schema)
    x, s, y = encode(records, schema, source="records")
    bins = score_bins(model.scores(x, s), RECORD_BINS)
    counts = count_scores(bins, s, y, len(schema.groups), RECORD_BINS, weight=weight)
    # Running totals are rounded, not counts: errors of a hundred small counts would add up.
    counts = np.diff(np.rint(np.cumsum(counts, axis=-1)), prepend=0.0).astype(int)

    headers = [release.header for release in releases.values()]
    return ScoreHistogram(
        schema_hash=schema.hash,
        model=model.sha256,
        groups=tuple(map(str, schema.groups)),
        counts=counts.tolist(),
        origin=Origin(
            clients=len(headers),
            surrogates=True,
            unpaired=sum(header.hides_pairs for header in headers),
            guarantees=tuple(dict.fromkeys(header.guarantee for header in headers)),
        ),
    )


def choose_decision(
    histogram: ScoreHistogram, notion: Notion, alpha: float, *, randomized: bool = False
) -> DecisionChoice:
    """Return the most accurate decisions by group and score whose rates differ by at most alpha.

    Compared are, between groups, P(+1) for statistical parity, P(+1 | y = +1) for equal
    opportunity, and P(+1 | y = +1) and P(+1 | y = -1) for equalized odds. Decisions are a threshold
    for each group, the best of all combinations; or, randomised, a mixture of thresholds for each
    group, the best of all mixtures: points on or below the upper convex hull of its ROC curve. With
    alpha = 0 that is the rule of Hardt, Price and Srebro (2016).

    To choose, counts below 0 are taken as 0, so that rates rise with the threshold and lie in
    [0, 1]. To estimate what was chosen, they count as they are: sums of them have no bias. The
    estimated gap can therefore exceed alpha where there is noise; and since the best was chosen,
    both estimates tend to flatter. They flatter more where the model was trained on the rows that
    are counted: count others.

    Guarantee: that of the histogram, as nothing else of the rows is read; the decision says
    whose rows they are.

    Args:
        histogram: of scores, with two bins or more.
        notion: statistical_parity, equal_opportunity or equalized_odds.
        alpha: from 0 to below 1.
        randomized: whether decisions may be drawn by coins.

    Raises:
        InputError: no such notion; alpha out of range; plain counts, or too many bins; or a group
            whose rows of a label that the notion compares do not stand out from the noise.

    Example:
        >>> import synthfair as sf
        >>> histogram = sf.postprocess.ScoreHistogram(
        ...     schema_hash="0" * 64, model="0" * 64, groups=("a", "b"),
        ...     counts=(((8, 1, 1), (0, 2, 8)), ((6, 3, 1), (4, 4, 2))),
        ... )
        >>> chosen = sf.postprocess.choose_decision(histogram, "equal_opportunity", 0.25)
        >>> chosen.decision.steps, round(chosen.accuracy.value, 3), round(chosen.gap.value, 3)
        ((((2, 1.0),), ((1, 1.0),)), 0.725, 0.2)
        >>> mixed = sf.postprocess.choose_decision(
        ...     histogram, "equal_opportunity", 0.1, randomized=True
        ... )
        >>> mixed.decision.steps, round(mixed.accuracy.value, 4), round(mixed.gap.value, 3)
        ((((1, 1.0),), ((0, 0.75), (1, 1.0))), 0.7125, 0.1)
    """
    n_bins = histogram.array().shape[2]
    if not 0 <= alpha < 1:
        raise InputError(f"alpha = {alpha}: must be from 0 to below 1")
    if not 2 <= n_bins <= MAX_HISTOGRAM_BINS:
        raise InputError(f"histogram: bins: {n_bins}; thresholds need 2 to {MAX_HISTOGRAM_BINS}")
    notion = notion_of(notion)
    labels_of_rates = _COMPARED[notion]
    require_rows(histogram, (*labels_of_rates, BOTH_LABELS))

    # selected [G, 2, B + 1]: rows in bin t or above, by label; none for t = B.
    counts = np.maximum(histogram.array(), 0)
    above = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1].astype(float)
    selected = np.concatenate([above, np.zeros((*above.shape[:-1], 1))], axis=-1)
    rows = [selected[:, list(labels)].sum(axis=1) for labels in labels_of_rates]
    rates = [counted / counted[:, :1] for counted in rows]
    negative, positive = selected.swapaxes(0, 1)
    right = positive + negative[:, :1] - negative
    weights = best_weights(rates, right, alpha, randomized=randomized)

    # A row in bin b is selected by the thresholds up to b.
    chance = np.minimum(np.cumsum(weights, axis=1).round(12), 1.0)
    steps = tuple(
        tuple((int(t), float(chances[t])) for t in np.flatnonzero(weight[:-1]))
        for chances, weight in zip(chance, weights, strict=True)
    )

    # The key of the coins follows from the model, the schema and the counts alone. Who chooses the
    # settings cannot look among them for a key whose coins fall well; who can alter counts can.
    text = json.dumps([histogram.schema_hash, histogram.model, histogram.counts])
    certain = all(probability == 1 for chances in steps for _, probability in chances)
    decision = GroupDecision(
        notion=notion,
        alpha=alpha,
        n_bins=n_bins,
        steps=steps,
        key=None if certain else hashlib.sha256(text.encode()).hexdigest(),
        origin=histogram.origin,
    )
    return DecisionChoice(decision, *_estimates(histogram, notion, weights))


def _estimates(
    histogram: ScoreHistogram, notion: Notion, weights: np.ndarray
) -> tuple[NoisyShare, NoisyShare, NoisyShare]:
    """Return accuracy, gap, and accuracy of the constant classifier, of weights of thresholds."""
    counts = histogram.array()
    chance = np.cumsum(weights, axis=1)[:, None, :-1]
    everyone = np.ones(counts.shape)
    positive = everyone * np.array([0, 1])[:, None]

    def share(hits: np.ndarray, among: np.ndarray) -> NoisyShare:
        """Sum of hits over sum of among, arrays of counts' shape that multiply them."""
        rows = float((among * counts).sum())
        value = float((hits * counts).sum()) / rows
        spread = ((hits - value * among) ** 2).sum()
        return NoisyShare(value, math.sqrt(histogram.variance * spread) / rows)

    gaps, groups = [], np.eye(len(counts))[:, :, None, None]  # the mask of each group
    for labels in _COMPARED[notion]:
        among = np.isin([0, 1], labels)[:, None] * groups * everyone
        low, *_, high = sorted(share(mask * chance, mask) for mask in among)
        gaps.append(NoisyShare(high.value - low.value, math.hypot(high.error, low.error)))
    accuracy = share(np.where(positive, chance, 1 - chance), everyone)
    constant = max(share(label, everyone) for label in (1 - positive, positive))
    return accuracy, max(gaps), constant


def best_weights(
    rates: Sequence[np.ndarray], value: np.ndarray, alpha: float, *, randomized: bool
) -> np.ndarray:
    """Return weights [G, T] of each group's thresholds, of sum 1, with the largest sum of values.

        maximise  sum_gt w_gt value_gt   such that   low_r <= sum_t w_gt rate_rgt <= low_r + alpha

    for every group g and rate r, low_r being free: a linear programme, in which weights are 0 or 1
    unless decisions are randomised. It is solved to the optimum, and holds to about 1e-6. With
    alpha = 0 and randomised decisions it is that of Hardt, Price and Srebro (2016), section 3.2,
    whose points are the same for all groups.

    Args:
        rates: one or two, each [G, T].
        value: [G, T] of each threshold.
        alpha: most by which a rate may differ between two groups; at least 0. Some choice must be
            possible.
        randomized: whether a group may have several thresholds.

    Raises:
        ArithmeticError: the programme is not solved, which a possible choice rules out.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.thresholds import best_weights
        >>> rate = np.array([[1.0, 0.5, 0.0], [1.0, 0.4, 0.0]])
        >>> value = np.array([[4.0, 2.0, 1.0], [0.0, 3.0, 1.0]])
        >>> best_weights([rate], value, 0.1, randomized=False).argmax(axis=1).tolist()
        [1, 1]
    """
    from scipy import sparse
    from scipy.optimize import LinearConstraint, milp

    # The variables are all weights, group by group, and then low of each rate.
    n_groups, n_rates = len(value), len(rates)
    sums = sparse.hstack(
        [sparse.block_diag(np.ones_like(value)[:, None]), sparse.csr_array((n_groups, n_rates))]
    )
    above_low = sparse.vstack(
        [
            sparse.hstack([sparse.block_diag(rate[:, None]), np.tile(-low, (n_groups, 1))])
            for rate, low in zip(rates, np.eye(n_rates), strict=True)
        ]
    )
    solution = milp(
        np.append(-value.ravel() / np.abs(value).max(), np.zeros(n_rates)),
        integrality=np.repeat([not randomized, False], [value.size, n_rates]),
        constraints=[LinearConstraint(sums, 1, 1), LinearConstraint(above_low, 0, alpha)],
        options={"mip_rel_gap": 0},
    )
    if not solution.success:
        raise ArithmeticError(f"linear programme: {solution.message}")
    weights = solution.x[: value.size].reshape(value.shape)
    if not randomized:
        return weights.round()
    weights[weights < MIN_MIXTURE_WEIGHT] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)
