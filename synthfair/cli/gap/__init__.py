"""``python -m synthfair gap``: gaps between groups under local differential privacy."""

from __future__ import annotations

import argparse

from synthfair.cli.gap import aggregate, perturb, plan, simulate
from synthfair.cli.options import add_commands

HELP = "measure gaps between groups of clients who do not reveal their group"

DESCRIPTION = """\
Measure how a number (a rate, an accuracy, any score) differs between groups of
clients, without learning any client's group or number. Each client sends one noisy
report (local differential privacy); gaps are estimated from many of them.

  python -m synthfair gap plan --groups female male --epsilon 1 --precision 0.01 \\
      --output gap.json                              how many clients are needed
  python -m synthfair gap perturb gap.json --group female --value 0.93
                                                     on each device
  python -m synthfair gap aggregate gap.json reports.csv
                                                     the gap with its interval
  python -m synthfair gap simulate gap.json --clients 100000 --means 0.9 0.8
                                                     what result to expect

gap.json is public: it has the groups, the range of the number and the mechanism.
"""

COMMANDS = {"plan": plan, "perturb": perturb, "aggregate": aggregate, "simulate": simulate}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the four commands."""
    add_commands(parser, COMMANDS, COMMANDS)
