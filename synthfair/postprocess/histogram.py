"""The histogram of rows by group, label, score, from which decisions are chosen.

From it alone follow weights of rows by group and label; and decisions by group: a probability of +1
for each bin of the score, and coins that stay.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.noise import laplace_variance
from synthfair.settings import Checked, JsonFile, Notion, WeightMethod

MAX_COUNT = 2**53
"""Beyond, a number in a JSON file need not be the one that was written."""

BOTH_LABELS = (0, 1)
"""Indices of the labels -1 and +1."""

MIN_COUNT_ERRORS = 3.0
"""Standard deviations of noise that a count must have, so that a rate is made of it."""

_Count = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
_Bins = Annotated[tuple[_Count, ...], Field(strict=False, min_length=1, max_length=100_000)]
_ByLabel = Annotated[tuple[_Bins, _Bins], Field(strict=False)]


class Origin(Checked):
    """The origin of counts, and what protects the rows behind them.

    Attributes:
        clients: number of those whose rows, or releases, were counted.
        surrogates: whether the weights of surrogates' records were counted: then no client was
            asked again.
        unpaired: number of surrogates in which it is made up which label goes with which group.
        guarantees: of the rows, each once; None among them where some have none.
    """

    clients: int = Field(ge=1)
    surrogates: bool = False
    unpaired: int = Field(default=0, ge=0)
    guarantees: tuple[Guarantee | None, ...] = Field(strict=False, min_length=1, max_length=10_000)


class ScoreHistogram(JsonFile):
    """A histogram of rows in equal bins of the predicted probability, by group and label.

    A row falls into one entry: one row more or less changes one count by 1, whatever the number of
    bins. One bin alone makes plain counts of groups and labels.

    Attributes:
        schema_hash: of the tables.
        model: sha256 of the model whose scores they are; None where there is one bin.
        groups: their names, in the schema's order.
        counts: [G, 2, B] of label -1 and +1; below 0 where noise was added.
        variance: of the noise of each count, 0 without.
        origin: whose rows they are, and what protects them; None without noise.

    Raises:
        ValueError: other numbers of groups or bins; or a guarantee for the clients' rows, and the
            variance is not that of its noise.

    Example:
        >>> from synthfair.postprocess.histogram import ScoreHistogram
        >>> histogram = ScoreHistogram(
        ...     schema_hash="0" * 64, model=None, groups=("f", "m"),
        ...     counts=(((5,), (3,)), ((2,), (7,))),
        ... )
        >>> histogram.array().shape
        (2, 2, 1)
    """

    max_file_bytes: ClassVar[int] = 2**26  # twice a million counts of 16 digits

    format: Literal["synthfair-histogram/1"] = "synthfair-histogram/1"
    schema_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    model: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    groups: tuple[str, ...] = Field(strict=False, min_length=2)
    counts: tuple[_ByLabel, ...] = Field(strict=False)
    variance: float = Field(default=0.0, ge=0)
    origin: Origin | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> ScoreHistogram:
        sizes = {len(bins) for by_label in self.counts for bins in by_label}
        if len(self.counts) != len(self.groups) or len(sizes) != 1:
            raise ValueError("counts must be [groups][2 labels][bins], as many bins for each")
        if (self.model is None) != (sizes == {1}):
            raise ValueError("scores of a model have two bins or more; counts without, one bin")
        # The noise is that of the guarantee.
        origin = self.origin
        claims = origin.guarantees if origin and not origin.surrogates else ()
        for guarantee in filter(None, claims):
            variance = (guarantee.aggregators or 0) * laplace_variance(guarantee.scale)
            if variance == 0 or not math.isclose(self.variance, variance, rel_tol=1e-9):
                raise ValueError(f"variance: {self.variance:g}; the guarantee's is {variance:g}")
        return self

    def array(self) -> np.ndarray:
        """Return [G, 2, B] the counts."""
        return np.asarray(self.counts, dtype=np.int64)


def score_bins(scores: np.ndarray, n_bins: int) -> np.ndarray:
    """Return [N] the bin of each score z: floor(B sigma(z)), and B - 1 where sigma(z) = 1.

    A threshold on bins and one on scores decide alike, as decisions are made from bins. A score
    that is not a number is in bin 0.

    Example:
        >>> import numpy as np
        >>> from synthfair.postprocess.histogram import score_bins
        >>> score_bins(np.array([-50.0, 0.0, 50.0]), 4).tolist()
        [0, 2, 3]
    """
    finite = np.nan_to_num(scores, nan=-np.inf)
    probability = 1 / (1 + np.exp(-np.clip(finite, -700, 700)))
    return np.minimum((n_bins * probability).astype(np.int64), n_bins - 1)


def count_scores(
    bins: np.ndarray,
    s: np.ndarray,
    y: np.ndarray,
    n_groups: int,
    n_bins: int,
    *,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return [G, 2, B] numbers of rows, or their weights, by group, label (-1, +1) and bin.

    Args:
        bins: [N] of :func:`score_bins`; zeros for plain counts.
        s: [N] group index.
        y: [N] -1 or +1.
        n_groups: G.
        n_bins: B.
        weight: [N] of the rows; 1 if not given.
    """
    entry = (2 * s + (y > 0)) * n_bins + bins
    return np.bincount(entry, weight, minlength=2 * n_groups * n_bins).reshape(n_groups, 2, n_bins)


