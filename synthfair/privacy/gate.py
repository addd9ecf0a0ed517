"""Compares a release with the real rows before it leaves. Passing is no proof of privacy.

Only epsilon is a guarantee; these checks find accidents, as simple attackers would see them.
What they find is private, and so is, strictly, whether a release passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from synthfair.data.encode import Encoded, drawn_by_content
from synthfair.privacy.statement import GRID, RISKS

ALARM = 3.1
"""Standard errors beyond which a rate is not put down to chance; one-sided, 1 in 1,000 a check."""

CHANCE = 1e-3
"""The chance that :data:`ALARM` leaves, for counts that are small."""


COPY = 1e-6
"""Difference in each encoded feature below which a synthetic row is a copy of a real one; of rows
that are on the grid of a release, half a step more."""

CLOSE = 1e-3
"""Distance below which a row is nearly a copy: decoding and rounding would undo the difference."""

QUANTILE = 0.05
"""A synthetic row is near where it is as near to a real row as this share of held-out rows are; a
release that copies nobody has about that share of near rows, or less."""

LEAST_HELD_OUT = 20
"""The least number of distinct held-out rows that anything is compared with."""

CHUNK = 2**13
"""Real rows that are searched for copies together."""

THREADS = 2
"""Number of threads that search a tree."""

FEW_COLUMNS = 20
"""The most columns in which a tree is quicker; in more it visits nearly all points."""

SPARE = 4
"""Candidates of each row beyond those asked for, as rounding may confuse points equally near."""

CELLS = 2**22
"""Distances that are held at once."""


class Comparison(NamedTuple):
    """A rate that should be no higher than another, of rows that were not distilled.

    Attributes:
        value: share of synthetic rows that are near; or an attack's success on distilled rows, for
            membership the area under its ROC curve.
        expected: the same of held-out rows; for membership one half, which is chance.
        error: standard error of their difference, if there were none.
    """

    value: float
    expected: float
    error: float

    @property
    def alarming(self) -> bool:
        """Whether the difference is more than chance."""
        return self.value - self.expected > ALARM * self.error


def excess(synthetic: np.ndarray, held_out: np.ndarray, radius: float) -> Comparison:
    """Compares shares within a radius; without a held-out row in it, any row is alarming."""
    share = float(np.mean(held_out <= radius))
    error = (share * (1 - share) * (1 / len(synthetic) + 1 / len(held_out))) ** 0.5
    return Comparison(float(np.mean(synthetic <= radius)), share, error)


def nearer(
    synthetic: np.ndarray, held_out: np.ndarray, quantile: float, least: float = 0.0
) -> Comparison:
    """Compares shares within a quantile of held-out distances, or ``least`` if that is more.

    If all distances are drawn alike, the number of n synthetic ones within the j-th of m held-out
    ones is beta-binomial, with parameters j and m + 1 - j: the quantile's own chance is counted.

    Example:
        >>> import numpy as np
        >>> from synthfair.privacy.gate import nearer
        >>> held_out = np.arange(1.0, 41.0)
        >>> [nearer(np.arange(n) / n, held_out, 0.05).alarming for n in (1, 100)]
        [False, True]
    """
    from scipy.stats import betabinom

    place = max(1, int(quantile * len(held_out)))
    radius = max(least, float(np.partition(held_out, place - 1)[place - 1]))
    n, m, within = len(synthetic), len(held_out), int(np.sum(held_out <= radius))
    most = (float(betabinom.isf(CHANCE, n, within, m + 1 - within)) + 0.5) / n
    share = within / m
    return Comparison(float(np.mean(synthetic <= radius)), share, (most - share) / ALARM)


def most_by_chance(n: int, chance: float) -> int:
    """The least count, of n independent rows, that more are beyond with :data:`CHANCE` at most.

    Example:
        >>> from synthfair.privacy.gate import most_by_chance
        >>> most_by_chance(1000, 0.0), most_by_chance(1000, 0.01)
        (0, 21)
    """
    from scipy.stats import binom

    return int(binom.isf(CHANCE, n, chance))


def area(members: np.ndarray, others: np.ndarray) -> Comparison:
    """Area under the ROC curve, by ranks; its error as without a difference, ties counted.

    Mann-Whitney: the ranks of n of n + m distinct rows that are drawn at random.
    """
    from scipy.stats import rankdata

    n, m = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    area = (ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    return Comparison(
        float(area), 0.5, float((ranks.var(ddof=1) * (1 / n + 1 / m)) ** 0.5 / (n + m))
    )


MOST_REAL, MOST_OTHER = 20_000, 2_000
"""Rows that distances are measured to, and from; of more, so many are drawn."""


class Distances(NamedTuple):
    """Distances of synthetic and of held-out rows to the closest real rows; equal rows count once.

    Attributes:
        median: of the synthetic rows.
        held_out_median: of the held-out rows.
        close: rows that are nearly copies, see :data:`CLOSE`.
        near: rows that are near, see :data:`QUANTILE`.
        single: rows near to one real row alone: the closest is so much nearer than the second
            closest as for that share of held-out rows.
        linkage: rows whose closest of all real rows was distilled, not held out. Who is held
            out is chance, so that this is a randomisation test: whatever the release, if it does
            not depend on who was held out, the alarm is false.
    """

    median: float
    held_out_median: float
    close: Comparison
    near: Comparison
    single: Comparison
    linkage: Comparison


class Preview(NamedTuple):
    """The findings of the checks in front of a release: what its reader could do with it. Private.

    Attributes:
        n_synthetic: number of synthetic rows.
        n_held_out: number of distinct held-out rows.
        copies: how many synthetic rows equal a real row in all features.
        copies_by_chance: how many of as many rows of public noise may: more stop a release. None,
            unless there are few features.
        labels_copied: whether groups, or labels, are those of the real rows in order, or in reverse
            order, up to other names.
        largest: size of the largest synthetic feature; real ones lie in [0, 1].
        distances: None where too few distinct rows are held out.
        attacks: by what the attacker wants to know; none where too few distinct rows are held out.
    """

    n_synthetic: int
    n_held_out: int
    copies: int
    copies_by_chance: int
    labels_copied: bool
    largest: float
    distances: Distances | None = None
    attacks: Mapping[str, Comparison] = MappingProxyType({})

    @property
    def risks(self) -> tuple[str, ...]:
        """The reasons to stop a release, of :data:`synthfair.privacy.statement.RISKS`."""
        names, far = set(), self.distances
        if far:
            alarms = {"near": (far.close, far.near), "single": (far.single, far.linkage)}
            names = {name for name, rates in alarms.items() if any(rate.alarming for rate in rates)}
        names |= {"labels"} if self.labels_copied else set()
        names |= {"copies"} if self.copies > self.copies_by_chance else set()
        return tuple(line for risk, line in RISKS.items() if risk in names)


def preview(
    release: Encoded,
    real: Encoded,
    held_out: Encoded,
    scores: Callable[[Encoded], np.ndarray],
    *,
    seed: int,
) -> Preview:
    """Compares synthetic rows with the real rows they were distilled from, and with others.

    Equal rows are held out together, and count once: a row is a group, a label and features. Each
    check that stops a release raises a false alarm once in 1,000 releases of public noise; all
    together less than once in 100.

    Args:
        release: the synthetic rows; all of group 0 where they have no groups.
        real: the rows distilled.
        held_out: rows of the same table that were not; perhaps none.
        scores: of a model trained on the release, which anybody can train.
        seed: of the rows drawn where there are many.

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
    sample = _sample(release, MOST_OTHER, rng)
    sources, others = (drawn_by_content(rows, MOST_REAL) for rows in (real, held_out))
    # A copy differs by no more than rounding to the grid hides. The chance of a uniform row to be
    # one is the volume around all real rows, at most.
    steps, (n, d) = release.x / GRID, real.x.shape
    within = COPY + GRID / 2 * bool(np.array_equal(steps, np.rint(steps)))
    chance = min(1.0, n * (2 * within) ** d)
    # What needs no held-out rows.
    result = Preview(
        n_synthetic=len(release.y),
        n_held_out=len(others.y),
        copies=int(_copy_mask(release.x, real.x, within).sum()),
        copies_by_chance=most_by_chance(len(release.y), chance),
        labels_copied=_is_recoded(release.s, real.s) or _is_recoded(release.y, real.y),
        largest=float(np.abs(release.x).max()),
    )
    if len(others.y) < LEAST_HELD_OUT or len(sources.y) < 2:
        return result
    # Distances to the real rows, and attacks, next to those of held-out rows.
    members = _sample(sources, len(others.y), rng)
    return result._replace(
        distances=_distances(sample.x, sources, others),
        attacks={
            # Rows near a synthetic one, or classified with a large margin, are taken for distilled.
            "membership, by distance": area(
                *(-nearest(release.x, rows.x)[0] for rows in (members, others))
            ),
            "membership, by loss": area(*(rows.y * scores(rows) for rows in (members, others))),
        }
        | ({"group of a row": _attribute(release, members, others)} if release.s.any() else {}),
    )


