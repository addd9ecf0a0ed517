"""Our tolerance and scale of the constraint, chosen on training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from benchmarks.adult_fpfl.experiment import trained
from benchmarks.adult_fpfl.problem import AdultValues
from benchmarks.adult_fpfl.settings import SETTINGS, AdultRow, Algorithm
from benchmarks.harness import Experiment, Run, fingerprint
from benchmarks.showing import by, page, table
from synthfair.data.datasets import SOURCES

SEED = 100
"""None of the table's."""

WANTED = 0.02
"""The published alpha, as the largest gap on training rows."""


class Candidate(NamedTuple):
    """Settings of the shallow network of a row."""

    cohort: int
    algorithm: Algorithm
    alpha: float
    rate_scale: float

    @property
    def row(self) -> AdultRow:
        """Whose settings these would be."""
        return AdultRow(self.cohort, "shallow", self.algorithm)


def run_candidate(setting: Candidate, _seed: int, *, smoke: bool) -> AdultValues:
    """On training rows."""
    changed = replace(SETTINGS[setting.row], alpha=setting.alpha, rate_scale=setting.rate_scale)
    changed = replace(changed, rounds=2) if smoke else changed
    return trained(setting.row, changed, SEED, on_training_rows=True)


CandidateRuns = Sequence[Run[Candidate, AdultValues]]


def chosen(runs: CandidateRuns) -> dict[AdultRow, Candidate]:
    """Of each row the most accurate that keeps the wanted gap, or that of the smallest gap."""
    found = {}
    for row, own in by(runs, lambda setting: setting.row).items():
        kept = [run for run in own if run.values.fnr_gap <= WANTED]
        best = (
            max(kept, key=lambda run: run.values.accuracy)
            if kept
            else min(own, key=lambda run: run.values.fnr_gap)
        )
        found[row] = best.setting
    return found


def show(runs: CandidateRuns) -> dict[str, str]:
    """All of them, with the chosen."""
    best = chosen(runs)
    rows = [
        (
            *run.setting,
            f"{run.values.accuracy:.4f}",
            f"{run.values.fnr_gap:.4f}",
            "chosen" if best[run.setting.row] == run.setting else "",
        )
        for run in runs
    ]
    before = (
        f"`python -m benchmarks.adult_fpfl choices`: training rows, seed {SEED}, shallow network."
        " Chosen is the most accurate candidate whose FNR gap is at most the published alpha,"
        f" {WANTED:g}, or, where there is none, the one with the smallest gap. The deep network has"
        " the same."
    )
    text = table("cohort | algorithm | alpha | rate_scale | accuracy | FNR gap | ", rows)
    return {"choices.md": page("# Settings, on training rows", before, text)}


ALPHAS, SCALES = (0.01, 0.02), (0.5, 1.0, 2.0, 3.0)
CLIPPED: tuple[tuple[int, Algorithm], ...] = ((200, "FFL+Clip"), (200, "FPFL"), (1000, "FPFL"))
NOT_CLIPPED: tuple[tuple[int, Algorithm], ...] = ((400, "MMDM"), (200, "FFL"))

CHOICES = Experiment(
    name="choices",
    settings=(
        *(Candidate(*one, alpha, 1.0) for one, alpha in product(NOT_CLIPPED, ALPHAS)),
        *(Candidate(*one, *both) for one, *both in product(CLIPPED, ALPHAS, SCALES)),
    ),
    run=run_candidate,
    summary=show,
    smoke=(),
    sources=lambda _: SOURCES["adult"],
    fingerprint=lambda setting: fingerprint(
        replace(SETTINGS[setting.row], alpha=0.0, rate_scale=0.0), WANTED
    ),
    float64=False,
    default=False,
)
