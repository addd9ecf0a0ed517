"""Summands of a secure sum: counts of rows, or clipped vectors; and the noise that hides each."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from synthfair.errors import InputError
from synthfair.postprocess.histogram import LARGEST_COUNT, MOST_BINS
from synthfair.privacy.guarantee import Guarantee, Unit
from synthfair.privacy.mechanism import SumName, clip_rows
from synthfair.privacy.noise import (
    RandomBytes,
    discrete_gaussian,
    discrete_laplace,
    laplace_variance,
    system_entropy,
)
from synthfair.release.keys import Hex32
from synthfair.settings import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, Checked, Relation

MAX_LENGTH = 2**20
"""The largest length of a vector."""

MAX_CLIENTS = 100_000

NEVER = 1e-12
"""Chance at which honest sums are taken for impossible ones."""


class GroupCounts(Checked):
    """Numbers of rows by group, label and, of a model's scores, bin.

    A row is in one count. So adding or removing one changes the vector by 1 in L1, whatever the
    number of bins; a user with at most m rows, by m; and replacing doubles both.

    Guarantee of :meth:`noise` on the total: epsilon-differential privacy (pure).

    Attributes:
        schema_hash: of the tables.
        groups: G names, in the schema's order.
        model: sha256 of the model whose scores are binned; None for plain counts.
        bins: B, from 2, at most as many as thresholds are chosen from; 1 for plain counts.
        epsilon: against each single aggregator and everyone else; as the decimal that is written.
        relation: which tables are neighbours.
        unit: whose rows are added, removed or replaced.
        rows_per_user: m, at most so many rows of each user at one client count; 1 for rows.
        rows_per_client: at most, publicly known; larger tables are refused.

    Raises:
        ValueError: the parts do not fit together.

    Example:
        >>> from synthfair import secure
        >>> what = secure.GroupCounts(
        ...     schema_hash="0" * 64, groups=("f", "m"), epsilon=0.5, rows_per_client=1000
        ... )
        >>> what.length, what.scale
        (4, Fraction(2, 1))
    """

    kind: Literal["counts"] = "counts"
    schema_hash: Hex32
    groups: tuple[str, ...] = Field(strict=False, min_length=2, max_length=1000)
    model: Hex32 | None = None
    bins: int = Field(default=1, ge=1, le=MOST_BINS)
    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    relation: Relation = "add_or_remove"
    unit: Unit = "row"
    rows_per_user: int = Field(default=1, ge=1, le=10**6)
    rows_per_client: int = Field(ge=1, le=2**40)

    @property
    def length(self) -> int:
        """The length of the vector, 2 G B."""
        return 2 * len(self.groups) * self.bins

    def guarantee(self, aggregators: int, *, simulated: bool = False) -> Guarantee:
        """Return the guarantee of the total, to which so many aggregators add noise."""
        own = self.model_dump(include={"epsilon", "unit", "relation", "rows_per_user"})
        who: dict[str, Any] = {"adversary": "all_but_one", "aggregators": aggregators}
        return Guarantee(**own, **who, simulated=simulated)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise of one aggregator: sensitivity in L1 / epsilon."""
        return self.guarantee(2).scale

    @property
    def variance(self) -> float:
        """The variance of one aggregator's noise of one count."""
        return laplace_variance(self.scale)

    @property
    def largest(self) -> int:
        """The largest entry of a client's vector."""
        return self.rows_per_client

    def require_part(self, vector: np.ndarray) -> None:
        """Refuses what is no client's counts.

        Args:
            vector: [2 G B] int64.

        Raises:
            InputError: a count is negative, or there are more rows than ``rows_per_client``.
        """
        _require_entries(vector, 0, self.rows_per_client)
        if (rows := int(vector.sum())) > self.rows_per_client:  # cannot overflow: 2^20 of 2^40
            raise InputError(f"vector: counts {rows} rows; must be at most {self.rows_per_client}")

    def noise(self, source: RandomBytes = system_entropy) -> np.ndarray:
        """[2 G B] int64, of full scale: one aggregator's is enough for the guarantee."""
        return discrete_laplace(self.scale, self.length, source)

    def noise_bound(self, terms: int) -> int:
        """Bounds the sum of so many terms of noise, but for a chance of NEVER / length at most.

        Chernoff: P(|sum| > x) <= 2 M(l)^terms e^(-l x) with the moment generating function

            M(l) = (1 - p)^2 / ((1 - p e^l) (1 - p e^-l)),    p = e^(-1/scale),    0 < l < 1/scale.
        """
        rate = 1 / float(self.scale)
        slope = rate * np.linspace(0.01, 0.99, 99)
        log_moment = 2 * math.log(-math.expm1(-rate)) - (
            np.log(-np.expm1(slope - rate)) + np.log(-np.expm1(-slope - rate))
        )
        bounds = (terms * log_moment + math.log(2 * self.length / NEVER)) / slope
        return math.ceil(float(bounds.min()))

    @model_validator(mode="after")
    def _fits(self) -> GroupCounts:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError(f"groups: {list(self.groups)}: a name comes twice")
        if (self.model is None) != (self.bins == 1):
            raise ValueError("scores of a model have two bins or more; counts without, one bin")
        if self.unit == "row" and self.rows_per_user != 1:
            raise ValueError("rows_per_user: is for the unit user; a row is one row")
        if self.length > MAX_LENGTH:
            raise ValueError(f"{self.length} counts; must be at most {MAX_LENGTH}")
        if MAX_CLIENTS * self.rows_per_client + self.noise_bound(4) > LARGEST_COUNT:
            raise ValueError("rows_per_client: totals could leave the range of exact numbers")
        return self


