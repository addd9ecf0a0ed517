"""``python -m synthfair gap simulate``: what to expect, of a population or of a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "what a measurement would find: of drawn clients, or of a model over many devices"

DESCRIPTION = """\
Draw clients, perturb and add up, many times over; or cut test tables into devices, each
of which reports a trained model's true and false positive rate on its own rows.

  python -m synthfair gap simulate gap.json --clients 100000 --shares 0.9 0.1 \\
      --means 0.9 0.8
  python -m synthfair gap simulate --model DIR/server/model.json \\
      --data DIR/*_test.csv --devices 10000 --epsilon 4 --output DIR/server/gaps.json

A gaps.json beside a metrics.json is shown by python -m synthfair report. Noise comes
from a seed here and protects nobody: this is for public or your own data.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("collection", type=Path, nargs="?", help="The public file, of plan.")
    parser.add_argument("--clients", type=int, help="Drawn in each repetition.")
    parser.add_argument("--shares", nargs="+", type=float, help="Of groups. Default: equal.")
    parser.add_argument(
        "--means", nargs="+", type=float, help="Of the value, in each group that has one."
    )
    parser.add_argument("--repeats", type=int, default=100, help="Default: 100.")
    parser.add_argument("--model", type=Path, help="model.json of a server.")
    parser.add_argument("--data", type=Path, nargs="+", help="Tables with labels.")
    parser.add_argument("--devices", type=int, default=10_000, help="Default: 10000.")
    parser.add_argument("--epsilon", type=float, help="Of all that a device reports.")
    parser.add_argument("--confidence", type=float, default=0.95, help="Default: 0.95.")
    parser.add_argument("--seed", type=int, default=0, help="Of everything. Default: 0.")
    parser.add_argument("--output", type=Path, help="gaps.json to write, of a model.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    if args.seed < 0:
        raise InputError(f"flags: seed = {args.seed}: must be at least 0")
    forms = ("collection", "clients", "means", "shares"), ("data", "epsilon", "output")
    other, own = forms if args.model else reversed(forms)
    for name in own:
        if getattr(args, name) is None and name not in ("shares", "output"):
            raise InputError(f"flags: {name} is missing; see --help for the two forms")
    for name in other:
        if getattr(args, name) is not None:
            raise InputError(f"flags: {name} is of the other form; see --help for the two")
    (_of_a_model if args.model else _of_a_population)(args)


def _of_a_population(args: argparse.Namespace) -> None:
    import numpy as np

    from synthfair.cli.show import say
    from synthfair.measure.collection import read_collection
    from synthfair.measure.simulate import population, simulate_gaps
    from synthfair.report.gaps import simulation_table

    collection = read_collection(args.collection)
    shares = args.shares or [1 / len(collection.groups)] * len(collection.groups)
    if len(args.means) != len(collection.compared):
        wanted = len(collection.compared)
        raise InputError(f"flags: means: {len(args.means)} given, for {wanted} groups with a value")
    if not all(collection.lower <= mean <= collection.upper for mean in args.means):
        allowed = f"{collection.lower:g} to {collection.upper:g}"
        raise InputError(f"flags: means: {args.means}: each must be from {allowed}")
    means = np.zeros(len(collection.groups))
    means[list(collection.compared)] = collection.scaled(np.array(args.means))
    people = population(shares, means.tolist())
    found = simulate_gaps(
        collection.noise(), people,
        clients=args.clients, repeats=args.repeats, seed=args.seed, confidence=args.confidence,
    )  # fmt: skip
    say(simulation_table(found, collection, args.confidence))


def _of_a_model(args: argparse.Namespace) -> None:
    from synthfair.cli.show import say, warn
    from synthfair.evaluation import pooled_scores, read_tests
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.measure.devices import gaps_document, measure_model
    from synthfair.privacy.noise import seeded
    from synthfair.report.gaps import few_warning, model_table
    from synthfair.trained import read_model

    if args.output:
        require_distinct(args.output, args.model, *args.data)
        require_free(args.output, force=args.force)
    model = read_model(args.model)
    rows = pooled_scores(model, read_tests(args.data, model.schema_), sources=args.data)
    found = measure_model(
        rows, tuple(map(str, model.schema_.groups)), devices=args.devices, epsilon=args.epsilon,
        seed=args.seed, source=seeded(args.seed), confidence=args.confidence,
    )  # fmt: skip
    if found.few:
        warn(few_warning(found.few, of="devices that have a rate"))
    if args.output:
        write_json(args.output, gaps_document(found, seed=args.seed))
    say(model_table(found))
