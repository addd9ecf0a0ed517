"""What one client sends in place of its group and its value, and how private that is.

A client has a group g, 0 to d - 1, and a value v in [-1, 1]. It keeps its group with probability a,
and otherwise names one of the others, each with probability q (generalised randomised response).
Where it keeps the group, its noisy value has the mean ``gain`` v; where it does not, the value is
forgotten and noise of mean 0 takes its place. So the noisy values reported for a group add up to
a ``gain`` times those of its members, on average.

Every mechanism works its epsilon out from its own output distribution. Juarez and Korolova (2022)
state smaller ones: max(epsilon1, epsilon2) for M_R (theorem 4.1), which enumeration refutes, and a
finite one for M_L with k other than 2 (theorem 4.3), where the likelihood ratio is unbounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import LARGEST_LAPLACE, RandomBytes, laplace, uniform

LARGEST_EPSILON = 500.0
"""Beyond, exp(epsilon) leaves the range in which it is computed. No such epsilon protects, and
beyond some 36 no report has it: chances are drawn in steps of 2^-53. Collections end far below."""

Kind = Literal["randomized", "laplace"]
"""M_R or M_L."""


@dataclass(frozen=True)
class GroupResponse:
    """Generalised randomised response (GRR): the group is kept, or another one is named.

    Guarantee: epsilon1-local differential privacy. Unit: one client's report. Relation: local, any
    two groups that the client may have. Kairouz, Bonawitz and Ramage (2016).

    Juarez and Korolova's definition 2.2, whose domain {0, ..., d} has d + 1 members and whose
    normalisation has d - 1, with d the number of groups. Chances are drawn in steps of 2^-53, by
    which probabilities are off at most.

    Attributes:
        groups: d, at least 2.
        epsilon1: above 0, of the group.
    """

    groups: int
    epsilon1: float

    def __post_init__(self) -> None:
        """Raises InputError where there are fewer than two groups or no budget for them."""
        if self.groups < 2:
            raise InputError(f"groups = {self.groups}: must be at least 2")
        _require_budget("epsilon1", self.epsilon1)

    @property
    def epsilon(self) -> float:
        """Exact: ln(a / q)."""
        return math.log(self.keep / self.move)

    @property
    def keep(self) -> float:
        """The probability a = e^epsilon1 / (e^epsilon1 + d - 1)."""
        return 1.0 / (1.0 + (self.groups - 1) * math.exp(-self.epsilon1))

    @property
    def move(self) -> float:
        """The probability q = 1 / (e^epsilon1 + d - 1), of each other group."""
        return math.exp(-self.epsilon1) * self.keep

    def respond(self, group: np.ndarray, source: RandomBytes) -> np.ndarray:
        """[N] noisy groups of the groups [N]."""
        chance = uniform(len(group), source)
        # Above a, what is left of the interval is cut evenly among the other groups.
        step = np.ceil((chance - self.keep) / self.move).clip(0, self.groups - 1)
        return (group + step.astype(group.dtype)) % self.groups

    def shares(self, told: np.ndarray) -> np.ndarray:
        """[d] (pi_j - q) / (a - q), unbiased for the groups' shares; pi = ``told``, of reports."""
        return (told - self.move) / (self.keep - self.move)

    def share_variance(self, shares: np.ndarray, clients: float) -> np.ndarray:
        """[d] of these estimates: pi_j (1 - pi_j) / (K (a - q)^2), with pi_j = q + (a - q) p_j.

        Clients are K drawn at random from groups with these shares p.
        """
        slope = self.keep - self.move
        told = self.move + slope * shares
        return told * (1 - told) / (clients * slope**2)


