"""Draws ten digits of each group, as figure 1 of Rodríguez-Gálvez et al. (2021) does.

    python -m benchmarks.femnist_fpfl.examples

SYNTHFAIR_DATA names the folder with femnist_digits_by_writer.npz.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.femnist_fpfl.data import GROUPS, Digits, unfair_digits
from synthfair.files import whole_file

OUTPUT = Path(__file__).parent.parent / "results" / "femnist_fpfl" / "examples.png"


def chosen(digits: Digits, group: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of a training image of each digit 0 to 9 of a group, at random."""
    able = (digits.groups == group) & ~digits.is_test
    return np.array([rng.choice(np.flatnonzero(able & (digits.labels == i))) for i in range(10)])


def draw(digits: Digits, rng: np.random.Generator) -> Figure:
    """One row for each group. Noise beyond [0, 1] is cut off for the eye only."""
    figure = Figure(figsize=(8, 2.7), layout="constrained")
    for group, row in enumerate(figure.subplots(len(GROUPS), 10)):
        images = digits.images[chosen(digits, group, rng)].clip(0, 1)
        for axes, image in zip(row, images.transpose(0, 2, 3, 1), strict=True):
            axes.imshow(image)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(GROUPS[group])
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="Of noise and choice. Default: 0.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="PNG file to write.")
    args = parser.parse_args(arguments)
    figure = draw(unfair_digits(args.seed), np.random.default_rng(args.seed))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(args.output) as temporary:
        # Without the version of matplotlib, the same picture is the same bytes.
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
