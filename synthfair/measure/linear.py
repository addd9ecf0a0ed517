"""Group shares and means from a tally, with their covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally


class Linear(NamedTuple):
    """Unbiased estimates of p_j m_j and of p_j, with their covariances [d, d]."""

    pm: np.ndarray
    p: np.ndarray
    cov_pm: np.ndarray
    cov_p: np.ndarray
    cov_both: np.ndarray


def linear_estimates(tally: Tally, mechanism: Mechanism, shares: np.ndarray | None) -> Linear:
    """Each is a mean over independent reports, whose covariance their squares give.

    Args:
        tally: of the reports; of all groups, or of some.
        mechanism: that made them.
        shares: of the tally's groups, if known; without uncertainty then.
    """
    clients = tally.clients
    pi, t, u = tally.counts / clients, tally.totals / clients, tally.squares / clients
    pm = t / (mechanism.keep * mechanism.gain)
    cov_pm = (np.diag(u) - np.outer(t, t)) / clients / (mechanism.keep * mechanism.gain) ** 2
    if shares is not None:
        none = np.zeros_like(cov_pm)
        return Linear(pm, shares, cov_pm, none, none)
    slope = mechanism.keep - mechanism.move
    cov_p = (np.diag(pi) - np.outer(pi, pi)) / clients / slope**2
    cov_both = (np.diag(t) - np.outer(t, pi)) / clients
    cov_both /= mechanism.keep * mechanism.gain * slope
    return Linear(pm, mechanism.response.shares(pi), cov_pm, cov_p, cov_both)


def known_shares(shares: Sequence[float], groups: int) -> np.ndarray:
    """Shares as an array.

    Raises:
        InputError: not one a group, one not above 0, or a sum other than 1.
    """
    found = np.asarray(shares, float)
    if found.shape != (groups,) or not (found > 0).all() or abs(found.sum() - 1) > 1e-6:
        raise InputError(f"shares = {list(shares)}: must be {groups} positive numbers of sum 1")
    return found


def means_of(linear: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Means m = pm / p, and their covariance to first order: (d pm - m d p) / p."""
    p = np.where(linear.p > 0, linear.p, np.nan)
    means = linear.pm / p
    crossed = linear.cov_both * means  # column j times m_j
    spread = linear.cov_pm - crossed - crossed.T + linear.cov_p * np.outer(means, means)
    return means, spread / np.outer(p, p)
