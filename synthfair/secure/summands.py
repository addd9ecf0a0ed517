"""The summands of a secure sum: counts, clipped vectors, sums over rows."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_serializer, model_validator

from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.postprocess.histogram import MAX_COUNT, MAX_HISTOGRAM_BINS
from synthfair.privacy.guarantee import Guarantee, Unit, make_guarantee
from synthfair.privacy.mechanism import GaussianMechanism, SumName, clip_rows
from synthfair.privacy.noise import (
    RandomBytes,
    discrete_gaussian,
    discrete_laplace,
    laplace_variance,
    system_entropy,
)
from synthfair.release.keys import Hex32
from synthfair.release.settings import SurrogateConfig
from synthfair.settings import Checked, Epsilon, JsonFile, Relation
from synthfair.surrogate.records import MAX_THETA_NORM

MAX_LENGTH = 2**20
"""The largest length of a vector."""

MAX_CLIENTS = 100_000

MAX_FALSE_ALARM = 1e-12
"""Chance at which honest sums are taken for impossible ones."""


class _Summand(Checked):
    """A client's vector of whole numbers, which is added up, and the range of its entries."""

    @property
    @abstractmethod
    def entries(self) -> tuple[int, int]:
        """The smallest and the largest entry of a client's vector."""

    def require_part(self, vector: np.ndarray) -> None:
        """Refuse what is no client's vector.

        Args:
            vector: [length] int64.

        Raises:
            InputError: an entry is out of range, or all together are too large.
        """
        low, high = int(vector.min()), int(vector.max())  # abs leaves the least int64 as it is
        least, most = self.entries
        if low < least or high > most:
            raise InputError(
                f"vector: has entries from {low} to {high}; must be from {least} to {most}"
            )


class GroupCounts(_Summand):
    """The numbers of rows by group, label and, of a model's scores, bin.

    A row is in one count. So adding or removing one changes the vector by 1 in L1, whatever the
    number of bins; and a user with at most m rows, by m.

    Guarantee of :meth:`noise` on the total: epsilon-differential privacy (pure).

    Attributes:
        schema_hash: of the tables.
        groups: G names, in the schema's order.
        model: sha256 of the model whose scores are binned; None for plain counts.
        bins: B, from 2, at most as many as thresholds are chosen from; 1 for plain counts.
        epsilon: against each single aggregator and everyone else; as the decimal that is written.
        unit: whose rows are added or removed.
        rows_per_user: m, at most so many rows of each user at one client count; 1 for rows.
        rows_per_client: at most, publicly known; larger tables are refused.

    Raises:
        ValueError: the parts do not fit together.

    Example:
        >>> from synthfair import secure
        >>> summand = secure.GroupCounts(
        ...     schema_hash="0" * 64, groups=("f", "m"), epsilon=0.5, rows_per_client=1000
        ... )
        >>> summand.length, summand.scale
        (4, Fraction(2, 1))
    """

    kind: Literal["counts"] = "counts"
    schema_hash: Hex32
    groups: tuple[str, ...] = Field(strict=False, min_length=2, max_length=1000)
    model: Hex32 | None = None
    bins: int = Field(default=1, ge=1, le=MAX_HISTOGRAM_BINS)
    epsilon: Epsilon
    unit: Unit = "row"
    rows_per_user: int = Field(default=1, ge=1, le=10**6)
    rows_per_client: int = Field(ge=1, le=2**40)

    @property
    def length(self) -> int:
        """The length of the vector, 2 G B."""
        return 2 * len(self.groups) * self.bins

    def guarantee(self, aggregators: int, *, simulated: bool = False) -> Guarantee:
        """Return the guarantee of the total, to which so many aggregators add noise."""
        facts = self.model_dump(include={"epsilon", "unit", "rows_per_user"})
        who: dict[str, Any] = {"adversary": "all_but_one", "aggregators": aggregators}
        return Guarantee(**facts, **who, relation="add_or_remove", simulated=simulated)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise of one aggregator: sensitivity in L1 / epsilon."""
        return self.guarantee(2).scale

    @property
    def variance(self) -> float:
        """The variance of one aggregator's noise of one count."""
        return laplace_variance(self.scale)

    @property
    def entries(self) -> tuple[int, int]:
        """The smallest and the largest count of a client."""
        return 0, self.rows_per_client

    def require_part(self, vector: np.ndarray) -> None:
        """Refuse what is no client's counts, or more rows than ``rows_per_client`` in all."""
        super().require_part(vector)
        if (rows := int(vector.sum())) > self.rows_per_client:  # cannot overflow: 2^20 of 2^40
            raise InputError(f"vector: counts {rows} rows; must be at most {self.rows_per_client}")

    def noise(self, source: RandomBytes = system_entropy) -> np.ndarray:
        """Return [2 G B] int64, of full scale: one aggregator's is enough for the guarantee."""
        return discrete_laplace(self.scale, self.length, source)

    def noise_bound(self, terms: int) -> int:
        """Return the bound of a sum of noise terms that fails once in length / MAX_FALSE_ALARM.

        Chernoff: P(|sum| > x) <= 2 M(l)^terms e^(-l x) with the moment generating function

            M(l) = (1 - p)^2 / ((1 - p e^l) (1 - p e^-l)),    p = e^(-1/scale),    0 < l < 1/scale.
        """
        rate = 1 / float(self.scale)
        slope = rate * np.linspace(0.01, 0.99, 99)
        log_moment = 2 * math.log(-math.expm1(-rate)) - (
            np.log(-np.expm1(slope - rate)) + np.log(-np.expm1(-slope - rate))
        )
        bounds = (terms * log_moment + math.log(2 * self.length / MAX_FALSE_ALARM)) / slope
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
        if MAX_CLIENTS * self.rows_per_client + self.noise_bound(4) > MAX_COUNT:
            raise ValueError("rows_per_client: totals could leave the range of exact numbers")
        return self


