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
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import LARGEST_LAPLACE, RandomBytes, laplace, uniform

LARGEST_EPSILON = 500.0
"""Beyond, exp(epsilon) leaves the range in which it is computed. No such epsilon protects, and
beyond some 36 no report has it: chances are drawn in steps of 2^-53. Collections end far below."""


class Mechanism(Protocol):
    """What estimation, planning and simulation need to know of a mechanism.

    Attributes:
        groups: d, at least 2.
        epsilon: of its guarantee, exact.
        keep: a, the probability that the group is kept.
        move: q, that of each other group.
        gain: mean of the noisy value where the group is kept, over v.
        bias: most by which that mean misses ``gain`` v; 0 unless outputs are clamped.
        moved_square: mean square of the noisy value where the group is not kept.
        limit: no noisy value is larger in size.
    """

    @property
    def groups(self) -> int: ...  # noqa: D102
    @property
    def epsilon(self) -> float: ...  # noqa: D102
    @property
    def keep(self) -> float: ...  # noqa: D102
    @property
    def move(self) -> float: ...  # noqa: D102
    @property
    def gain(self) -> float: ...  # noqa: D102
    @property
    def bias(self) -> float: ...  # noqa: D102
    @property
    def moved_square(self) -> float: ...  # noqa: D102
    @property
    def limit(self) -> float: ...  # noqa: D102

    def kept_square(self, square: float) -> float:
        """Mean square of the noisy value where the group is kept, for v^2 = ``square``."""
        ...

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which values [N] the mechanism can have made."""
        ...

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy groups [N] and values [N] of N clients, each by itself."""
        ...


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


@dataclass(frozen=True)
class RandomizedValue:
    """M_R: group by GRR, then one bit B of the value by randomised response; v' = 2 B - 1.

    P(v' = 1) = (1 + (2 b - 1) v) / 2 with b = e^epsilon2 / (1 + e^epsilon2) where the group is
    kept, and 1/2 where it is not. Juarez and Korolova (2022), algorithm 1.

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
    bias = 0.0
    moved_square = 1.0
    limit = 1.0

    def __post_init__(self) -> None:
        """Raises InputError where a parameter is out of its range."""
        GroupResponse(self.groups, self.epsilon1)
        _require_budget("epsilon2", self.epsilon2)

    @property
    def keep(self) -> float:
        """The probability a."""
        return GroupResponse(self.groups, self.epsilon1).keep

    @property
    def move(self) -> float:
        """The probability q."""
        return GroupResponse(self.groups, self.epsilon1).move

    @property
    def gain(self) -> float:
        """2 b - 1."""
        return math.tanh(self.epsilon2 / 2)

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

    def kept_square(self, square: float) -> float:  # noqa: ARG002 - of the protocol
        """1, whatever the value."""
        return 1.0

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which are -1 or 1."""
        return np.abs(values) == 1.0

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy groups [N], and values [N] that are -1 or 1; each client's is epsilon-LDP."""
        told = GroupResponse(self.groups, self.epsilon1).respond(group, source)
        mean = self.gain * np.where(told == group, value, 0.0)
        bit = 2.0 * uniform(len(group), source) <= 1.0 + mean
        return told, np.where(bit, 1.0, -1.0)


