"""Sums of reports, and what they estimate: the groups' shares and means with their covariance.

With pi_j = count_j / K and t_j = total_j / K for K reports, a group's share and mean are

    p_j = (pi_j - q) / (a - q),        m_j = t_j / (a gain p_j),

where m_j is the estimator of Juarez and Korolova (2022), definition 5.1, with the estimated size of
the group in place of the known one. (pi, t) is a mean over K independent reports, so the reports
give its covariance; that of (p, m) follows to first order (delta method).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.mechanisms import LocalMechanism
from synthfair.privacy.noise import RandomBytes

CHUNK = 2**17
"""Clients that are perturbed at a time: few enough for their numbers to fit into the cache."""


class Tally(NamedTuple):
    """Sufficient statistics of any number of reports: tallies of separate reports add up.

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
        """K as an integer."""
        return round(self.clients)

    def plus(self, other: Tally) -> Tally:
        """The tally of both sets of reports."""
        return Tally(
            self.clients + other.clients,
            self.counts + other.counts,
            self.totals + other.totals,
            self.squares + other.squares,
        )

    def of(self, groups: np.ndarray) -> Tally:
        """The statistics of some groups, by index or mask; K stays that of all reports."""
        return Tally(self.clients, self.counts[groups], self.totals[groups], self.squares[groups])


def empty_tally(groups: int) -> Tally:
    """The tally of no reports."""
    return Tally(0.0, np.zeros(groups), np.zeros(groups), np.zeros(groups))


def tally(group: np.ndarray, value: np.ndarray, groups: int) -> Tally:
    """The tally of reports: noisy groups [N], from 0 to groups - 1, and noisy values [N]."""
    return Tally(
        float(len(group)),
        np.bincount(group, minlength=groups).astype(float),
        np.bincount(group, weights=value, minlength=groups),
        np.bincount(group, weights=value * value, minlength=groups),
    )


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
    found = empty_tally(mechanism.groups)
    for start in range(0, len(group), CHUNK):
        part = slice(start, start + CHUNK)
        reported, noisy = mechanism.perturb(group[part], value[part], source)
        found = found.plus(tally(reported, noisy, mechanism.groups))
    return found


class Moments(NamedTuple):
    """Unbiased estimates [d] of p_j m_j and p_j, and their covariances [d, d]."""

    pm: np.ndarray
    p: np.ndarray
    cov_pm: np.ndarray
    cov_p: np.ndarray
    cov_both: np.ndarray


def estimate_moments(found: Tally, mechanism: LocalMechanism, shares: np.ndarray | None) -> Moments:
    """Products p_j m_j and shares p_j, both linear in the tally; known shares have no variance."""
    clients = found.clients
    pi, t, u = found.counts / clients, found.totals / clients, found.squares / clients
    pm = t / (mechanism.keep * mechanism.gain)
    cov_pm = (np.diag(u) - np.outer(t, t)) / clients / (mechanism.keep * mechanism.gain) ** 2
    if shares is not None:
        none = np.zeros_like(cov_pm)
        return Moments(pm, shares, cov_pm, none, none)
    slope = mechanism.keep - mechanism.change
    cov_p = (np.diag(pi) - np.outer(pi, pi)) / clients / slope**2
    cov_both = (np.diag(t) - np.outer(t, pi)) / clients
    cov_both /= mechanism.keep * mechanism.gain * slope
    return Moments(pm, mechanism.shares(pi), cov_pm, cov_p, cov_both)


def means_of(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Means m = pm / p, and their covariance to first order: (d pm - m d p) / p."""
    p = np.where(moments.p > 0, moments.p, np.nan)
    means = moments.pm / p
    crossed = moments.cov_both * means  # column j times m_j
    spread = moments.cov_pm - crossed - crossed.T + moments.cov_p * np.outer(means, means)
    return means, spread / np.outer(p, p)


def require_shares(shares: Sequence[float], groups: int) -> np.ndarray:
    """Shares of clients as an array.

    Raises:
        InputError: not one for each group, one that is not positive, or a sum other than 1.
    """
    found = np.asarray(shares, float)
    if found.shape != (groups,) or not (found > 0).all() or abs(found.sum() - 1) > 1e-6:
        raise InputError(f"shares = {list(shares)}: must be {groups} positive numbers of sum 1")
    return found
