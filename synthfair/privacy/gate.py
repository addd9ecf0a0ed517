"""Compares a release with the real rows before it leaves. Passing is no proof of privacy.

Only epsilon is a guarantee; these checks find accidents, as simple attackers would see them.
What they find is private, and so is, strictly, whether a release passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

import numpy as np
from scipy.spatial import KDTree

from synthfair.data.encode import Encoded
from synthfair.privacy.statement import RISKS

COPY = 1e-6
"""Euclidean distance in encoded features below which a synthetic row is a copy of a real one."""

CLOSE = 1e-3
"""Distance below which a row is nearly a copy: decoding and rounding would undo the difference."""

QUANTILE = 0.05
"""A synthetic row is near where it is as near to a real row as this share of held-out rows are; a
release that copies nobody has about that share of near rows, or less."""

ALARM = 3.1
"""Standard errors beyond which a rate is not put down to chance; one-sided, 1 in 1,000 a check."""

LEAST_HELD_OUT = 20
"""With fewer held-out rows there are no distances and no attacks."""

MOST_REAL, MOST_OTHER = 20_000, 2_000
"""Rows that distances are measured to, and from; of more, so many are drawn. Copies are looked for
among all."""

CHUNK = 2**13
"""Real rows that are searched for copies together."""

THREADS = 2
"""That look for the nearest rows, which is most of what the checks do."""


class Comparison(NamedTuple):
    """A rate that should be no higher than another, of rows that were not distilled.

    Attributes:
        found: share of synthetic rows that are near; or an attack's success on distilled rows, for
            membership the area under its ROC curve.
        expected: the same of held-out rows; for membership one half, which is chance.
        error: standard error of their difference, if there were none.
    """

    found: float
    expected: float
    error: float

    @property
    def alarming(self) -> bool:
        """Whether the difference is more than chance."""
        return self.found - self.expected > ALARM * self.error


class Distances(NamedTuple):
    """To the closest real rows, of synthetic rows and of held-out ones.

    Attributes:
        median: of the synthetic rows.
        held_out_median: of the held-out rows.
        close: rows that are nearly copies, see :data:`CLOSE`.
        near: rows that are near, see :data:`QUANTILE`.
        single: rows near to one real row alone: the closest is so much nearer than the second
            closest as for that share of held-out rows.
    """

    median: float
    held_out_median: float
    close: Comparison
    near: Comparison
    single: Comparison


class Preview(NamedTuple):
    """What a reader of the release may do with it. Private.

    Attributes:
        n_synthetic: number of synthetic rows.
        n_held_out: number of held-out rows.
        copies: how many synthetic rows equal a real row in all features.
        labels_copied: whether groups and labels are those of the real rows, in order.
        largest: size of the largest synthetic feature; real ones lie in [0, 1].
        distances: None where too few rows are held out.
        attacks: by what the attacker wants to know; none where too few rows are held out.
    """

    n_synthetic: int
    n_held_out: int
    copies: int
    labels_copied: bool
    largest: float
    distances: Distances | None
    attacks: Mapping[str, Comparison]

    @property
    def risks(self) -> tuple[str, ...]:
        """What stops a release, of :data:`synthfair.privacy.statement.RISKS`."""
        distances = self.distances
        found = {
            "copies": self.copies > 0,
            "near": bool(distances) and (distances.close.alarming or distances.near.alarming),
            "labels": self.labels_copied,
        }
        return tuple(RISKS[risk] for risk, is_there in found.items() if is_there)


def preview(
    release: Encoded,
    real: Encoded,
    held_out: Encoded,
    scores: Callable[[Encoded], np.ndarray],
    *,
    seed: int,
    copies: int | None = None,
) -> Preview:
    """Compares synthetic rows with the real rows they were distilled from, and with others.

    Args:
        release: the synthetic rows.
        real: the rows distilled.
        held_out: rows of the same table that were not; perhaps none.
        scores: of a model trained on the release, which anybody can train.
        seed: of the rows drawn where there are many.
        copies: of real rows among the synthetic ones, where ``real`` are not all of them; see
            :class:`Copies`.

    Returns:
        What was found; its ``risks`` are empty where nothing stops the release.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rng = np.random.default_rng(0)
        >>> real, held_out, synthetic = (
        ...     sf.Encoded(rng.random((100, 3)), rng.integers(2, size=100), np.ones(100))
        ...     for _ in range(3)
        ... )
        >>> synthetic.x[7] = real.x[2]
        >>> found = sf.privacy.preview(synthetic, real, held_out, lambda rows: rows.x[:, 0], seed=0)
        >>> found.copies, found.risks[0]
        (1, 'Holds copies of real rows.')
    """
    rng = np.random.default_rng(seed)
    found = Preview(
        n_synthetic=len(release.y),
        n_held_out=len(held_out.y),
        copies=int(_copied(release.x, real.x).sum()) if copies is None else copies,
        labels_copied=np.array_equal(release.s, real.s) and np.array_equal(release.y, real.y),
        largest=float(np.abs(release.x).max()),
        distances=None,
        attacks={},
    )
    if len(held_out.y) < LEAST_HELD_OUT or len(real.y) < 2:
        return found
    members = _drawn(real, len(held_out.y), rng)
    return found._replace(
        distances=_distances(
            _drawn(release, MOST_OTHER, rng), _drawn(real, MOST_REAL, rng), held_out
        ),
        attacks={
            # Rows near a synthetic one, or classified with a large margin, are taken for distilled.
            "membership, by distance": _area(
                *(-_nearest(release.x, rows.x)[0] for rows in (members, held_out))
            ),
            "membership, by loss": _area(*(rows.y * scores(rows) for rows in (members, held_out))),
            "group of a row": _attribute(release, members, held_out),
        },
    )


def _drawn(rows: Encoded, most: int, rng: np.random.Generator) -> Encoded:
    if len(rows.y) <= most:
        return rows
    chosen = np.sort(rng.choice(len(rows.y), most, replace=False))
    return Encoded(*(field[chosen] for field in rows))


def _copied(synthetic: np.ndarray, real: np.ndarray) -> np.ndarray:
    """[N_s] whether each synthetic row lies at a real row."""
    tree, found = KDTree(synthetic), np.zeros(len(synthetic), bool)
    for begin in range(0, len(real), CHUNK):
        part = real[begin : begin + CHUNK]
        near = tree.query(part, distance_upper_bound=COPY)[0] < COPY  # quick: most have none
        for rows in tree.query_ball_point(part[near], COPY):
            found[rows] = True
    return found


@dataclass(frozen=True)
class Copies:
    """Which synthetic rows are copies, and a sample of the real ones. ``a + b`` is that of both.

    Attributes:
        copied: [N_s] whether each synthetic row is a copy of some real row.
        sample: real rows, drawn.
        key: [K] random, of the sample: rows of smallest key are kept.
        most: rows of the sample, at most.
    """

    copied: np.ndarray
    sample: Encoded
    key: np.ndarray
    most: int

    @classmethod
    def among(cls, real: Encoded, synthetic: np.ndarray, *, most: int) -> Copies:
        """Of some real rows."""
        rng = np.random.default_rng(crc32(np.ascontiguousarray(real.x).tobytes()))
        key = rng.random(len(real.y))
        return cls(_copied(synthetic, real.x), real, key, most)._fewer()

    def __add__(self, other: Copies) -> Copies:
        """Of the rows of both."""
        sample = Encoded(*map(np.concatenate, zip(self.sample, other.sample, strict=True)))
        key = np.concatenate([self.key, other.key])
        return Copies(self.copied | other.copied, sample, key, self.most)._fewer()

    @property
    def count(self) -> int:
        """Number of synthetic rows that are copies."""
        return int(self.copied.sum())

    def _fewer(self) -> Copies:
        first = np.argsort(self.key)[: self.most]
        sample = Encoded(*(field[first] for field in self.sample))
        return replace(self, sample=sample, key=self.key[first])


def _distances(release: Encoded, real: Encoded, held_out: Encoded) -> Distances:
    (first, second), (usual, usual_second) = (
        _nearest(real.x, rows.x, k=2)[0].T for rows in (release, held_out)
    )
    ratios, usual_ratios = _ratio(first, second), _ratio(usual, usual_second)
    return Distances(
        median=float(np.median(first)),
        held_out_median=float(np.median(usual)),
        close=_excess(first, usual, CLOSE),
        near=_excess(first, usual, max(CLOSE, float(np.quantile(usual, QUANTILE)))),
        single=_excess(ratios, usual_ratios, float(np.quantile(usual_ratios, QUANTILE))),
    )


def _excess(synthetic: np.ndarray, held_out: np.ndarray, radius: float) -> Comparison:
    """Shares within a radius; where no held-out row is, the error is 0 and one row is alarming."""
    share = float(np.mean(held_out <= radius))
    error = (share * (1 - share) * (1 / len(synthetic) + 1 / len(held_out))) ** 0.5
    return Comparison(float(np.mean(synthetic <= radius)), share, error)


def _ratio(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Closest over second closest; 1 where both are 0, as among rows that repeat."""
    return np.divide(first, second, out=np.ones_like(first), where=second > 0)