@dataclass(frozen=True)
class LaplaceValue:
    """M_L: group by GRR, then Laplace noise: v' = v + Lap(2 / epsilon2), or Lap(k / epsilon2).

    The second where the group is not kept. Juarez and Korolova (2022), section 4.

    Guarantee: epsilon-local differential privacy, epsilon being the property, exact for real
    numbers. Unit: one client's report. Relation: local, any two pairs of group and value. Two
    reports of one client add up. Not covered: attacks on floating-point noise (Mironov 2012), and
    its end, beyond which noise would lie with probability 2^-53. M_R, with its two values, has
    neither weakness.

    Attributes:
        groups: d, at least 2.
        epsilon1: above 0, of the group.
        epsilon2: above 0, of the value.
        k: above 0. Other than 2, outputs must be clamped: tails of different scales have no bounded
            ratio.
        clamp: at least 1; noisy values beyond are moved to it. They are then biased, by at most
            ``bias``.
    """

    groups: int
    epsilon1: float
    epsilon2: float
    k: float = 2.0
    clamp: float | None = None
    gain = 1.0

    def __post_init__(self) -> None:
        """Raises InputError where a parameter is out of its range, or no epsilon is finite."""
        GroupResponse(self.groups, self.epsilon1)
        _require_budget("epsilon2", self.epsilon2)
        if not 0 < self.k < math.inf:
            raise InputError(f"k = {self.k:g}: must be above 0 and finite")
        if self.clamp is not None and not 1 <= self.clamp < math.inf:
            raise InputError(f"clamp = {self.clamp:g}: must be at least 1, the largest value")
        if self.k != 2 and self.clamp is None:
            raise InputError(
                f"k = {self.k:g}: no finite epsilon covers it, as the two noises have different"
                " tails, whose ratio grows without bound; take k = 2, or clamp the outputs"
            )

    @property
    def keep(self) -> float:
        """The probability a."""
        return GroupResponse(self.groups, self.epsilon1).keep

    @property
    def move(self) -> float:
        """The probability q."""
        return GroupResponse(self.groups, self.epsilon1).move

    @property
    def scale(self) -> float:
        """Of the noise where the group is kept: 2 / epsilon2."""
        return 2.0 / self.epsilon2

    @property
    def moved_scale(self) -> float:
        """Of the noise where it is not: k / epsilon2."""
        return self.k / self.epsilon2

    @property
    def epsilon(self) -> float:
        """Exact: max {epsilon2, epsilon1 + epsilon2 / 2} for k = 2, as in theorem 4.3.

        In general the largest logarithm of a ratio of two inputs' densities at one output. It is
        linear in the output between 0, the largest value 1 and the clamp c, and a clamped output
        has the ratio of the tails beyond c, which is that of the densities at c, less ln(k / 2) on
        one side; so these places alone decide.
        """
        s, t, c = self.scale, self.moved_scale, self.clamp
        spread = math.log(self.k / 2.0)
        kept_over_moved = [spread, spread + 1 / t]
        moved_over_kept = [1 / s - spread]
        if c is not None and self.k != 2:
            far = c / t - (c - 1) / s
            kept_over_moved += [spread + far, far]
            near = (c + 1) / s - c / t
            moved_over_kept += [near - spread, near]
        return max(
            self.epsilon2,
            self.epsilon1 + max(kept_over_moved),
            -self.epsilon1 + max(moved_over_kept),
        )

    @property
    def bias(self) -> float:
        """What clamping takes from the mean of v' at v = 1: s e^(-c/s) sinh(1/s)."""
        if self.clamp is None:
            return 0.0
        s = self.scale
        return 0.5 * s * (math.exp((1 - self.clamp) / s) - math.exp(-(1 + self.clamp) / s))

    @property
    def moved_square(self) -> float:
        """2 (k / epsilon2)^2 without a clamp."""
        return _clamped_square(0.0, self.moved_scale, self.clamp)

    @property
    def limit(self) -> float:
        """The clamp, or 1 and the largest noise that is drawn."""
        widest = max(1.0 + self.scale * LARGEST_LAPLACE, self.moved_scale * LARGEST_LAPLACE)
        return widest if self.clamp is None else min(self.clamp, widest)

    def kept_square(self, square: float) -> float:
        """v^2 + 2 (2 / epsilon2)^2 without a clamp."""
        return _clamped_square(square, self.scale, self.clamp)

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Which are numbers within the limit."""
        return np.abs(values) <= self.limit

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy groups [N] and values [N]; each client's pair is epsilon-LDP."""
        told = GroupResponse(self.groups, self.epsilon1).respond(group, source)
        kept = told == group
        noise = laplace(len(group), source)
        noise *= np.where(kept, self.scale, self.moved_scale)
        noisy = np.where(kept, value, 0.0) + noise
        return told, noisy if self.clamp is None else noisy.clip(-self.clamp, self.clamp)


def _clamped_square(square: float, scale: float, clamp: float | None) -> float:
    """Mean of min(|v + Lap(s)|, c)^2: v^2 + 2 s^2 - 2 s (c + s) e^(-c/s) cosh(v/s)."""
    whole = square + 2 * scale**2
    if clamp is None:
        return whole
    value = math.sqrt(square)
    tail = math.exp((value - clamp) / scale) + math.exp((-value - clamp) / scale)
    return whole - scale * (clamp + scale) * tail


def _require_budget(name: str, epsilon: float) -> None:
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(f"{name} = {epsilon:g}: must be above 0, and at most {LARGEST_EPSILON:g}")
