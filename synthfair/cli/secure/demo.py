"""``python -m synthfair secure demo``: the whole protocol by files on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run all of it on a real table: ten lenders, two aggregators"

DESCRIPTION = """\
Ten lenders train a model together (table loanapp: 1,989 mortgage applications in Boston;
label: approved; sensitive attribute: white). Then they count applications that it was not
trained on by group, label and score, and two aggregators sum the counts so that nobody sees
a lender's.
Thresholds by group follow from the noisy total. One process makes all keys and plays all
parties, so this is a simulation, and its statement says so.

  python -m synthfair secure demo --output synthfair-secure-demo
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--output", type=Path, default=Path("synthfair-secure-demo"),
        help="Folder to write to. Default: synthfair-secure-demo.")  # fmt: skip
    add("--epsilon", type=float, default=1.0, help="Privacy budget of the total. Default: 1.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.jax_setup import start_jax

    start_jax()
    from synthfair.compare.sums_demo import demonstrate_sums
    from synthfair.report.table import Table
    from synthfair.report.tables import decision_tables

    shown = demonstrate_sums(args.output, epsilon=args.epsilon)
    histogram, released = shown.histogram, shown.histogram.array()
    noise = released - shown.exact
    rows = [
        (group, label, int(released[i, y].sum()), int(noise[i, y].sum()))
        for i, group in enumerate(histogram.groups)
        for y, label in enumerate(("-1", "+1"))
    ]
    each = f"standard deviation {noise.std():.3g}, stated {histogram.variance**0.5:.3g}"
    caption = f"noise of each of the {noise.size} counts: {each}"
    say(Table(("group", "label", "rows, released", "noise"), rows, caption=caption))
    say(Table.of_facts(histogram.statement or {}))
    say(decision_tables(shown.chosen, histogram))
    rows = [
        (name, one.overall["accuracy"].value, one.overall["spd"].value)
        for name, one in shown.evaluations.items()
    ]
    first = next(iter(shown.evaluations.values()))  # the others are of the same rows
    rows.append(("one decision for everybody", first.constant_accuracy, 0.0))
    caption = f"{first.n_test} test rows"
    say(Table(("decisions by", "accuracy", "SPD"), rows, caption=caption))
    say(f"Wrote keys, task, uploads, sums, histogram, model and fair model to {args.output}/.")
