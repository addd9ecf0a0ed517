"""The two mechanisms of Juarez & Korolova (2022), by which a client reports with noise.

A client has a group g in {0, ..., d - 1} and a value v in [-1, 1]. The group goes through
generalised randomised response: it is kept with probability a, and otherwise replaced by one of the
others, each with probability q. If the group changed, the value is set to 0. Then noise is added to
the value. So v' has mean ``gain`` v if the group was kept and mean 0 if not, and the sum of v' over
the reports that name a group estimates a ``gain`` times the sum of v over the group's members.

Departure from the paper: each mechanism computes its exact epsilon from its output distribution.
The paper's are too small. Theorem 4.1 claims max(epsilon1, epsilon2) for M_R, which enumerating
all outputs refutes; theorem 4.3 claims a finite epsilon for M_L with k other than 2, where the
likelihood ratio is unbounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, discrete_laplace, uniform

MIN_BUDGET, MAX_BUDGET = 2**-29, 500.0
"""Budgets in between keep exp(epsilon) finite, and a step or more from 0 to 1. The largest protects
nobody; collections allow 30 at most."""

LAPLACE_STEPS = 2**30
"""Scale of the Laplace noise of a value, in steps of its grid."""

MAX_NOISE_SCALES = 37
"""Times the scale: noise that is larger, once in 10^16, is set to this."""

Kind = Literal["randomized", "laplace"]
"""M_R or M_L, as files and flags name them."""


@dataclass(frozen=True)
class RandomizedGroup(ABC):
    """The group by generalised randomised response (GRR), which both mechanisms have in common.

    The noisy group alone is epsilon1-locally private. Kairouz, Bonawitz and Ramage (2016); Juarez
    and Korolova (2022), definition 2.2, with d the number of groups. Probabilities are exact up to
    2^-53.
    """

    groups: int
    epsilon1: float
    epsilon2: float
    kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        """Raise InputError for a parameter out of range."""
        if self.groups < 2:
            raise InputError(f"groups = {self.groups}: must be at least 2")
        for name, budget in (("epsilon1", self.epsilon1), ("epsilon2", self.epsilon2)):
            if not MIN_BUDGET <= budget <= MAX_BUDGET:
                raise InputError(f"{name} = {budget:g}: must be from 2^-29 to {MAX_BUDGET:g}")

    @property
    def keep(self) -> float:
        """Return the probability a = e^epsilon1 / (e^epsilon1 + d - 1) that the group is kept."""
        return 1.0 / (1.0 + (self.groups - 1) * math.exp(-self.epsilon1))

    @property
    def change(self) -> float:
        """Return the probability q = 1 / (e^epsilon1 + d - 1) of each other group."""
        return math.exp(-self.epsilon1) * self.keep

    def respond(self, group: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Return the noisy groups [N] of the groups [N]."""
        chance = uniform(len(group), source)
        # The part of [0, 1] above a is divided evenly among the other groups.
        step = np.ceil((chance - self.keep) / self.change).clip(0, self.groups - 1)
        return (group + step.astype(group.dtype)) % self.groups

    def shares(self, reported: np.ndarray) -> np.ndarray:
        """Return unbiased shares [d] of clients, (pi_j - q) / (a - q), of shares pi of reports."""
        return (reported - self.change) / (self.keep - self.change)

    def share_variance(self, shares: np.ndarray, clients: float) -> np.ndarray:
        """Return their variance [d], pi_j (1 - pi_j) / (K (a - q)^2), with pi_j = q + (a - q) p_j.

        The K clients are drawn at random from groups with these shares p.
        """
        slope = self.keep - self.change
        reported = self.change + slope * shares
        return reported * (1 - reported) / (clients * slope**2)

    @abstractmethod
    def noisy_square(self, square: np.ndarray) -> np.ndarray:
        """Return E[v'^2] if the group was kept, for means of v^2."""

    @property
    def changed_square(self) -> float:
        """Return E[v'^2] if the group changed, so that v was set to 0."""
        return float(self.noisy_square(np.zeros(())))

    @abstractmethod
    def add_noise(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Return the noisy values [N] of the values [N]."""

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return noisy groups [N] and noisy values [N] of N clients; each pair is epsilon-LDP."""
        reported = self.respond(group, source)
        return reported, self.add_noise(np.where(reported == group, value, 0.0), source)


@dataclass(frozen=True)
class RandomizedValue(RandomizedGroup):
    """The mechanism M_R: the group by GRR, then one bit of the value by randomised response.

        P(v' = 1) = (1 + (2 b - 1) v) / 2,  P(v' = -1) = 1 - P(v' = 1),
        b = e^epsilon2 / (1 + e^epsilon2),

    with v = 0 if the group changed. Juarez and Korolova (2022), algorithm 1.

    Guarantee: ``epsilon``-local differential privacy, exact. Unit: one client's report. Relation:
    local, any two pairs of group and value. The epsilons of several reports of a client add up.

    Attributes:
        groups: d, at least 2.
        epsilon1: budget of the group, from 2^-29 to 500.
        epsilon2: budget of the value, likewise.
        gain: E[v' | v] / v if the group was kept.
        limit: largest |v'|.
        square_variance: largest variance of v'^2, whatever the clients' values.

    Raises:
        InputError: a parameter is out of range.

    Example:
        >>> import synthfair as sf
        >>> mechanism = sf.measure.RandomizedValue(groups=2, epsilon1=1.0, epsilon2=1.0)
        >>> round(mechanism.epsilon, 4)  # theorem 4.1 claims 1
        1.3799
    """

    kind: ClassVar[Kind] = "randomized"
    limit: ClassVar[float] = 1.0
    square_variance: ClassVar[float] = 0.0

    @property
    def gain(self) -> float:
        """Return the factor 2 b - 1 by which reports shrink values."""
        return math.tanh(self.epsilon2 / 2)

    @property
    def epsilon(self) -> float:
        """Return exactly max {epsilon2, epsilon1 + ln(2 b), ln((1 + e^epsilon2) / 2) - epsilon1}.

        An output's largest probability over all inputs is a b (group kept, value at the end of the
        range that the bit names) or q / 2 (group changed); its smallest is a (1 - b) or q / 2.
        This is the logarithm of their ratio, for any number of groups.
        """
        log_b = -math.log1p(math.exp(-self.epsilon2))
        kept_high = self.epsilon1 + log_b  # logarithms of probabilities over q
        kept_low = kept_high - self.epsilon2
        log_change = -math.log(2.0)
        return max(kept_high, log_change) - min(kept_low, log_change)

    def noisy_square(self, square: np.ndarray) -> np.ndarray:
        """Return 1, whatever the means of v^2."""
        return np.ones_like(square)

    def noisy_cube(self, mean: np.ndarray, square: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return E[v'^3] if the group was kept and every v has the same v^2: here E[v']."""
        return self.gain * mean

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Return the mask [N] of the values that are outputs: -1 or 1."""
        return np.abs(values) == 1.0

    def add_noise(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Return values [N], each -1 or 1, of mean ``gain`` times those given."""
        bit = 2.0 * uniform(len(value), source) <= 1.0 + self.gain * value
        return np.where(bit, 1.0, -1.0)


@dataclass(frozen=True)
class LaplaceValue(RandomizedGroup):
    """The mechanism M_L: the group by GRR, then v' = v + Lap(2 / epsilon2); v = 0 if it changed.

    Guarantee, unit, relation and attributes: as of :class:`RandomizedValue`. Juarez and Korolova
    (2022), section 4, where the noise of a changed group is Lap(k / epsilon2). Here k is 2: with
    two noises of different scale the ratio of their tails is unbounded, and no epsilon is finite.

    Another departure from the paper: values and noise are whole multiples of a public step 1/m,

        v' = (R(m v) + L) / m,    m = floor(epsilon2 2^29),

    where R rounds up or down at random such that its mean is m v, and L is discrete Laplace noise
    of scale 2^30, cut at 37 scales. L is exact, so that there is nothing for attacks on
    floating-point noise (Mironov 2012) to find. The moments below are those of real numbers: both
    roundings change them by less than 2^-50 of the noise.

    Raises:
        InputError: a parameter is out of range.

    Example:
        >>> import synthfair as sf
        >>> sf.measure.LaplaceValue(groups=2, epsilon1=1.0, epsilon2=1.0).epsilon
        1.5
    """

    kind: ClassVar[Kind] = "laplace"
    gain: ClassVar[float] = 1.0

    @property
    def steps(self) -> int:
        """Return m, the steps of the grid from 0 to 1."""
        return math.floor(self.epsilon2 * (LAPLACE_STEPS / 2))

    @property
    def scale(self) -> float:
        """Return the scale of the noise: 2^30 / m, which is 2 / epsilon2 or a little more."""
        return LAPLACE_STEPS / self.steps

    @property
    def epsilon(self) -> float:
        """Return exactly max {2 / scale, epsilon1 + 1 / scale}, theorem 4.3 with k = 2.

        The largest log-ratio of two inputs' probabilities of an output: both groups kept, and
        values 2 apart; or one kept and one changed, and values 1 apart, which adds ln(a / q).
        Rounding at random mixes values that are no further apart; cutting is post-processing.
        """
        return max(2 / self.scale, self.epsilon1 + 1 / self.scale)

    @property
    def square_variance(self) -> float:
        """Return 20 s^4 + 8 s^2 + 1/4, s the scale: of (v + noise)^2 with v^2 = 1, and of v^2."""
        return 20 * self.scale**4 + 8 * self.scale**2 + 0.25

    @property
    def limit(self) -> float:
        """Return 1 plus the largest noise."""
        return (self.steps + MAX_NOISE_SCALES * LAPLACE_STEPS) / self.steps

    def noisy_square(self, square: np.ndarray) -> np.ndarray:
        """Return the mean of a squared report, v^2 + 2 scale^2."""
        return square + 2 * self.scale**2

    def noisy_cube(self, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        """Return v^3 + 6 scale^2 v."""
        return mean * square + 6 * self.scale**2 * mean

    def possible(self, values: np.ndarray) -> np.ndarray:
        """Return the mask [N] of values within the limit; files may have rounded off the grid."""
        return np.abs(values) <= self.limit

    def add_noise(self, value: np.ndarray, source: RandomBytes) -> np.ndarray:
        """Return values [N], rounded to the grid at random, plus discrete Laplace noise."""
        m, largest = self.steps, MAX_NOISE_SCALES * LAPLACE_STEPS
        low = np.floor(m * value)
        # uniform is never 0: a value on the grid stays where it is, and so within the range.
        whole = low + (uniform(len(value), source) <= m * value - low)
        noise = discrete_laplace(Fraction(LAPLACE_STEPS), len(value), source)
        return (whole + noise.clip(-largest, largest)) / m


LocalMechanism = RandomizedValue | LaplaceValue
"""One of the two mechanisms."""

MECHANISMS: dict[Kind, type[LocalMechanism]] = {m.kind: m for m in (RandomizedValue, LaplaceValue)}
