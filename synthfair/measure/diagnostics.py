"""Diagnostics: reports that contradict the public file, or shares that are said to be known.

Estimates assume that every client used the mechanism of the public file, and that given shares are
those of the groups. If the reports contradict that, the intervals are not valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthfair.measure.collection import Collection
from synthfair.measure.intervals import limits_of_means
from synthfair.measure.mechanisms import LocalMechanism
from synthfair.measure.tally import Tally, estimate_moments, means_of, require_shares

DEVIATIONS = 4.0
"""Standard errors that chance does not explain: one false alarm in 16,000 for each group."""


def diagnose_reports(
    tally: Tally, collection: Collection, shares: Sequence[float] | None = None
) -> list[str]:
    """One line for each contradiction; none if the reports fit.

    Args:
        tally: of at least one report.
        collection: the public file.
        shares: [d] of the groups, if they are said to be known.

    Raises:
        InputError: invalid shares.

    Example:
        Reports without noise show a larger gap than any clients could have:

        >>> import numpy as np
        >>> import synthfair as sf
        >>> mechanism = sf.measure.RandomizedValue(2, 1.0, 1.0)
        >>> public = sf.measure.make_collection(("f", "m"), mechanism)
        >>> size = np.array([5000.0, 5000.0])
        >>> sf.measure.diagnose_reports(sf.measure.Tally(10_000, size, size, size), public)[0]
        'f: the reports imply a mean of 1.9800, outside the range 0 to 1'
    """
    known = None if shares is None else require_shares(shares, len(collection.groups))
    return [
        *_shares(tally, collection, known),
        *_means(tally, collection, known),
        *_squares(tally, collection.make_mechanism()),
    ]


def _shares(tally: Tally, collection: Collection, known: np.ndarray | None) -> list[str]:
    """Shares that differ from the given ones, or that no group can have."""
    mechanism, clients = collection.make_mechanism(), tally.clients
    found = mechanism.shares(tally.counts / clients)
    expected = found.clip(0.0, 1.0) if known is None else known
    error = np.sqrt(mechanism.share_variance(expected, clients))
    # The second term of Bernstein's inequality, for few reports.
    small = DEVIATIONS**2 / 3 / (clients * (mechanism.keep - mechanism.change))
    why = "impossible" if known is None else "not the given one"
    return [
        f"{collection.groups[i]}: the reports imply a share of {found[i]:.4f} ± {error[i]:.4f},"
        f" which is {why}"
        for i in np.flatnonzero(np.abs(found - expected) > DEVIATIONS * error + small)
    ]


def _means(tally: Tally, collection: Collection, known: np.ndarray | None) -> list[str]:
    """Means outside the range of the value, by more than chance explains."""
    mechanism = collection.make_mechanism()
    moments = estimate_moments(tally, mechanism, known)
    means, _ = means_of(moments)
    low, high = limits_of_means(tally, mechanism, moments, DEVIATIONS, known=known is not None)
    place = collection.lower + (1 + means) * collection.unit
    return [
        f"{collection.groups[i]}: the reports imply a mean of {place[i]:.4f}, outside the range"
        f" {collection.lower:g} to {collection.upper:g}"
        for i in collection.compared
        if low[i] > 1 or high[i] < -1
    ]


def _squares(tally: Tally, mechanism: LocalMechanism) -> list[str]:
    """A mean square of v' that the mechanism's noise does not have; for M_R it is always 1."""
    found = float(tally.squares.sum()) / tally.clients
    low = mechanism.changed_square
    high = low + mechanism.keep * float(mechanism.noisy_square(np.ones(())) - low)
    # Twice the deviations, as squares of Laplace noise have a long upper tail.
    far = 2 * DEVIATIONS * math.sqrt(mechanism.square_variance / tally.clients)
    if low - far <= found <= high + far:
        return []
    return [
        f"values: the reports have a mean square of {found:.4g} in units of v, but the noise of the"
        f" mechanism gives {low:.4g} to {high:.4g}"
    ]