class _GaussianNoise(Checked):
    """Discrete Gaussian noise on a vector of integers."""

    length: int = Field(ge=1, le=MAX_LENGTH)
    step: float = Field(gt=0, le=1e100)
    relation: Relation = "add_or_remove"

    @property
    @abstractmethod
    def exact_variance(self) -> Fraction:
        """sigma^2 of one aggregator's noise, in steps: (sensitivity in L2)^2 / (2 rho), or 0."""

    @property
    def variance(self) -> float:
        """The variance as a float."""
        return float(self.exact_variance)

    def noise(self, source: RandomBytes = system_entropy) -> np.ndarray:
        """[length] int64, of full scale: one aggregator's is enough for the guarantee."""
        if self.exact_variance == 0:
            return np.zeros(self.length, np.int64)
        return discrete_gaussian(self.exact_variance, self.length, source)

    def noise_bound(self, terms: int) -> int:
        """Bounds the sum of so many terms of noise, but for a chance of NEVER / length at most.

        It is sub-Gaussian: P(|sum| > x) <= 2 exp(-x^2 / (2 terms sigma^2)).
        """
        return math.ceil(math.sqrt(2 * terms * self.variance * math.log(2 * self.length / NEVER)))


def _require_entries(vector: np.ndarray, least: int, most: int) -> None:
    low, high = int(vector.min()), int(vector.max())  # abs would leave the least int64 as it is
    if low < least or high > most:
        raise InputError(
            f"vector: has entries from {low} to {high}; must be from {least} to {most}"
        )


class ClippedVectors(_GaussianNoise):
    """Vectors of real numbers, clipped in L2 and rounded to a grid.

    A client's vector v, of at most the norm ``clip``, becomes the integers nearest to v / step.
    Rounding moves each entry by at most 1/2, so that their norm is at most

        D = clip / step + sqrt(length) / 2,

    by which a client that is added or removed changes the total, and twice that when replaced.

    Guarantee of :meth:`noise` on the total: rho-zero-concentrated differential privacy (zCDP).
    Unit: one client's vector.

    Attributes:
        length: of the vectors.
        clip: L2 norm to which each is clipped.
        step: of the grid.
        rho: against each single aggregator and everyone else; None for no noise, where only parts
            are hidden, and nothing is guaranteed of the total.
        relation: which sets of clients are neighbours.

    Raises:
        ValueError: the totals would not fit into 64 bits.

    Example:
        >>> import numpy as np
        >>> from synthfair import secure
        >>> what = secure.ClippedVectors(length=4, clip=1.0, step=0.25, rho=0.5)
        >>> what.integers(np.array([3.0, 0.0, 0.0, 4.0])).tolist()
        [2, 0, 0, 3]
        >>> what.variance  # (4 + 1)^2 / (2 rho)
        25.0
    """

    kind: Literal["vector"] = "vector"
    clip: float = Field(gt=0)
    rho: float | None = Field(gt=0, le=10_000)

    @property
    def largest_square(self) -> int:
        """The square of D, rounded up."""
        ratio = Fraction(repr(self.clip)) / Fraction(repr(self.step))
        root = Fraction(math.isqrt(self.length * 4**30 - 1) + 1, 2**30)  # at least sqrt(length)
        return math.ceil(ratio**2 + ratio * root + Fraction(self.length, 4))

    @property
    def exact_variance(self) -> Fraction:
        """sigma^2 of one aggregator's noise, in steps: (sensitivity in L2)^2 / (2 rho), or 0."""
        if self.rho is None:
            return Fraction(0)
        square = self.largest_square * (1 if self.relation == "add_or_remove" else 4)
        return square / (2 * Fraction(repr(self.rho)))

    @property
    def largest(self) -> int:
        """The largest entry of a client's integers."""
        return math.isqrt(self.largest_square)

    def integers(self, vector: np.ndarray) -> np.ndarray:
        """[length] int64: clipped and rounded; a vector without a finite norm becomes 0."""
        (shortened,) = clip_rows(vector[None], self.clip)
        nearest = np.rint(shortened / self.step).astype(np.int64)
        if self._is_short(nearest):
            return nearest
        # What floating point has added to the norm is far below one part in a million.
        return np.trunc(shortened * (1 - 1e-6) / self.step).astype(np.int64)

    def require_part(self, vector: np.ndarray) -> None:
        """Refuses what is no vector of :meth:`integers`.

        Args:
            vector: [length] int64.

        Raises:
            InputError: its norm is above D.
        """
        if not self._is_short(vector):
            raise InputError(
                f"vector: its norm is above the square root of {self.largest_square} steps, to"
                " which integers() shortens it"
            )

    def _is_short(self, vector: np.ndarray) -> bool:
        """Whether the norm of integers is at most D, exactly."""
        about = float((vector.astype(np.float64) ** 2).sum())  # wrong by far less than 1e-12 of it
        if about <= self.largest_square * (1 - 1e-12):
            return True
        return int((vector.astype(object) ** 2).sum()) <= self.largest_square

    @model_validator(mode="after")
    def _fits(self) -> ClippedVectors:
        if self.largest_square > 2**80 or self.exact_variance > 2**90:
            raise ValueError("step: too fine for clip and rho; totals would not fit into 64 bits")
        return self


