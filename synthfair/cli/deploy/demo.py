"""``python -m synthfair deploy demo``: a server and two sites on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "run all of it on this machine: a server, two unlike lenders, one upload"

DESCRIPTION = """\
Make the kits of a server and of two unlike lenders (table loanapp), start a process for
each on free ports of this machine, run one upload from submission to metrics, and stop
them. The exit code is 0 only if all of it worked. Takes about half a minute.

  python -m synthfair deploy demo --output synthfair-deploy-demo
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("synthfair-deploy-demo"),
        help="A new folder to write to. Default: synthfair-deploy-demo.",
    )
    parser.add_argument(
        "--job",
        choices=("single_shot", "train", "gap", "privfairfl"),
        default="single_shot",
        help="One upload; 200 rounds of fpfl; gaps of a model, from reports that each lender"
        " perturbs; or, all of it with epsilon, 20 rounds of dp_sgd and thresholds by group from"
        " counts in shares, with two aggregators more. Default: single_shot.",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="Of train: 20 rounds, whose reports two aggregators add up, and nobody sees.",
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.deploy.shown import in_words, tell
    from synthfair.cli.show import say, stage_bar, warn
    from synthfair.deploy.demo import demonstrate

    with stage_bar() as show:
        shown = demonstrate(
            args.output,
            show,
            lambda *found: show(in_words(*found)),
            job=args.job,
            secure=args.secure,
        )
    tell(shown.run, args.output / "results")
    say(f"Start: {shown.start_seconds:.1f} s. Job: {shown.job_seconds:.1f} s.")
    if not shown.clean:
        warn("a process had to be killed")
    if not (shown.run.completed and shown.clean):
        sys.exit(1)
