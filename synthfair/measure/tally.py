"""Sums of reports, from which everything is estimated: tallies of separate reports add up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.measure.mechanisms import LocalMechanism
from synthfair.privacy.noise import RandomBytes

CHUNK = 2**17
"""Clients that are perturbed at a time: few enough for their numbers to fit into the cache."""


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
        """The number of reports K as an integer."""
        return round(self.clients)

    @classmethod
    def empty(cls, groups: int) -> Tally:
        """Return the tally of no reports."""
        return cls(0.0, *np.zeros((3, groups)))

    def plus(self, other: Tally) -> Tally:
        """Return the tally of both sets of reports."""
        sums = map(np.add, self[1:], other[1:])
        return Tally(self.clients + other.clients, *sums)


def tally(group: np.ndarray, value: np.ndarray, groups: int) -> Tally:
    """Return the tally of reports: noisy groups [N], from 0 to groups - 1, and noisy values [N]."""
    counts = np.bincount(group, minlength=groups).astype(float)
    sums = (np.bincount(group, weights=part, minlength=groups) for part in (value, value * value))
    return Tally(float(len(group)), counts, *sums)


def collect(
    mechanism: LocalMechanism, group: np.ndarray, value: np.ndarray, source: RandomBytes
) -> Tally:
    """Perturbs clients and tallies their reports, some at a time, in constant memory.

    Args:
        mechanism: used by every client. Guarantee, unit and relation are the mechanism's.
        group: [N] index of each client's group, from 0 to d - 1.
        value: [N] value of each client, from -1 to 1.
        source: random bytes of the noise.

    Example:
        >>> import os
        >>> import numpy as np
        >>> import synthfair as sf
        >>> mechanism = sf.measure.RandomizedValue(2, 1.0, 1.0)
        >>> sf.measure.collect(mechanism, np.array([0, 1, 1]), np.ones(3), os.urandom).reports
        3
    """
    total = Tally.empty(mechanism.groups)
    for start in range(0, len(group), CHUNK):
        part = slice(start, start + CHUNK)
        reported, noisy = mechanism.perturb(group[part], value[part], source)
        total = total.plus(tally(reported, noisy, mechanism.groups))
    return total
