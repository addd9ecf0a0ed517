"""The rows of the published table 3, and the settings of all."""

from __future__ import annotations

from typing import Literal, NamedTuple

from synthfair.federated.fpfl import Fpfl
from synthfair.federated.networks import Network
from synthfair.federated.parity import Parity

Algorithm = Literal["FL", "FFL", "FL+Clip", "FFL+Clip", "PFL", "FPFL"]
Population = Literal["K", "100K", "1000K"]

TIMES: dict[Population, int] = {"K": 1, "100K": 100, "1000K": 1000}
"""How many times as many users the accounts assume."""

PUBLISHED_IMAGES = 101.4
"""Training images of a writer in the paper: 343,099 of 3,383 writers."""

PUBLISHED_COHORT = 2000
"""Of the larger populations."""

CLIP = {False: 250.0, True: 350.0}
"""Published C, by whether there is a constraint; for PUBLISHED_IMAGES of a writer."""

NEVER_CLIPS = 1e6
"""The norm of no report. Summing user by user is faster here than as one user."""

EPSILON = 2.0


class DigitRow(NamedTuple):
    """A row of the table."""

    algorithm: Algorithm
    population: Population = "K"

    @property
    def fair(self) -> bool:
        """Whether there is a constraint."""
        return self.algorithm in {"FFL", "FFL+Clip", "FPFL"}

    @property
    def clipped(self) -> bool:
        """Whether reports are clipped."""
        return self.algorithm not in {"FL", "FFL"}

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.algorithm in {"PFL", "FPFL"}


ROWS = (
    *(DigitRow(name) for name in ("FL", "FFL", "FL+Clip", "FFL+Clip", "PFL", "FPFL")),
    DigitRow("PFL", "100K"), DigitRow("FPFL", "100K"),
    DigitRow("PFL", "1000K"), DigitRow("FPFL", "1000K"),
)  # fmt: skip


class DigitValues(NamedTuple):
    """On test images: accuracy, and by how much a group's differs from it at most."""

    accuracy: float
    accuracy_gap: float


class DigitSettings(NamedTuple):
    """What differs from the paper, so that all rows take minutes on one core.

    Attributes:
        rounds: T; published: 2,000.
        cohort: m; published: 100, and 2,000 of the larger populations.
        images: of a writer at most; published: all, about 100.
        learning_rate: eta; published: 0.1.
        memory: see Fpfl; published: none.
        rate_scale: see Fpfl; published: 1.
        multiplier_rate: gamma; published: 0.05.
        damping: c; published: 20.
    """

    rounds: int = 200
    cohort: int = 20
    images: int = 8
    learning_rate: float = 0.3
    memory: float = 0.95
    rate_scale: float = 2.0
    multiplier_rate: float = 0.05
    damping: float = 20.0

    def of(self, row: DigitRow) -> DigitSettings:
        """Those of a row: with noise, a tenth of the constraint's weight and less noise in it.

        With the published weight, the noise of the constraint, divided by the few chalk images of
        a cohort, is larger than all else, and nothing is learned.
        """
        if not (row.fair and row.private):
            return self
        return self._replace(rate_scale=6.0, multiplier_rate=0.005, damping=2.0)

    def algorithm(self, network: Network, *, fair: bool) -> Fpfl:
        """With the published alpha."""
        return Fpfl(
            network,
            Parity("accuracy_parity", (3,)) if fair else None,
            alpha=0.04,
            learning_rate=self.learning_rate,
            multiplier_rate=self.multiplier_rate,
            damping=self.damping,
            memory=self.memory,
            rate_scale=self.rate_scale,
        )


SETTINGS = DigitSettings()
