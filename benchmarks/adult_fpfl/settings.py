"""The rows of the two published tables, and the settings of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from synthfair.federated.fpfl import Fpfl
from synthfair.federated.networks import Network
from synthfair.federated.parity import Parity

ModelName = Literal["shallow", "deep"]
Algorithm = Literal["SGD", "MMDM", "FL", "FFL", "FL+Clip", "FFL+Clip", "PFL", "FPFL"]

HIDDEN: dict[ModelName, tuple[int, ...]] = {"shallow": (10,), "deep": (16, 8, 8)}
EPSILON, DELTA = 2.0, 5e-5


class AdultRow(NamedTuple):
    """A row of a table: who trains what, on how many users a round, and with whose settings."""

    cohort: int
    model: ModelName
    algorithm: Algorithm
    settings: Literal["published", "ours"] = "ours"

    @property
    def central(self) -> bool:
        """Whether the rows are in one place."""
        return self.algorithm in {"SGD", "MMDM"}

    @property
    def fair(self) -> bool:
        """Whether there is a constraint."""
        return self.algorithm in {"MMDM", "FFL", "FFL+Clip", "FPFL"}

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.algorithm in {"PFL", "FPFL"}


FEDERATED: tuple[Algorithm, ...] = ("FL", "FFL", "FL+Clip", "FFL+Clip", "PFL", "FPFL")

COHORTS: tuple[tuple[int, tuple[Algorithm, ...]], ...] = (
    (400, ("SGD", "MMDM")),
    (200, FEDERATED),
    (1000, ("PFL", "FPFL")),
)
"""Central batches are cohorts of users with a row each."""

ROWS = tuple(
    AdultRow(cohort, model, algorithm, settings)
    for settings in ("published", "ours")
    for cohort, algorithms in COHORTS
    for algorithm in algorithms
    for model in HIDDEN
)


@dataclass(frozen=True)
class AdultSettings:
    """Of one run; see :class:`synthfair.federated.fpfl.Fpfl`. Damping is 2, as published.

    Attributes:
        rounds: T; published: 1,000, and 250 for FFL, FFL+Clip and FPFL.
        clip: C, or None.
        memory: averages over about 1 / (1 - memory) rounds; published: none.
        rate_scale: of the constraint's sums before clipping; published: 1.
        count_scale: of the two counts that accuracy is made of; published: 1.
        learning_rate: eta; published: 0.1.
        multiplier_rate: gamma; published: 0.01.
        alpha: tolerance; published: 0.02.
    """

    rounds: int = 1000
    clip: float | None = None
    memory: float = 0.99
    rate_scale: float = 1.0
    count_scale: float = 1.0
    learning_rate: float = 0.1
    multiplier_rate: float = 0.01
    alpha: float = 0.02

    def algorithm(self, network: Network, *, fair: bool) -> Fpfl:
        """Of a run."""
        values = asdict(self)
        del values["rounds"], values["clip"]
        return Fpfl(network, Parity("equal_opportunity", (2,)) if fair else None, **values)


PUBLISHED_CLIP: dict[tuple[bool, ModelName], float] = {
    (False, "shallow"): 1.3,
    (False, "deep"): 2.0,
    (True, "shallow"): 2.0,
    (True, "deep"): 2.4,
}
"""C, by whether there is a constraint."""

PLAIN = AdultSettings(memory=0.95)
LARGE_COHORTS = {"rounds": 400, "learning_rate": 0.4}
PRIVATE = AdultSettings(clip=2.0, count_scale=0.5, learning_rate=0.2)
CLIPPED = AdultSettings(clip=2.0, count_scale=0.2, learning_rate=0.2, multiplier_rate=0.05)

CHOSEN: dict[tuple[int, Algorithm], tuple[float, float]] = {
    (400, "MMDM"): (0.02, 1.0),
    (200, "FFL"): (0.01, 1.0),
    (200, "FFL+Clip"): (0.01, 3.0),
    (200, "FPFL"): (0.01, 1.0),
    (1000, "FPFL"): (0.01, 3.0),
}
"""alpha and rate_scale of rows with a constraint, by cohort: what :mod:`.choices` chose on training
rows."""


def settings_of(row: AdultRow) -> AdultSettings:
    """As published; or ours, of which :mod:`.choices` chose alpha and rate_scale on training rows.

    C without a constraint is the published one.
    """
    clip = PUBLISHED_CLIP[row.fair, row.model]
    if row.settings == "published":
        rounds = 250 if row.fair and not row.central else 1000
        clipped = row.private or "Clip" in row.algorithm
        return AdultSettings(rounds=rounds, clip=clip if clipped else None, memory=0.0)
    large: dict[str, Any] = LARGE_COHORTS if row.cohort == 1000 else {}
    chosen: dict[str, Any] = {}
    if row.fair:
        alpha, rate_scale = CHOSEN[row.cohort, row.algorithm]
        chosen = {"alpha": alpha, "rate_scale": rate_scale}
    match row.algorithm:
        case "SGD" | "FL":
            return PLAIN
        case "MMDM" | "FFL":
            return AdultSettings(**chosen)
        case "FL+Clip" | "PFL":
            return replace(PLAIN, clip=clip, **large)
        case "FFL+Clip":
            return replace(CLIPPED, **chosen)
        case "FPFL":
            steady: dict[str, Any] = {"memory": 0.98} if large else {}
            return replace(PRIVATE, **large, **steady, **chosen)


SETTINGS = {row: settings_of(row) for row in ROWS}
