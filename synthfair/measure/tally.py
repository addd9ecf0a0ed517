"""All that is kept of the reports: for each group a count, a sum and a sum of squares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.measure.mechanisms import Mechanism
from synthfair.privacy.noise import RandomBytes

CHUNK = 2**17
"""Clients that are perturbed together: few enough for their numbers to stay in the cache."""


class Tally(NamedTuple):
    """Sufficient statistics of any number of reports; two of them add up.

    Attributes:
        clients: K, whose reports these are, of all groups.
        counts: [d] reports that name the group.
        totals: [d] sum of their noisy values.
        squares: [d] sum of the squares.
    """

    clients: float
    counts: np.ndarray
    totals: np.ndarray
    squares: np.ndarray

    @property
    def reports(self) -> int:
        """K."""
        return round(self.clients)

    def plus(self, other: Tally) -> Tally:
        """Of both together."""
        return Tally(
            self.clients + other.clients,
            self.counts + other.counts,
            self.totals + other.totals,
            self.squares + other.squares,
        )

    def of(self, groups: np.ndarray) -> Tally:
        """What it holds of some groups, given by their indices; K stays what it is."""
        return Tally(self.clients, self.counts[groups], self.totals[groups], self.squares[groups])


def empty_tally(groups: int) -> Tally:
    """Of no report."""
    return Tally(0.0, np.zeros(groups), np.zeros(groups), np.zeros(groups))


def tally(group: np.ndarray, value: np.ndarray, groups: int) -> Tally:
    """Of reports: noisy groups [N], 0 to groups - 1, and values [N]."""
    return Tally(
        float(len(group)),
        np.bincount(group, minlength=groups).astype(float),
        np.bincount(group, weights=value, minlength=groups),
        np.bincount(group, weights=value * value, minlength=groups),
    )


def collect(
    mechanism: Mechanism, group: np.ndarray, value: np.ndarray, source: RandomBytes
) -> Tally:
    """Perturbs clients [N] and adds their reports up, some at a time: no report is kept."""
    found = empty_tally(mechanism.groups)
    for start in range(0, len(group), CHUNK):
        part = slice(start, start + CHUNK)
        told, noisy = mechanism.perturb(group[part], value[part], source)
        found = found.plus(tally(told, noisy, mechanism.groups))
    return found
