"""Tables 1 and 2 of Rodríguez-Gálvez et al. (2021), on Adult.

    python -m benchmarks.adult_fpfl                 # 5 seeds; goes on where it stopped
    python -m benchmarks.adult_fpfl --seeds 1 --output elsewhere

The published split; sex is the sensitive attribute and no input; epsilon = 2 and delta = 5e-5 for
users with two rows on average, cohorts drawn user by user (Poisson), and neighbours that differ by
one user more or less. Seeds are of users, first params, cohorts and noise: an experiment on public
rows, not a release.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.adult_fpfl.problem import Measured, load
from benchmarks.adult_fpfl.runs import RUNS
from benchmarks.adult_fpfl.settings import SETTINGS, Row
from benchmarks.adult_fpfl.show import page, plot
from benchmarks.adult_fpfl.train import trained
from synthfair.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "adult_fpfl"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="Number of seeds. Default: 5.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)

    def train(row: Row, seed: int) -> Measured:
        return trained(row, SETTINGS[row], seed, judged_on=load().test)

    runs = RUNS.go_on(args.output / "runs.csv", args.seeds, train)
    write_text(args.output / "adult_fpfl.md", page(runs))
    write_text(args.output / "adult_fpfl.svg", plot(runs))
    print(page(runs))


if __name__ == "__main__":
    main()