def require_rows(histogram: ScoreHistogram, parts: Iterable[tuple[int, ...]]) -> None:
    """Refuse a group too few of whose rows have certain labels.

    A count must be above 0, and above three standard deviations of its noise: a rate or a weight
    made of less would be noise.

    Args:
        histogram: the counts.
        parts: indices of labels, such as (1,) for +1; their rows together count.

    Raises:
        InputError: the message names the group, the label, and the count.
    """
    counts = histogram.array()
    for labels in parts:
        rows = counts[:, list(labels)].sum(axis=(1, 2))
        least = MIN_COUNT_ERRORS * math.sqrt(histogram.variance * len(labels) * counts.shape[2])
        if (rows <= least).any():
            group = int(np.argmin(rows))
            label = "" if labels == BOTH_LABELS else f" and label {'-+'[labels[0]]}1"
            raise InputError(
                f"histogram: rows with group {histogram.groups[group]!r}{label}: counted"
                f" {rows[group]}; must be more than {least:.3g}, three standard deviations of the"
                " noise"
            )


_Weight = Annotated[float, Field(gt=0)]
_Pair = Annotated[tuple[_Weight, _Weight], Field(strict=False)]


class RowWeights(JsonFile):
    """The factors of the loss of a row in training, by its group and label.

    Attributes:
        schema_hash: of the tables.
        groups: their names, in the schema's order.
        method: by which they were made.
        weights: [G, 2] of label -1 and +1, positive.
        origin: of the counts they were made of; None without noise.

    Raises:
        ValueError: another number of groups.
    """

    max_file_bytes: ClassVar[int] = 2**26

    format: Literal["synthfair-weights/1"] = "synthfair-weights/1"
    schema_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    groups: tuple[str, ...] = Field(strict=False, min_length=2)
    method: WeightMethod
    weights: tuple[_Pair, ...] = Field(strict=False)
    origin: Origin | None = None

    @model_validator(mode="after")
    def _shape(self) -> RowWeights:
        if len(self.weights) != len(self.groups):
            raise ValueError("weights must be [groups][2 labels]")
        return self

    def array(self) -> np.ndarray:
        """Return the weights as an array [G, 2]."""
        return np.asarray(self.weights)


def make_weights(histogram: ScoreHistogram, method: WeightMethod) -> RowWeights:
    """PrivFairFL-Pre: weights from counts C(s, y) of rows over all clients.

        published        W(s, y) = N / (2 G C(s, y))        Pentyala et al. (2022), protocol 2
        kamiran_calders  W(s, y) = N_s N_y / (N C(s, y))    Kamiran and Calders (2012), algorithm 3

    With G = 2 groups the first has N / (4 C), as printed: all pairs of group and label weigh the
    same in all. The second leaves groups and labels their weight and makes them independent. With
    either, the weights of all rows counted sum to N.

    Guarantee: that of the histogram, as nothing else of the rows is read.

    Args:
        histogram: of one bin or more, whose sums are taken.
        method: one of the two.

    Raises:
        InputError: a count that does not stand out from its noise, see :func:`require_rows`.

    Example:
        >>> import synthfair as sf
        >>> counts = sf.postprocess.ScoreHistogram(
        ...     schema_hash="0" * 64, model=None, groups=("f", "m"),
        ...     counts=(((30,), (10,)), ((20,), (40,))),
        ... )
        >>> sf.postprocess.make_weights(counts, "published").array().round(2).tolist()
        [[0.83, 2.5], [1.25, 0.62]]
        >>> sf.postprocess.make_weights(counts, "kamiran_calders").array().round(2).tolist()
        [[0.67, 2.0], [1.5, 0.75]]
    """
    require_rows(histogram, ((0,), (1,)))
    rows = histogram.array().sum(axis=2).astype(float)
    by_group, by_label = rows.sum(axis=1, keepdims=True), rows.sum(axis=0)
    targets = {
        "published": np.full(rows.shape, rows.sum() / rows.size),
        "kamiran_calders": by_group * by_label / rows.sum(),
    }[method]
    return RowWeights(
        schema_hash=histogram.schema_hash,
        groups=histogram.groups,
        method=method,
        weights=(targets / rows).tolist(),
        origin=histogram.origin,
    )


