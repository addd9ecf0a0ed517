"""``python -m synthfair gap plan``: clients, epsilon and precision; two determine the third."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import advanced
from synthfair.errors import InputError

HELP = "find the clients, epsilon or precision of a measurement; write its public file"

DESCRIPTION = """\
Give two of --clients, --epsilon and --precision; the third is computed, for the best
split of epsilon between group and value, and whatever the clients' values are.

  python -m synthfair gap plan --groups female male --epsilon 1 --precision 0.01
  python -m synthfair gap plan --groups a b c --shares 0.6 0.3 0.1 --range 0 1 \\
      --epsilon 1 --clients 1000000 --output gap.json

epsilon: for any two clients, no report is more than exp(epsilon) times as likely from
one as from the other. precision: expected half-width of the interval of the gap
between the two smallest groups, in the value's unit. A group "(no value)" is not
compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--groups", nargs="+", required=True, help="Names of the groups, two or more.")
    add("--range", nargs=2, type=float, default=(0.0, 1.0), metavar=("LOW", "HIGH"),
        help="Public range of a client's value. Default: 0 1.")  # fmt: skip
    add("--epsilon", type=float, help="Of one client's report.")
    add("--clients", type=int, help="Number of clients that send a report.")
    add("--precision", type=float, help="Wanted half-width of the interval.")
    add("--output", type=Path, help="The public file to write, e.g. gap.json.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")
    add = advanced(parser).add_argument
    add("--shares", nargs="+", type=float,
        help="Rough shares of the groups, of sum 1. Default: equal.")  # fmt: skip
    add("--confidence", type=float, default=0.95, help="Of the interval. Default: 0.95.")
    add("--mechanism", choices=("randomized", "laplace"), default="randomized",
        help="randomized sends one bit of the value, laplace the value with noise. Default:"
        " randomized, which has the smaller error at every epsilon, unless values are known to"
        " lie near the middle of their range.")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    if [args.clients, args.epsilon, args.precision].count(None) != 1:
        raise InputError("flags: give two of --clients, --epsilon and --precision")

    from synthfair.cli.show import say
    from synthfair.files import require_free
    from synthfair.measure.collection import compared_groups, make_collection, write_collection
    from synthfair.measure.plan import Design, plan_clients, plan_epsilon, plan_precision
    from synthfair.report.table import Table

    low, high = args.range
    if args.output:
        require_free(args.output, force=args.force)
    if not low < high:
        raise InputError(f"flags: range: {low:g} must be below {high:g}")
    shares = args.shares or [1 / len(args.groups)] * len(args.groups)
    if len(shares) != len(args.groups):
        raise InputError(f"flags: shares: {len(shares)} given, for {len(args.groups)} groups")
    design = Design(
        tuple(shares), compared=compared_groups(args.groups), confidence=args.confidence,
        kind=args.mechanism, unit=(high - low) / 2,
    )  # fmt: skip
    if args.precision is None:
        found = plan_precision(design, clients=args.clients, epsilon=args.epsilon)
    elif args.epsilon is None:
        found = plan_epsilon(design, clients=args.clients, precision=args.precision)
    else:
        found = plan_clients(design, epsilon=args.epsilon, precision=args.precision)
    collection = make_collection(tuple(args.groups), found.mechanism, lower=low, upper=high)
    if args.output:
        write_collection(collection, args.output)
    mechanism = {"randomized": "M_R: one bit of the value", "laplace": "M_L: the value with noise"}
    budget = f"epsilon1 = {collection.epsilon1:.4g}, epsilon2 = {collection.epsilon2:.4g}"
    facts = {
        "groups": ", ".join(collection.groups),
        "epsilon": f"{collection.epsilon:.4g}, of one client's report",
        "mechanism": f"{mechanism[collection.mechanism]}; {budget}",
        "clients": found.clients,
        "precision": f"± {found.precision:.4g}, at confidence {found.confidence:.4g}",
        "Chebyshev": f"± {found.chebyshev:.4g}, if the sizes of the groups were known",
    }
    if found.precision >= 2 * collection.unit:
        facts["but"] = "too few clients to estimate the size of the smallest group"
    say(Table.of_facts(facts))
