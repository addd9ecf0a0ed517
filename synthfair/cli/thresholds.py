"""``python -m synthfair thresholds``: fair decisions of a trained model, from a histogram."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

HELP = "choose a model's thresholds by group, from a histogram of its scores"

DESCRIPTION = """\
Choose a threshold for each group, such that decisions are as accurate as can be while
the groups' rates differ by at most alpha; or, with --randomized, a mixture of thresholds
for each group, whose coins are keyed by a row's id. All that is read of the rows is the
histogram of secure open, which may have noise in it; the guarantee of the histogram is
that of the thresholds, and stands in the model file. A person's group is an input of
such decisions. Count rows that the model was not trained on: of others, accuracy and gap
look better than they are.

  python -m synthfair thresholds histogram.json --notion equalized_odds --alpha 0.02 \\
      --model model.json --output fair_model.json

predict, evaluate, gap and report use the new file as any other model.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import Notion

    add = parser.add_argument
    add("histogram", type=Path, help="Counts by group, label and score of this very model.")
    add("--notion", choices=get_args(Notion), required=True, help="Rates that are compared.")
    add(
        "--alpha",
        type=float,
        default=0.02,
        help="Most by which a rate may differ between two groups, as estimated. Default: 0.02.",
    )
    add("--randomized", action="store_true", help="Allow decisions that are drawn by coins.")
    add("--model", type=Path, required=True, help="model.json, whose scores were counted.")
    add("--output", type=Path, required=True, help="The model file to write.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say, warn
    from synthfair.files import require_distinct, require_free
    from synthfair.postprocess import choose_decision, read_histogram
    from synthfair.report.table import Table
    from synthfair.report.tables import alpha_warning, decision_tables
    from synthfair.trained import read_model, write_model

    require_distinct(args.output, args.histogram, args.model)
    require_free(args.output, force=args.force)
    histogram, model = read_histogram(args.histogram), read_model(args.model)
    model.require_counted(histogram)
    chosen = choose_decision(histogram, args.notion, args.alpha, randomized=args.randomized)
    write_model(model.model_copy(update={"decision": chosen.decision}), args.output)
    say(decision_tables(chosen, histogram))
    if warning := alpha_warning(chosen):
        warn(warning)
    if chosen.decision.statement:
        say(Table.of_facts(chosen.decision.statement))
    say(f"Wrote {args.output}.")