def _is_recoded(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two sequences of two values or more are the same up to their names, or reversed."""
    values = len(np.unique(first))
    if len(first) != len(second) or values < 2 or len(np.unique(second)) != values:
        return False
    pairs = (np.column_stack([first, order]) for order in (second, second[::-1]))
    return any(len(np.unique(pair, axis=0)) == values for pair in pairs)


def _sample(rows: Encoded, most: int, rng: np.random.Generator) -> Encoded:
    if len(rows.y) <= most:
        return rows
    indices = np.sort(rng.choice(len(rows.y), most, replace=False))
    return Encoded(*(field[indices] for field in rows))


def _copy_mask(synthetic: np.ndarray, real: np.ndarray, within: float) -> np.ndarray:
    """[N_s] whether each synthetic row lies at a real row."""
    tree, copies = KDTree(synthetic), np.zeros(len(synthetic), bool)
    for begin in range(0, len(real), CHUNK):
        part = real[begin : begin + CHUNK]
        distance, _ = tree.query(part, p=np.inf, distance_upper_bound=2 * within)
        near = distance <= within  # quick: most have none
        for rows in tree.query_ball_point(part[near], within, p=np.inf):
            copies[rows] = True
    return copies


def _distances(synthetic: np.ndarray, sources: Encoded, others: Encoded) -> Distances:
    real = np.unique(sources.x, axis=0)  # the second closest is another one
    (first, second), (reference, reference_second) = (
        nearest(real, rows, k=2)[0].T for rows in (synthetic, others.x)
    )
    # Closest over second closest; 1 where both are 0, as among rows that repeat.
    ratios, reference_ratios = (
        np.divide(one, two, out=np.ones_like(one), where=two > 0)
        for one, two in ((first, second), (reference, reference_second))
    )
    return Distances(
        median=float(np.median(first)),
        held_out_median=float(np.median(reference)),
        close=excess(first, reference, CLOSE),
        near=nearer(first, reference, QUANTILE, CLOSE),
        single=nearer(ratios, reference_ratios, QUANTILE),
        linkage=_linkage(synthetic, sources, others),
    )


def _linkage(synthetic: np.ndarray, sources: Encoded, others: Encoded) -> Comparison:
    """Share of rows whose closest row of all was distilled; its error if who was is chance.

    Distinct rows with the same features share what is nearest to them. With c_i synthetic rows
    nearest to the distinct row i, and h of n rows held out at random, the number nearest to
    held-out rows has the mean h/n sum c_i and the variance h (n - h) / (n (n - 1)) sum (c_i - c)^2.
    """
    features, at = np.unique(np.vstack([sources.x, others.x]), axis=0, return_inverse=True)
    at, apart = at.reshape(-1), np.arange(len(at)) >= len(sources.y)
    counts = np.bincount(nearest(features, synthetic)[1], minlength=len(features))
    each = (counts / np.bincount(at))[at]
    n, h, n_s = len(apart), int(apart.sum()), len(synthetic)
    variance = h * (n - h) / (n * (n - 1)) * np.sum((each - each.mean()) ** 2)
    return Comparison(float(each[~apart].sum()) / n_s, (n - h) / n, float(variance**0.5) / n_s)


def _attribute(release: Encoded, members: Encoded, others: Encoded) -> Comparison:
    """Guesses the group of a row, whose features and label are known, by the closest synthetic."""
    features = np.column_stack([release.x, release.y])
    hits = [
        release.s[nearest(features, np.column_stack([rows.x, rows.y]))[1]] == rows.s
        for rows in (members, others)
    ]
    share = float(np.mean(np.concatenate(hits)))
    error = float(np.sqrt(share * (1 - share) * sum(1 / len(hit) for hit in hits)))
    return Comparison(float(hits[0].mean()), float(hits[1].mean()), error)


def nearest(points: np.ndarray, rows: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the k nearest points of each row.

    In many columns, the candidates are those with the least ``|p|^2 - 2 r.p``, a product of
    matrices; of these, distances are computed from differences. Where more than ``k + SPARE``
    points are equally near but for 1e-7, any of them is found.

    Args:
        points: [n, d].
        rows: [N, d].
        k: how many.

    Returns:
        Twice [N], or [N, k] from the nearest on for k > 1; where there are fewer points, infinity
        and n.

    Example:
        >>> import numpy as np
        >>> from synthfair.privacy.gate import nearest
        >>> distances, positions = nearest(np.eye(30), 0.5 * np.eye(30)[:2])
        >>> distances.tolist(), positions.tolist()
        ([0.5, 0.5], [0, 1])
    """
    if points.shape[1] <= FEW_COLUMNS:
        distances, positions = KDTree(points).query(rows, k=k, workers=THREADS)
        return np.asarray(distances), np.asarray(positions)
    n, shape = len(points), (len(rows), k)
    distances, positions = np.full(shape, np.inf), np.full(shape, n)
    squares = np.einsum("ij,ij->i", points, points)
    step, count = max(1, CELLS // n), min(k, n)
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        # Candidates in no order, by the product; then their distances, from the nearest on.
        some, products = min(k + SPARE, n), squares - 2 * rows[part] @ points.T
        candidates = np.argpartition(products, some - 1, axis=1)[:, :some]
        exact = np.linalg.norm(points[candidates] - rows[part, None], axis=2)
        order = np.argsort(exact, axis=1, kind="stable")[:, :count]
        distances[part, :count] = np.take_along_axis(exact, order, axis=1)
        positions[part, :count] = np.take_along_axis(candidates, order, axis=1)
    return (distances[:, 0], positions[:, 0]) if k == 1 else (distances, positions)
