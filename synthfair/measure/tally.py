"""Sums of reports, from which everything is estimated: tallies of separate reports add up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Tally(NamedTuple):
    """Sufficient statistics of any number of reports.

    Attributes:
        clients: K, the number of reports of all groups.
        counts: [d] number of reports that name the group.
        totals: [d] sum of their noisy values v'.
        squares: [d] sum of v'^2.
    """

    clients: float
    counts: np.ndarray
    totals: np.ndarray
    squares: np.ndarray

    @property
    def reports(self) -> int:
        """Return the number of reports K as an integer."""
        return round(self.clients)

    def plus(self, other: Tally) -> Tally:
        """Return the tally of both sets of reports."""
        sums = map(np.add, self[1:], other[1:])
        return Tally(self.clients + other.clients, *sums)


def tally(group: np.ndarray, value: np.ndarray, groups: int) -> Tally:
    """Return the tally of reports: noisy groups [N], from 0 to groups - 1, and noisy values [N]."""
    counts = np.bincount(group, minlength=groups).astype(float)
    sums = (np.bincount(group, weights=part, minlength=groups) for part in (value, value * value))
    return Tally(float(len(group)), counts, *sums)
