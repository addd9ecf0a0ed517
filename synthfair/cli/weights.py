"""``python -m synthfair weights``: weights of rows for training, from counts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

HELP = "make weights of rows by group and label, for train, from counts"

DESCRIPTION = """\
Make weights by which losses of rows are multiplied in training, from counts of rows by
group and label, which may have noise in them. published: every pair of group and label
weighs the same in all, N / (2 G C(s, y)). kamiran_calders: group and label become
independent, N_s N_y / (N C(s, y)).

  python -m synthfair weights counts.json --method kamiran_calders --output weights.json
  python -m synthfair train adult --method fedavg --weights weights.json --output fair
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config.notions import WeightMethod

    add = parser.add_argument
    add("counts", type=Path, help="Counts of secure open, or a histogram, whose bins are summed.")
    add("--method", choices=get_args(WeightMethod), required=True, help="See above.")
    add("--output", type=Path, help="JSON file to write the weights to, for train.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.files import require_distinct, require_free
    from synthfair.postprocess import make_weights, read_histogram, write_weights
    from synthfair.report.table import Table

    if args.output:
        require_distinct(args.output, args.counts)
        require_free(args.output, force=args.force)
    weights = make_weights(read_histogram(args.counts), args.method)
    if args.output:
        write_weights(weights, args.output)
    rows = [(g, *pair) for g, pair in zip(weights.groups, weights.weights, strict=True)]
    title = f"weights of rows, {weights.method}"
    say(Table(("group", "label -1", "label +1"), rows, title, form=".4g"))