class _WithGaussianNoise(_Summand):
    """A vector with discrete Gaussian noise."""

    length: int = Field(ge=1, le=MAX_LENGTH)

    @property
    @abstractmethod
    def variance(self) -> Fraction:
        """sigma^2 of one aggregator's noise, in steps: (sensitivity in L2)^2 / (2 rho), or 0."""

    def noise(self, source: RandomBytes = system_entropy) -> np.ndarray:
        """Return [length] int64, of full scale: one aggregator's is enough for the guarantee."""
        if self.variance == 0:
            return np.zeros(self.length, np.int64)
        return discrete_gaussian(self.variance, self.length, source)

    def noise_bound(self, terms: int) -> int:
        """Return the bound of a sum of noise terms that fails once in length / MAX_FALSE_ALARM.

        It is sub-Gaussian: P(|sum| > x) <= 2 exp(-x^2 / (2 terms sigma^2)).
        """
        log_chance = math.log(2 * self.length / MAX_FALSE_ALARM)
        return math.ceil(math.sqrt(2 * terms * self.variance * log_chance))


class ClippedVectors(_WithGaussianNoise):
    """A vector of real numbers, clipped in L2 and rounded to a grid.

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
            are hidden, and the total protects nobody: an aggregator that agrees to noise alone
            refuses such a task.
        relation: which sets of clients are neighbours.

    Raises:
        ValueError: the totals would not fit into 64 bits.

    Example:
        >>> import numpy as np
        >>> from synthfair import secure
        >>> summand = secure.ClippedVectors(length=4, clip=1.0, step=0.25, rho=0.5)
        >>> summand.integers(np.array([3.0, 0.0, 0.0, 4.0])).tolist()
        [2, 0, 0, 3]
        >>> float(summand.variance)  # (4 + 1)^2 / (2 rho)
        25.0
    """

    kind: Literal["vector"] = "vector"
    step: float = Field(gt=0, le=1e100)
    relation: Relation = "add_or_remove"
    clip: float = Field(gt=0)
    rho: float | None = Field(gt=0, le=10_000)

    @property
    def largest_square(self) -> int:
        """The square of D, rounded up."""
        ratio = Fraction(repr(self.clip)) / Fraction(repr(self.step))
        root = Fraction(math.isqrt(self.length * 4**30 - 1) + 1, 2**30)  # at least sqrt(length)
        return math.ceil(ratio**2 + ratio * root + Fraction(self.length, 4))

    @property
    def variance(self) -> Fraction:
        """sigma^2 of one aggregator's noise, in steps: (sensitivity in L2)^2 / (2 rho), or 0."""
        if self.rho is None:
            return Fraction(0)
        square = self.largest_square * (1 if self.relation == "add_or_remove" else 4)
        return square / (2 * Fraction(repr(self.rho)))

    @property
    def entries(self) -> tuple[int, int]:
        """The smallest and the largest entry of a client's integers."""
        most = math.isqrt(self.largest_square)
        return -most, most

    def integers(self, vector: np.ndarray) -> np.ndarray:
        """Return [length] int64, clipped and rounded; a vector without a finite norm becomes 0."""
        (shortened,) = clip_rows(vector[None], self.clip)
        nearest = np.rint(shortened / self.step).astype(np.int64)
        if self._is_short(nearest):
            return nearest
        # What floating point has added to the norm is far below one part in a million.
        return np.trunc(shortened * (1 - 1e-6) / self.step).astype(np.int64)

    def require_part(self, vector: np.ndarray) -> None:
        """Refuse what is no vector of :meth:`integers`.

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
        """Return whether the norm of integers is at most D, exactly."""
        about = float((vector.astype(np.float64) ** 2).sum())  # wrong by far less than 1e-12 of it
        if about <= self.largest_square * (1 - 1e-12):
            return True
        return int((vector.astype(object) ** 2).sum()) <= self.largest_square

    @model_validator(mode="after")
    def _fits(self) -> ClippedVectors:
        if self.largest_square > 2**80 or self.variance > 2**90:
            raise ValueError("step: too fine for clip and rho; totals would not fit into 64 bits")
        return self


Models = Annotated[
    tuple[Annotated[float, Field(ge=-MAX_THETA_NORM, le=MAX_THETA_NORM)], ...],
    Field(strict=False, max_length=MAX_LENGTH),
]
"""The type of the coefficients of models."""


class OpenedSum(JsonFile):
    """A total that was opened on the way to a surrogate: a file, which everybody may see.

    Attributes:
        surrogate: digest of the surrogate's settings and schema.
        name: of the sum.
        tree: that of the sum, see :class:`RowSums`.
        models: those of the sum, see :class:`RowSums`.
        total: [k] in steps, with the noise of all aggregators.
        aggregators: number of those that each added noise.
        clients: public keys of those whose rows are in it.
    """

    max_file_bytes: ClassVar[int] = 150_000_000

    format: Literal["synthfair-opened-sum/1"] = "synthfair-opened-sum/1"
    surrogate: Hex32
    name: SumName
    tree: Hex32 | None = None
    models: Models | None = None
    total: tuple[Annotated[int, Field(ge=-(2**63), lt=2**63)], ...] = Field(
        strict=False, min_length=1, max_length=MAX_LENGTH
    )
    aggregators: int = Field(ge=2, le=3)
    clients: tuple[Hex32, ...] = Field(strict=False, min_length=1, max_length=MAX_CLIENTS)


class RowSums(_WithGaussianNoise):
    """A sum over rows, one of those of a private surrogate, in whole steps of a grid.

    It has all that a client needs to compute its part, see :func:`synthfair.secure.client_sums`.
    Grid and noise follow from settings and schema, at whoever computes: nobody's word is taken.

    Guarantee of :meth:`noise` on the totals of all steps together: that of :meth:`guarantee`,
    (epsilon, delta)-differential privacy. Unit: one row.

    Attributes:
        config: settings of the surrogate, with epsilon and delta.
        table_schema: of the rows, public.
        opened: totals of the sums before, in order.
        name: of the sum.
        length: of the vectors.
        tree: sha256 of the tree whose pairs are counted.
        models: coefficients of all models whose rates are summed. All clients sum those of the
            task, as another machine may round them otherwise. The noise covers whatever they are.
        clients: at most; larger entries of a client's vector are clipped to 2^61 / clients.

    Raises:
        ValueError: no epsilon, or the totals would not fit into 64 bits.

    Example:
        >>> import synthfair as sf
        >>> _, schema = sf.load_dataset("loanapp")
        >>> config = sf.SurrogateConfig(epsilon=1.0, delta=1e-5)
        >>> summands = sf.secure.next_sums((), config, schema, clients=10)
        >>> [summand.name for summand in summands]
        ['histograms', 'column_moments']
    """

    kind: Literal["rows"] = "rows"
    config: SurrogateConfig
    table_schema: Schema
    opened: tuple[OpenedSum, ...] = Field(default=(), strict=False, max_length=4)
    name: SumName
    tree: Hex32 | None = None
    models: Models | None = None
    clients: int = Field(ge=1, le=MAX_CLIENTS)

    @field_serializer("table_schema")
    def _without_labels(self, schema: Schema) -> dict[str, Any]:
        return schema.document

    def guarantee(self, aggregators: int, *, simulated: bool = False) -> Guarantee:
        """Return the guarantee of all sums of the surrogate, see :func:`shared_guarantee`."""
        return shared_guarantee(self.config, self.table_schema, aggregators, simulated=simulated)

    @cached_property
    def mechanism(self) -> GaussianMechanism:
        """The mechanism of the sum: sensitivity, grid and one aggregator's noise."""
        return self.guarantee(2).mechanism(self.name)

    @property
    def variance(self) -> Fraction:
        """The variance of one aggregator's noise, in steps."""
        return self.mechanism.steps**2

    @property
    def entries(self) -> tuple[int, int]:
        """The smallest and the largest entry of a client's integers."""
        most = 2**61 // self.clients
        return -most, most

    @model_validator(mode="after")
    def _is_private(self) -> RowSums:
        if self.config.epsilon is None:
            raise ValueError("epsilon: must be given; sums by shares are opened with noise")
        if self.name not in [mechanism.name for mechanism in self.guarantee(2).mechanisms]:
            raise ValueError(f"name: {self.name}: no sum of a surrogate with this schema")
        return self


def shared_guarantee(
    config: SurrogateConfig, schema: Schema, aggregators: int, *, simulated: bool = False
) -> Guarantee:
    """Return the guarantee of a surrogate of all clients, with noise of so many aggregators."""
    guarantee = make_guarantee(config, schema, common_tree=True)
    who = {"adversary": "all_but_one", "aggregators": aggregators, "simulated": simulated}
    return guarantee.model_copy(update=who)


def surrogate_digest(config: SurrogateConfig, schema: Schema) -> str:
    """Return the digest of a surrogate's settings and schema, the same for all of its sums."""
    return hashlib.sha256(f"{config.model_dump_json()} {schema.hash}".encode()).hexdigest()


AnySummand = GroupCounts | ClippedVectors | RowSums

Summand = Annotated[AnySummand, Field(discriminator="kind")]
