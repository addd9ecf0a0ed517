"""``python -m synthfair gap``: gaps between groups, measured without learning anyone's group."""

from __future__ import annotations

import argparse
from types import ModuleType

from synthfair.cli.gap import aggregate, perturb, plan, simulate

HELP = "measure gaps between groups over many devices, learning nobody's group"

DESCRIPTION = """\
Measure how a number (a rate, an accuracy, any score) differs between groups of
clients, when no client may reveal its group or its number. Each sends one noisy pair;
only the sums over many mean anything (local differential privacy).

  python -m synthfair gap plan --groups female male --epsilon 1 --precision 0.01 \\
      --output gap.json                              how many clients that takes
  python -m synthfair gap perturb gap.json --group female --value 0.93
                                                     on each device
  python -m synthfair gap aggregate gap.json reports.csv
                                                     the gap with its interval
  python -m synthfair gap simulate gap.json --clients 100000 --means 0.9 0.8
                                                     what to expect of all that

gap.json is public: it holds the groups, the range of the number and the mechanism.
"""

COMMANDS: dict[str, ModuleType] = {
    "plan": plan,
    "perturb": perturb,
    "aggregate": aggregate,
    "simulate": simulate,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the four commands."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(gap=module.run)


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    args.gap(args)