@dataclass(frozen=True)
class Mechanism(ABC):
    """A group by GRR, and then a noisy value: of v where the group is kept, of 0 where it is not.

    Guarantee: epsilon-local differential privacy, epsilon being the property, exact. Unit: one
    client's report. Relation: local, any two pairs of group and value. Two reports of one client
    add up.

    Attributes:
        groups: d, at least 2.
        epsilon1: above 0, of the group.
        epsilon2: above 0, of the value.
    """

    groups: int
    epsilon1: float
    epsilon2: float
    kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        """Raises InputError where a parameter is out of its range."""
        GroupResponse(self.groups, self.epsilon1)
        _require_budget("epsilon2", self.epsilon2)

    @property
    def response(self) -> GroupResponse:
        """By which the group is reported."""
        return GroupResponse(self.groups, self.epsilon1)

    @property
    def keep(self) -> float:
        """The probability a that the group is kept."""
        return self.response.keep

    @property
    def move(self) -> float:
        """The probability q of each other group."""
        return self.response.move

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Of the guarantee, exact."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """Mean of the noisy value where the group is kept, over v."""

    @property
    @abstractmethod
    def moved_square(self) -> float:
        """Mean square of the noisy value where the group is not kept."""

    @property
    @abstractmethod
    def square_variance(self) -> float:
        """Largest variance of the square of a noisy value, whatever the clients' values are."""

    @property
    @abstractmethod
    def limit(self) -> float:
        """No noisy value is larger in size."""

    @abstractmethod
    def kept_square(self, square: np.ndarray) -> np.ndarray:
        """Mean square of the noisy value where the group is kept, for mean squares of v."""

    @abstractmethod
    def kept_cube(self, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        """Mean cube of the same, for means of v, where every v has that square."""

    @abstractmethod
    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which values [N] the mechanism can have made."""

    @abstractmethod
    def noisy(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Noisy values [N], of mean ``gain`` times the values [N]."""

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy groups [N] and values [N] of N clients; each client's pair is epsilon-LDP."""
        told = self.response.respond(group, source)
        return told, self.noisy(np.where(told == group, value, 0.0), source)


@dataclass(frozen=True)
class RandomizedValue(Mechanism):
    """M_R: group by GRR, then one bit B of the value by randomised response; v' = 2 B - 1.

    P(v' = 1) = (1 + (2 b - 1) v) / 2 with b = e^epsilon2 / (1 + e^epsilon2) where the group is
    kept, and 1/2 where it is not. Juarez and Korolova (2022), algorithm 1.
    """

    kind: ClassVar[Kind] = "randomized"

    @property
    def gain(self) -> float:
        """2 b - 1."""
        return math.tanh(self.epsilon2 / 2)

    @property
    def moved_square(self) -> float:
        """1."""
        return 1.0

    @property
    def square_variance(self) -> float:
        """0."""
        return 0.0

    @property
    def limit(self) -> float:
        """1."""
        return 1.0

    @property
    def epsilon(self) -> float:
        """Exact: max {epsilon2, epsilon1 + ln(2 b), ln((1 + e^epsilon2) / 2) - epsilon1}.

        The likeliest input of an output has P = a b (group kept, value at the end that the bit
        names) or q / 2 (another group); the least likely a (1 - b) or q / 2. Their ratio is this,
        for any number of groups. Theorem 4.1 has max {epsilon1, epsilon2}, which is smaller.
        """
        log_b = -math.log1p(math.exp(-self.epsilon2))
        kept_likely = self.epsilon1 + log_b  # logarithms, over q
        kept_unlikely = kept_likely - self.epsilon2
        moved = -math.log(2.0)
        return max(kept_likely, moved) - min(kept_unlikely, moved)

    def kept_square(self, square: np.ndarray) -> np.ndarray:
        """1, whatever the value."""
        return np.ones_like(square)

    def kept_cube(self, mean: np.ndarray, square: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """As the mean: the cube of -1 or 1 is that number."""
        return self.gain * mean

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which are -1 or 1."""
        return np.abs(values) == 1.0

    def noisy(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Values [N] that are -1 or 1."""
        bit = 2.0 * uniform(len(value), source) <= 1.0 + self.gain * value
        return np.where(bit, 1.0, -1.0)


@dataclass(frozen=True)
class LaplaceValue(Mechanism):
    """M_L: group by GRR, then Laplace noise: v' = v + Lap(2 / epsilon2), or Lap(k / epsilon2).

    The second where the group is not kept. Juarez and Korolova (2022), section 4, with k = 2: other
    scales have no finite epsilon. Clamped outputs would have one, but no mean and variance that
    follow from those of v, so they are not made.

    Its epsilon is exact for real numbers. Not covered: attacks on floating-point noise (Mironov
    2012), and its end, beyond which noise would lie with probability 2^-53. M_R, with its two
    values, has neither weakness.

    Attributes:
        k: 2; any other is refused, with the reason.
    """

    k: float = 2.0
    kind: ClassVar[Kind] = "laplace"

    def __post_init__(self) -> None:
        """Raises InputError where a parameter is out of its range, or no epsilon is finite."""
        super().__post_init__()
        if self.k != 2:
            raise InputError(
                f"k = {self.k:g}: must be 2: no finite epsilon covers another, as the two noises"
                " then have different tails, whose ratio grows without bound"
            )

    @property
    def gain(self) -> float:
        """1."""
        return 1.0

    @property
    def scale(self) -> float:
        """Of the noise: 2 / epsilon2."""
        return 2.0 / self.epsilon2

    @property
    def epsilon(self) -> float:
        """Exact: max {epsilon2, epsilon1 + epsilon2 / 2}, as theorem 4.3 has it for k = 2.

        The largest logarithm of a ratio of two inputs' densities at one output: both kept, their
        values lie 2 apart; one kept and one not, 1, and a / q comes on top.
        """
        return max(self.epsilon2, self.epsilon1 + self.epsilon2 / 2)

    @property
    def moved_square(self) -> float:
        """2 (2 / epsilon2)^2."""
        return 2 * self.scale**2

    @property
    def square_variance(self) -> float:
        """20 s^4 + 8 s^2 + 1/4, s being the scale: of the noise, for v^2 = 1, and of v^2."""
        return 20 * self.scale**4 + 8 * self.scale**2 + 0.25

    @property
    def limit(self) -> float:
        """1 and the largest noise that is drawn."""
        return 1.0 + self.scale * LARGEST_LAPLACE

    def kept_square(self, square: np.ndarray) -> np.ndarray:
        """v^2 + 2 (2 / epsilon2)^2."""
        return square + 2 * self.scale**2

    def kept_cube(self, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        """v^3 + 6 (2 / epsilon2)^2 v."""
        return mean * square + 6 * self.scale**2 * mean

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which are numbers within the limit."""
        return np.abs(values) <= self.limit

    def noisy(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Values [N] with noise."""
        return value + self.scale * laplace(len(value), source)


MECHANISMS: dict[Kind, type[Mechanism]] = {"randomized": RandomizedValue, "laplace": LaplaceValue}
"""By the name that files and flags use."""


def _require_budget(name: str, epsilon: float) -> None:
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(f"{name} = {epsilon:g}: must be above 0, and at most {LARGEST_EPSILON:g}")
