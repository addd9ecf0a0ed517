"""Decisions by group: a probability of +1 for each bin of the score, and coins that stay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from synthfair.errors import InputError
from synthfair.postprocess.histogram import Origin, score_bins
from synthfair.settings import Checked, Notion

MOST_BINS = 2**11
"""More bins only add noise; and the search for thresholds takes longer."""

RANDOMIZED = "randomized_thresholds"
"""The method of decisions that are drawn by coins, in metrics.json."""

_Step = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MOST_BINS)], Annotated[float, Field(gt=0, le=1)]],
    Field(strict=False),
]
_Steps = Annotated[tuple[_Step, ...], Field(strict=False, max_length=MOST_BINS)]


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
    n_bins: int = Field(ge=2, le=MOST_BINS)
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
        """The method's name in metrics.json."""
        return "thresholds" if self.key is None else RANDOMIZED

    def probabilities(self, scores: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N] probability of the decision +1, of scores [N] and group indices s [N]."""
        table = np.zeros((len(self.steps), self.n_bins))
        for row, steps in zip(table, self.steps, strict=True):
            for from_bin, chance in steps:
                row[from_bin:] = chance
        return table[s, score_bins(scores, self.n_bins)]

    def decide(
        self, scores: np.ndarray, s: np.ndarray, ids: Iterable[str] | None = None
    ) -> np.ndarray:
        """[N] whether the decision is +1; where a probability is below 1, by the coin of the row.

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
    """[N] numbers from 0 to below 1, one of each id: 53 bits of SHA-256(key, id).

    They are as if drawn uniformly and independently, for ids that were not chosen by somebody who
    knows the key; and anybody can verify a decision.

    Example:
        >>> import synthfair as sf
        >>> sf.postprocess.coins("00" * 32, ["ann", "bob", "ann"]).round(2).tolist()
        [0.62, 0.51, 0.62]
    """
    begin = hashlib.sha256(bytes.fromhex(key))
    numbers = []
    for name in ids:
        digest = begin.copy()
        digest.update(name.encode())
        numbers.append(int.from_bytes(digest.digest()[:8], "big") >> 11)
    return np.array(numbers, float) / 2**53
