"""Diagnostics: reports that contradict the public file, or shares that are said to be known.

Estimates assume that every client used the mechanism of the public file, and that given shares are
those of the groups. If the reports contradict that, the intervals are not valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthfair.measure.collection import Collection
from synthfair.measure.estimate import estimate_means, limits_of_means
from synthfair.measure.tally import Tally

DEVIATIONS = 4.0
"""Standard errors that chance does not explain: one false alarm in 16,000 for each group."""


def diagnose_reports(
    tally: Tally, collection: Collection, shares: Sequence[float] | None = None
) -> list[str]:
    """Return contradictions between reports and the public file, one a line; none if they fit.

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
    names, mechanism = collection.groups, collection.make_mechanism()
    means = estimate_means(tally, mechanism, shares)

    # Shares that differ from the given ones, or that no group can have.
    implied = mechanism.shares(tally.counts / tally.clients)
    expected = implied.clip(0.0, 1.0) if shares is None else means.shares
    error = np.sqrt(mechanism.share_variance(expected, tally.clients))
    # The second term of Bernstein's inequality, for few reports.
    small = DEVIATIONS**2 / 3 / (tally.clients * (mechanism.keep - mechanism.change))
    verdict = "impossible" if shares is None else "not the given one"
    lines = [
        f"{names[i]}: the reports imply a share of {implied[i]:.4f} ± {error[i]:.4f},"
        f" which is {verdict}"
        for i in np.flatnonzero(np.abs(implied - expected) > DEVIATIONS * error + small)
    ]

    # Means outside the range of the value, by more than chance explains.
    low, high = limits_of_means(tally, mechanism, means, DEVIATIONS)
    place = collection.lower + (1 + means.values) * collection.unit
    lines += [
        f"{names[i]}: the reports imply a mean of {place[i]:.4f}, outside the range"
        f" {collection.lower:g} to {collection.upper:g}"
        for i in collection.compared
        if low[i] > 1 or high[i] < -1
    ]

    # A mean square of v' that the mechanism's noise does not have; for M_R it is always 1. Twice
    # the deviations, as squares of Laplace noise have a long upper tail.
    square = float(tally.squares.sum()) / tally.clients
    least = mechanism.changed_square
    most = least + mechanism.keep * float(mechanism.noisy_square(np.ones(())) - least)
    far = 2 * DEVIATIONS * math.sqrt(mechanism.square_variance / tally.clients)
    if not least - far <= square <= most + far:
        lines.append(
            f"values: the reports have a mean square of {square:.4g} in units of v, but the noise"
            f" of the mechanism gives {least:.4g} to {most:.4g}"
        )
    return lines
