"""The Gaussian mechanism on sums over rows; the exponential mechanism on scores.

Sums are exact. Each row's term is shortened, then rounded to whole multiples of a public step, the
grid; they are added as integers, and so is noise of a discrete Gaussian distribution. Nothing that
is released depends on how a computer rounds a sum or a logarithm.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from synthfair.errors import InputError
from synthfair.privacy.accounting import EPSILON_STEPS, MIN_NOISE_STEPS, mu_of_choice
from synthfair.privacy.noise import RandomBytes, discrete_gaussian, exponential_choice
from synthfair.settings import MAX_GUARANTEE_EPSILON, Checked, Relation

SumName = Literal["histograms", "pairs", "tables", "column_moments", "anchors"]
"""Names of the sums that mechanisms release, by group and label: rows at each level of each column;
at each pair of levels of two columns, for those on a tree, or for all; products of numeric columns'
scores, and their values; smooth rates of models."""

NEVER_OPPOSED: frozenset[SumName] = frozenset({"histograms", "pairs", "tables"})
"""Sums in which the terms of any two rows have an inner product of at least 0: they are counts."""

SCORE_GRID = 2.0**-10
"""The grid of the scores of a choice, which are whole multiples of it."""


class GaussianMechanism(Checked):
    """One Gaussian mechanism: mu-GDP with mu = sensitivity / noise.

    Nearly so, as the noise is discrete, see :func:`synthfair.privacy.accounting.discrete_delta_of`.

    Attributes:
        name: what it releases sums of.
        sensitivity: Euclidean norm by which a neighbour can change the sum, rounding included.
        noise: standard deviation of what is added to each entry; a whole number of steps.
        grid: the step, a power of 4, of which terms and noise are whole multiples.
    """

    name: SumName
    sensitivity: float = Field(gt=0)
    noise: float = Field(gt=0)
    grid: float = Field(gt=0)

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy."""
        return self.sensitivity / self.noise

    @property
    def steps(self) -> Fraction:
        """The noise in steps of the grid."""
        return Fraction(self.noise) / Fraction(self.grid)

    def terms(self, relation: Relation) -> Terms:
        """Return what brings rows to the bound that the sensitivity implies, and to the grid.

        Args:
            relation: for which the sensitivity was computed.
        """
        unit = sensitivity(1.0, relation, never_opposed=self.name in NEVER_OPPOSED)
        return Terms(self.sensitivity / unit, self.grid)

    @model_validator(mode="after")
    def _has_a_fine_grid(self) -> GaussianMechanism:
        mantissa, exponent = math.frexp(self.grid)
        if mantissa != 0.5 or exponent % 2 == 0:
            raise ValueError(f"{self.name}: grid {self.grid!r} must be a power of 4")
        if self.steps < MIN_NOISE_STEPS or self.steps.denominator != 1:
            steps = f"a whole number of steps of the grid {self.grid!r}, 2^34 or more"
            raise ValueError(f"{self.name}: noise {self.noise!r} must be {steps}")
        return self


class ExponentialMechanism(Checked):
    """A series of choices by the exponential mechanism of McSherry and Talwar (2007).

        P(i) is proportional to exp(epsilon u_i / (2 sensitivity))        for scores u_i.

    All choices together are mu-GDP, see
    :func:`synthfair.privacy.accounting.mu_of_choice`, also where each depends on those before it.

    Attributes:
        name: what is chosen: the edges of a tree over columns, one after the other.
        sensitivity: by which a neighbour can change a score u_i, rounding included.
        epsilon: of one choice, a multiple of 2^-20.
        times: how many choices there are, at most.
        grid: the step of which scores are whole multiples.
    """

    name: Literal["tree"]
    sensitivity: float = Field(gt=0, le=1e6)
    epsilon: float = Field(ge=0, le=MAX_GUARANTEE_EPSILON)
    times: int = Field(ge=1, le=10_000)
    grid: float = SCORE_GRID

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of all choices together."""
        return math.sqrt(self.times) * mu_of_choice(self.epsilon)

    @model_validator(mode="after")
    def _has_the_steps(self) -> ExponentialMechanism:
        if self.epsilon * EPSILON_STEPS % 1:
            raise ValueError(f"{self.name}: epsilon {self.epsilon!r} must be a multiple of 2^-20")
        if self.grid != SCORE_GRID:
            raise ValueError(f"{self.name}: grid {self.grid!r} must be {SCORE_GRID!r}")
        return self


def grid_for(noise: float) -> float:
    """Return the step for noise of this standard deviation: 4^j, with noise / 4^j in [2^34, 2^36).

    So it depends on public settings alone, and costs nothing that could be measured.
    """
    exponent = math.frexp(noise)[1] - 1 - (MIN_NOISE_STEPS.bit_length() - 1)
    return math.ldexp(1.0, exponent - exponent % 2)


class Terms(NamedTuple):
    """The terms that rows add to a sum, as whole multiples of a grid.

    Attributes:
        bound: Euclidean norm that no term exceeds once it is rounded, whatever the row.
        grid: a power of 4.
    """

    bound: float
    grid: float

    def whole(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [N, k] in whole steps: shortened where they are too long, and rounded."""
        k = rows.shape[1]
        longest = (self.bound - self.grid * math.sqrt(k) / 2) / _float_error(k)  # see rounded_norm
        return np.rint(clip_rows(rows, longest) / self.grid).astype(np.int64)


