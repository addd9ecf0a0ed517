"""Reports that do not fit what they are taken for: another mechanism's, or of other groups.

An estimate takes for granted that clients reported by the mechanism of the public file, and that
shares that are given are those of the groups. Where reports contradict that, intervals say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthfair.measure.collection import Collection
from synthfair.measure.estimate import limits_of_means
from synthfair.measure.linear import known_shares, linear_estimates, means_of
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally

DEVIATIONS = 4.0
"""Standard errors beyond which chance is no explanation: once in 16,000 for each group."""


def doubts(
    tally: Tally, collection: Collection, shares: Sequence[float] | None = None
) -> list[str]:
    """What the reports contradict, a line each; none where they fit.

    Args:
        tally: of at least one report.
        collection: by which they are said to be made.
        shares: [d] of the groups, if they are said to be known.
    """
    known = None if shares is None else known_shares(shares, len(collection.groups))
    return [
        *_of_shares(tally, collection, known),
        *_of_means(tally, collection, known),
        *_of_squares(tally, collection.noise()),
    ]


def _of_shares(tally: Tally, collection: Collection, known: np.ndarray | None) -> list[str]:
    """Shares that the reports do not tell, or that no group can have."""
    mechanism, clients = collection.noise(), tally.clients
    told = mechanism.response.shares(tally.counts / clients)
    said = told.clip(0.0, 1.0) if known is None else known
    error = np.sqrt(mechanism.response.share_variance(said, clients))
    # Bernstein's second term: few reports are not normal.
    small = DEVIATIONS**2 / 3 / (clients * (mechanism.keep - mechanism.move))
    why = "no group has" if known is None else "is not the one given"
    return [
        f"{collection.groups[i]}: the reports tell a share of {told[i]:.4f} ± {error[i]:.4f},"
        f" which {why}"
        for i in np.flatnonzero(np.abs(told - said) > DEVIATIONS * error + small)
    ]


def _of_means(tally: Tally, collection: Collection, known: np.ndarray | None) -> list[str]:
    """Means that lie outside the range of the values, whatever chance did."""
    mechanism = collection.noise()
    linear = linear_estimates(tally, mechanism, known)
    means, _ = means_of(linear)
    low, high = limits_of_means(tally, mechanism, linear, DEVIATIONS, known is not None)
    place = collection.lower + (1 + means) * collection.unit
    return [
        f"{collection.groups[i]}: the reports tell a mean of {place[i]:.4f}, outside the range"
        f" {collection.lower:g} to {collection.upper:g}"
        for i in collection.compared
        if low[i] > 1 or high[i] < -1
    ]


def _of_squares(tally: Tally, mechanism: Mechanism) -> list[str]:
    """A mean square that the noise cannot have; of M_R it is always 1."""
    found = float(tally.squares.sum()) / tally.clients
    low = mechanism.moved_square
    high = low + mechanism.keep * float(mechanism.kept_square(np.ones(())) - low)
    # Twice the deviations: squares of Laplace noise lean far to the large.
    far = 2 * DEVIATIONS * math.sqrt(mechanism.square_variance / tally.clients)
    if low - far <= found <= high + far:
        return []
    return [
        f"values: the reports have a mean square of {found:.4g}, in units of v, where the noise"
        f" makes it {low:.4g} to {high:.4g}"
    ]
