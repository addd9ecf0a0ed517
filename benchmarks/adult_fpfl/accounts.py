"""The noise that both pairs of sampling and neighbouring relation take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.adult_fpfl.settings import DELTA, EPSILON, ROWS, SETTINGS
from benchmarks.harness import Experiment, Run, fingerprint
from benchmarks.showing import page, table
from synthfair.privacy.sampled import SampledSums

USERS = 14_000
"""About as many as there are."""


class Account(NamedTuple):
    """Of a training: users a round, and rounds."""

    cohort: int
    rounds: int


class Noise(NamedTuple):
    """Standard deviation of the noise in the sum, in units of the clip.

    Attributes:
        added: users are drawn one by one; neighbours have one user more or less.
        half: cohorts have a fixed size; what the paper takes, which is half of what holds.
    """

    added: float
    half: float

    @property
    def replaced(self) -> float:
        """Cohorts of a fixed size, one user replaced: its report changes by up to 2 C."""
        return 2 * self.half

    @property
    def ratio(self) -> float:
        """How many times the noise cohorts of a fixed size take."""
        return self.replaced / self.added


def run_account(setting: Account, _seed: int, *, smoke: bool) -> Noise:
    """By dp-accounting."""
    del smoke
    added, half = (
        SampledSums(USERS, *setting, sampling).noise(EPSILON, DELTA)
        for sampling in ("poisson", "fixed")
    )
    return Noise(round(added, 4), round(half, 4))


def show(runs: Sequence[Run[Account, Noise]]) -> dict[str, str]:
    """A row a training."""
    before = (
        "`python -m benchmarks.adult_fpfl accounts`: standard deviation of the noise in the sum, in"
        f" units of the clip C, for epsilon = {EPSILON:g} and delta = {DELTA:g} of {USERS:,} users."
        " *Added*: cohorts drawn user by user, neighbours that differ by one user more or less, as"
        " trained here. *Replaced*: cohorts of fixed size, neighbours in which one user is another:"
        " its report changes by up to 2 C. The paper samples cohorts of fixed size and takes C"
        " itself for the sensitivity, which is half of what that relation needs."
    )
    rows = [
        (*account, f"{noise.added:.3f}", f"{noise.replaced:.3f}", f"{noise.ratio:.1f}",
         f"{noise.half:.3f}")
        for account, _, noise, _ in runs
    ]  # fmt: skip
    header = (
        "users a round | rounds | added | replaced | replaced / added | C taken for the sensitivity"
    )
    return {"accounts.md": page("# Noise of both relations", before, table(header, rows))}


ACCOUNTS = Experiment(
    name="accounts",
    settings=tuple(
        Account(*one)
        for one in sorted({(row.cohort, SETTINGS[row].rounds) for row in ROWS if row.private})
    ),
    run=run_account,
    summary=show,
    smoke=(),
    fingerprint=lambda _: fingerprint(USERS, EPSILON, DELTA),
    float64=False,
)
