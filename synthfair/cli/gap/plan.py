"""``python -m synthfair gap plan``: clients, epsilon and precision; two give the third."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "how many clients, what epsilon or what precision; writes the public file"

DESCRIPTION = """\
Give two of --clients, --epsilon and --precision; the third is found, for the best
division of the budget between group and value, whatever the clients' values are.

  python -m synthfair gap plan --groups female male --epsilon 1 --precision 0.01
  python -m synthfair gap plan --groups a b c --shares 0.6 0.3 0.1 --range 0 1 \\
      --epsilon 1 --clients 1000000 --output gap.json

epsilon: no report makes anything about its client more likely or less than by a factor
of exp(epsilon), whichever group and value it has. precision: half the width of the
interval of the gap to expect, in the value's unit, of the two smallest groups; a group
"(no value)" is not compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--groups", nargs="+", required=True, help="Their names, two or more.")
    parser.add_argument(
        "--shares", nargs="+", type=float, help="Roughly, of sum 1. Default: equal."
    )
    parser.add_argument(
        "--range", nargs=2, type=float, default=(0.0, 1.0), metavar=("LOW", "HIGH"),
        help="That a client's value may have; public. Default: 0 1.",
    )  # fmt: skip
    parser.add_argument("--epsilon", type=float, help="Of one client's report.")
    parser.add_argument("--clients", type=int, help="That report.")
    parser.add_argument("--precision", type=float, help="Wanted, in the value's unit.")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="Of the interval. Default: 0.95."
    )
    parser.add_argument(
        "--mechanism", choices=("randomized", "laplace"), default="randomized",
        help="randomized sends one bit of the value, laplace a number with noise. Default:"
        " randomized, which has the smaller error at every epsilon, unless values are known to"
        " lie near the middle of their range.",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="The public file to write, e.g. gap.json.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    given = [args.clients, args.epsilon, args.precision]
    if given.count(None) != 1:
        raise InputError("flags: give two of --clients, --epsilon and --precision")

    from synthfair.cli.show import say, warn
    from synthfair.files import require_free
    from synthfair.measure.collection import compared_groups, make_collection, write_collection
    from synthfair.measure.plan import plan_clients, plan_epsilon, plan_precision, setting
    from synthfair.report.gaps import plan_table

    low, high = args.range
    if args.output:
        require_free(args.output, force=args.force)
    if not low < high:
        raise InputError(f"flags: range: {low:g} must be below {high:g}")
    shares = args.shares or [1 / len(args.groups)] * len(args.groups)
    if len(shares) != len(args.groups):
        raise InputError(f"flags: shares: {len(shares)} given, for {len(args.groups)} groups")
    known = setting(
        shares, compared=compared_groups(args.groups), confidence=args.confidence,
        kind=args.mechanism, unit=(high - low) / 2,
    )  # fmt: skip
    if args.precision is None:
        found = plan_precision(known, clients=args.clients, epsilon=args.epsilon)
    elif args.epsilon is None:
        found = plan_epsilon(known, clients=args.clients, precision=args.precision)
    else:
        found = plan_clients(known, epsilon=args.epsilon, precision=args.precision)
    collection = make_collection(tuple(args.groups), found.mechanism, lower=low, upper=high)
    if collection.warning:
        warn(collection.warning)
    if args.output:
        write_collection(collection, args.output)
    say(plan_table(found, collection))