def require_float64(x: np.ndarray) -> None:
    """Refuse features [N, d] of another precision.

    Raises:
        InputError: they have one.
    """
    if x.dtype != np.float64:
        raise InputError(f"epsilon: needs features of float64; these are {x.dtype}")


def rounded_norm(norm: float, size: int, grid: float) -> float:
    """Return the largest norm of a term, of norm at most ``norm`` before it is rounded.

    Rounding moves each of k numbers by half a step at most, so a vector by step sqrt(k) / 2.

    Args:
        norm: of the term.
        size: k, of the numbers that a row adds to.
        grid: the step of terms.
    """
    return norm * _float_error(size) + grid * math.sqrt(size) / 2


def _float_error(k: int) -> float:
    """Return the factor by which rows of k numbers may be too long, as floats are rounded.

    A norm has k/2 + 4 rounding errors of 2^-53 at most, relatively, and there are two of them.
    """
    return 1 + (k + 8) * 2.0**-52


class NoisySum:
    """A sum over rows that is released with discrete Gaussian noise, once.

    Guarantee: that of the mechanism, for sums of ``terms``. Unit: one row.
    Neighbouring relation: as given.

    Args:
        mechanism: as it is stated in the release.
        relation: for which its sensitivity was computed.
        source: of the noise.

    Attributes:
        terms: brings rows to the bound that the sensitivity implies, and to the grid.
    """

    def __init__(
        self, mechanism: GaussianMechanism, relation: Relation, source: RandomBytes
    ) -> None:
        """Make the sum ready; nothing is released yet."""
        self._mechanism, self._source, self._used = mechanism, source, False
        self._variance, self.terms = mechanism.steps**2, mechanism.terms(relation)

    def release(self, total: np.ndarray) -> np.ndarray:
        """Return the sum, of integers [...] that count steps, with noise in every entry.

        It is float64: multiples of the grid, or the numbers next to them where a multiple has more
        than 53 bits.

        Raises:
            RuntimeError: it was released before.
        """
        if self._used:
            raise RuntimeError(f"{self._mechanism.name}: the budget is spent")
        self._used = True
        noise = discrete_gaussian(self._variance, total.size, self._source).reshape(total.shape)
        return (total.astype(object) + noise.astype(object)).astype(float) * self.terms.grid


class PrivateChoice:
    """A chooser by scores that depend on rows, for as many choices as its mechanism says.

    Guarantee: that of the mechanism, all choices together, for scores that a neighbour changes by
    at most a whole number, a step less than the sensitivity. A score is rounded to the nearest
    step: scores that differ by a whole number of steps still do so then, and errors of floating
    point, where they are below half a step, move a score by less than the step that is added.
    Unit: one row. Neighbouring relation: that of the sensitivity.

    Args:
        mechanism: as it is stated in the release.
        source: of randomness.
    """

    def __init__(self, mechanism: ExponentialMechanism, source: RandomBytes) -> None:
        """Make the choice ready; nothing is chosen yet."""
        self._mechanism, self._source, self._used = mechanism, source, 0

    def choose(self, scores: np.ndarray) -> int:
        """Return the index of a score [n], finite numbers below 2^52; large ones are likelier.

        Raises:
            RuntimeError: it was used as often as its guarantee allows.
        """
        if self._used >= self._mechanism.times:
            raise RuntimeError(f"{self._mechanism.name}: the budget is spent")
        self._used += 1
        steps = np.rint(scores / self._mechanism.grid).astype(np.int64)
        change = 2 * Fraction(self._mechanism.sensitivity) / Fraction(self._mechanism.grid)
        return exponential_choice(steps, Fraction(self._mechanism.epsilon) / change, self._source)


def clip_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Return rows [N, k], shortened to the Euclidean norm ``bound`` where they are longer.

    A row without a finite norm becomes 0: one row must not turn a sum into not-a-number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        shortened = rows * (bound / np.maximum(norms, bound))
    return np.where(np.isfinite(norms), shortened, 0.0)


def sensitivity(bound: float, relation: Relation, *, never_opposed: bool = False) -> float:
    """Return the largest change of a sum over rows whose terms have at most the norm ``bound``.

    A row added or removed changes it by its own term t; one that is replaced, by two. Where no two
    terms have an inner product below 0, |t - t'|^2 = |t|^2 + |t'|^2 - 2 t't' is at most 2 bound^2.

    Args:
        bound: of each row's term, at least 0.
        relation: which tables are neighbours.
        never_opposed: whether the inner product of two terms is never negative.
    """
    if never_opposed and relation == "replace":
        return math.sqrt(2.0) * bound
    return bound if relation == "add_or_remove" else 2.0 * bound