def _area(members: np.ndarray, others: np.ndarray) -> Comparison:
    """Area under the ROC curve, by ranks; its error as without a difference (Mann-Whitney)."""
    import pandas as pd

    n, m = len(members), len(others)
    ranks = pd.Series(np.concatenate([members, others])).rank()[:n].sum()
    area = (ranks - n * (n + 1) / 2) / (n * m)
    return Comparison(float(area), 0.5, float(np.sqrt((n + m + 1) / (12 * n * m))))


def _attribute(release: Encoded, members: Encoded, others: Encoded) -> Comparison:
    """Guesses the group of a row, whose features and label are known, by the closest synthetic."""
    known = np.column_stack([release.x, release.y])
    hits = [
        release.s[_nearest(known, np.column_stack([rows.x, rows.y]))[1]] == rows.s
        for rows in (members, others)
    ]
    share = float(np.mean(np.concatenate(hits)))
    error = float(np.sqrt(share * (1 - share) * sum(1 / len(hit) for hit in hits)))
    return Comparison(float(hits[0].mean()), float(hits[1].mean()), error)


def _nearest(points: np.ndarray, rows: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the k nearest points of each row."""
    distances, positions = KDTree(points).query(rows, k=k, workers=THREADS)
    return np.asarray(distances), np.asarray(positions)
