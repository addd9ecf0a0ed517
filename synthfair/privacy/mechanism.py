"""The Gaussian mechanism: the only way by which a real row may reach a private release."""

from __future__ import annotations

import numpy as np

from synthfair.privacy.noise import RandomBytes, standard_normal
from synthfair.privacy.statement import Mechanism, Relation


class GaussianMechanism:
    """Releases sums over rows with Gaussian noise, at most so many times.

    Guarantee: mu-GDP with mu = sqrt(times) sensitivity / noise, all its releases together, for sums
    of terms that :func:`clip_rows` has brought to the bound of which the sensitivity was made.
    Unit: one row. Neighbouring relation: that for which the sensitivity was computed.

    Args:
        terms: what is said of it in the release.
        source: of the noise.
    """

    def __init__(self, terms: Mechanism, source: RandomBytes) -> None:
        """Nothing is released yet."""
        self._terms, self._source, self._used = terms, source, 0

    def release(self, total: np.ndarray) -> np.ndarray:
        """The sum [...] with noise in every entry.

        Raises:
            RuntimeError: it was used as often as its guarantee allows.
        """
        if self._used >= self._terms.times:
            raise RuntimeError(f"{self._terms.name}: the budget is spent")
        self._used += 1
        return total + self._terms.noise * standard_normal(total.shape, self._source)


def clip_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows [N, k], shortened to the Euclidean norm ``bound`` where they are longer.

    A row without a finite norm becomes 0: one row must not turn a sum into not-a-number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        shortened = rows * (bound / np.maximum(norms, bound))
    return np.where(np.isfinite(norms), shortened, 0.0)


def sensitivity(bound: float, relation: Relation) -> float:
    """Largest change of a sum over rows whose terms have at most the norm ``bound``.

    A row added or removed changes it by its own term; one that is replaced, by two.
    """
    return bound if relation == "add_or_remove" else 2.0 * bound