class RowSums(_GaussianNoise):
    """Sums over rows for one step of a private surrogate, in whole steps of a grid.

    All of it follows from schema, settings and what was opened before, see
    :func:`synthfair.secure.next_sums`. Clients compute it again from their own, and refuse
    another: the sensitivity is not the planner's word.

    Guarantee of :meth:`noise` on the total: rho-zero-concentrated differential privacy (zCDP).
    Unit: one row.

    Attributes:
        schema_hash: of the tables.
        name: of the sum.
        epsilon: of all sums of the surrogate together.
        delta: likewise.
        length: of the vectors.
        square: of the Euclidean norm, in steps, by which a neighbour's total differs, at most.
        step: of the grid.
        rho: against each single aggregator and everyone else.
        relation: which tables are neighbours.
        clients: at most; no entry of any client's vector is larger than 2^61 / clients.
        k_min: of the settings; cells and models that are summed over follow from it.
        seed: likewise.
        models: sha256 of those whose rates are summed, or of the tree whose pairs are counted;
            another machine may round what they follow from otherwise, and sums of others must not
            be added up.

    Raises:
        ValueError: the totals would not fit into 64 bits.

    Example:
        >>> import synthfair as sf
        >>> _, schema = sf.load_dataset("loanapp")
        >>> config = sf.SurrogateConfig(epsilon=1.0, delta=1e-5)
        >>> asked = sf.secure.next_sums([], config, schema, clients=10)
        >>> [what.name for what in asked]
        ['histograms', 'column_moments']
    """

    kind: Literal["rows"] = "rows"
    schema_hash: Hex32
    name: SumName
    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)
    square: int = Field(ge=1, le=2**80)
    rho: float = Field(gt=0, le=10_000)
    clients: int = Field(ge=1, le=MAX_CLIENTS)
    k_min: int = Field(ge=1)
    seed: int = Field(ge=0)
    models: Hex32 | None = None

    @property
    def exact_variance(self) -> Fraction:
        """sigma^2 of one aggregator's noise, in steps: (sensitivity in L2)^2 / (2 rho)."""
        return self.square / (2 * Fraction(repr(self.rho)))

    @property
    def largest(self) -> int:
        """The largest entry of a client's integers."""
        return 2**61 // self.clients

    def require_part(self, vector: np.ndarray) -> None:
        """Refuses what is no client's sums.

        Args:
            vector: [length] int64.

        Raises:
            InputError: an entry is above ``largest``, or below -``largest``.
        """
        _require_entries(vector, -self.largest, self.largest)

    @model_validator(mode="after")
    def _fits(self) -> RowSums:
        if self.exact_variance > 2**90:
            raise ValueError("rho: too small for the grid; totals would not fit into 64 bits")
        return self


AnySummand = GroupCounts | ClippedVectors | RowSums

Summand = Annotated[AnySummand, Field(discriminator="kind")]
