"""Table 3 of Rodríguez-Gálvez et al. (2021): unfair FEMNIST.

    python -m benchmarks.femnist_fpfl                    # one seed; goes on where it stopped
    python -m benchmarks.femnist_fpfl --seeds 3 --output elsewhere

201 writers instead of 3,383, and shorter runs on fewer images, see ``settings``: orderings can be
compared, not digits after the point. Larger populations exist in the accounts alone, as in the
paper.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.femnist_fpfl.runs import RUNS
from benchmarks.femnist_fpfl.settings import SETTING
from benchmarks.femnist_fpfl.show import page, plot
from benchmarks.femnist_fpfl.train import trained
from synthfair.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "femnist_fpfl"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="Number of seeds. Default: 1.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    runs = RUNS.go_on(
        args.output / "runs.csv", args.seeds, lambda row, seed: trained(row, SETTING, seed)
    )
    write_text(args.output / "femnist_fpfl.md", page(runs))
    write_text(args.output / "femnist_fpfl.svg", plot(runs))
    print(page(runs))


if __name__ == "__main__":
    main()