MAX_HISTOGRAM_BINS = 2**11
"""More bins only add noise; and the search for thresholds takes longer."""

RANDOMIZED = "randomized_thresholds"
"""The method of decisions that are drawn by coins, in metrics.json."""

_Step = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MAX_HISTOGRAM_BINS)], Annotated[float, Field(gt=0, le=1)]],
    Field(strict=False),
]
_Steps = Annotated[tuple[_Step, ...], Field(strict=False, max_length=MAX_HISTOGRAM_BINS)]


class GroupDecision(Checked):
    """A rule that gives a row the decision +1 with a probability, by its group and score.

    Within a group the probability never falls as the score rises. A person's group is an input of
    the decision, which is not lawful everywhere.

    Attributes:
        notion: of fairness that it was chosen for.
        alpha: most by which the notion's rates were to differ between groups, as estimated.
        n_bins: B, of :func:`synthfair.postprocess.score_bins`.
        steps: for each group, in the schema's order, pairs of a bin and the probability of +1 from
            that bin on, both rising; below the first, the probability is 0. One pair with
            probability 1 is a threshold; no pair selects nobody.
        key: public, 64 hexadecimal digits: the coins follow from it, see :func:`coins`; None where
            every probability is 0 or 1.
        origin: of the histogram it was chosen from, and what protects the rows; None without.

    Raises:
        ValueError: steps out of order or beyond the bins, or a key that is missing or not needed.

    Example:
        The second group needs a lower score:

        >>> import numpy as np
        >>> import synthfair as sf
        >>> rule = sf.postprocess.GroupDecision(
        ...     notion="equal_opportunity", alpha=0.02, n_bins=10,
        ...     steps=(((6, 1.0),), ((4, 1.0),)), key=None,
        ... )
        >>> rule.probabilities(np.array([0.0, 0.0]), np.array([0, 1])).tolist()  # sigma(0) = 0.5
        [0.0, 1.0]
    """

    notion: Notion
    alpha: float = Field(ge=0, lt=1)
    n_bins: int = Field(ge=2, le=MAX_HISTOGRAM_BINS)
    steps: tuple[_Steps, ...] = Field(strict=False, min_length=2)
    key: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    origin: Origin | None = None

    @model_validator(mode="after")
    def _in_order(self) -> GroupDecision:
        for group, steps in enumerate(self.steps):
            for (from_bin, chance), (later, larger) in pairwise(steps):
                if later <= from_bin or larger <= chance:
                    raise ValueError(f"steps of group {group}: bins and probabilities must rise")
            if steps and steps[-1][0] >= self.n_bins:
                raise ValueError(f"steps of group {group}: bins must be below {self.n_bins}")
        uncertain = any(chance < 1 for steps in self.steps for _, chance in steps)
        if uncertain != (self.key is not None):
            raise ValueError("key must be there if, and only if, a probability is below 1")
        return self

    @property
    def method(self) -> str:
        """Return the method's name in metrics.json."""
        return "thresholds" if self.key is None else RANDOMIZED

    def probabilities(self, scores: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return [N] probability of the decision +1, of scores [N] and group indices s [N]."""
        table = np.zeros((len(self.steps), self.n_bins))
        for row, steps in zip(table, self.steps, strict=True):
            for from_bin, chance in steps:
                row[from_bin:] = chance
        return table[s, score_bins(scores, self.n_bins)]

    def decide(
        self, scores: np.ndarray, s: np.ndarray, ids: Iterable[str] | None = None
    ) -> np.ndarray:
        """Return [N] whether the decision is +1; below probability 1, by the coin of the row.

        Args:
            scores: [N].
            s: [N] group index.
            ids: [N] text by which a row is known; the same text gets the same coin, always.

        Raises:
            InputError: there are coins to toss, and no ids.
        """
        chance = self.probabilities(scores, s)
        if self.key is None:
            return chance > 0
        if ids is None:
            raise InputError("the model's decisions need coins: give ids, of a column", "id")
        return coins(self.key, ids) < chance


def coins(key: str, ids: Iterable[str]) -> np.ndarray:
    """Return [N] numbers from 0 to below 1, one of each id: 53 bits of SHA-256(key, id).

    They are as if drawn uniformly and independently, for ids that were not chosen by somebody who
    knows the key; and anybody can verify a decision.

    Example:
        >>> import synthfair as sf
        >>> sf.postprocess.coins("00" * 32, ["ann", "bob", "ann"]).round(2).tolist()
        [0.62, 0.51, 0.62]
    """
    begin = bytes.fromhex(key)
    digests = (hashlib.sha256(begin + name.encode()).digest() for name in ids)
    return np.array([int.from_bytes(digest[:8], "big") >> 11 for digest in digests], float) / 2**53
