"""``python -m synthfair gap simulate``: what to expect, of a population or of a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "show what a measurement would find: on random clients, or for a model on many devices"

DESCRIPTION = """\
Draw random clients, perturb their values and estimate the gap, many times; or assign the
rows of test tables to devices, each of which reports the true and false positive rate
of a trained model on its own rows.

  python -m synthfair gap simulate gap.json --clients 100000 --shares 0.9 0.1 \\
      --means 0.9 0.8
  python -m synthfair gap simulate --model DIR/server/model.json \\
      --data DIR/*_test.csv --devices 10000 --epsilon 4 --output DIR/server/gaps.json

python -m synthfair report shows a gaps.json that is in the folder of a metrics.json. The
noise comes from a seed and protects nobody: use public data or your own.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("collection", type=Path, nargs="?", help="The public file that plan wrote.")
    add("--clients", type=int, help="Number of clients in each repetition.")
    add("--shares", nargs="+", type=float, help="Of the groups. Default: equal.")
    add("--means", nargs="+", type=float, help="Mean value of each group that has one.")
    add("--repeats", type=int, default=100, help="Number of repetitions. Default: 100.")
    add("--model", type=Path, help="model.json of a server.")
    add("--data", type=Path, nargs="+", help="Tables with labels.")
    add("--devices", type=int, default=10_000, help="Number of devices. Default: 10000.")
    add("--epsilon", type=float, help="Of all reports of a device together.")
    add("--confidence", type=float, default=0.95, help="Of each interval. Default: 0.95.")
    add("--seed", type=int, default=0, help="Of all randomness. Default: 0.")
    add("--output", type=Path, help="The gaps.json to write; only with a model.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    if args.seed < 0:
        raise InputError(f"flags: seed = {args.seed}: must be at least 0")
    forms = ("collection", "clients", "means", "shares"), ("data", "epsilon", "output")
    other, own = forms if args.model else reversed(forms)
    for name in own:
        if getattr(args, name) is None and name not in ("shares", "output"):
            raise InputError(f"flags: {name} is missing; see --help for the two forms")
    for name in other:
        if getattr(args, name) is not None:
            raise InputError(f"flags: {name} belongs to the other form; see --help for the two")
    (_of_a_model if args.model else _of_a_population)(args)


def _of_a_population(args: argparse.Namespace) -> None:
    import numpy as np

    from synthfair.cli.show import say
    from synthfair.measure.collection import read_collection
    from synthfair.measure.simulate import simulate_gaps
    from synthfair.report.table import Table

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
    found = simulate_gaps(
        collection.make_mechanism(), shares, means.tolist(),
        clients=args.clients, repeats=args.repeats, seed=args.seed, confidence=args.confidence,
    )  # fmt: skip
    caption = (
        f"covered: intervals that contain the true gap, {args.confidence:.4g} expected; open: those"
        " that are the whole range; precision: their mean half-width; noise from a seed"
    )
    unit, names, records = collection.unit, collection.groups, []
    for gap in (gap for gap in found if set(gap.groups) <= set(collection.compared)):
        record: dict[str, object] = {"gap": f"{names[gap.groups[1]]} - {names[gap.groups[0]]}"}
        values = {"true": gap.true, "mean": gap.mean, "deviation": gap.deviation}
        values |= {"predicted": gap.expected, "precision": gap.width}
        record |= {name: value * unit for name, value in values.items()}
        records.append(record | {"covered": f"{gap.covered:.1%}", "open": f"{gap.open:.1%}"})
    say(Table.of(records, caption=caption, form="z.4f"))


def _of_a_model(args: argparse.Namespace) -> None:
    from synthfair.cli.show import say, warn
    from synthfair.evaluation import pooled_scores, read_tests
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.measure.simulate import measure_model
    from synthfair.privacy.noise import seeded
    from synthfair.report.gaps import few_warning, gap_table, gaps_document
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
    document = gaps_document(found, seed=args.seed)
    if args.output:
        write_json(args.output, document)
    each = f"{found.devices:,} devices, epsilon = {found.epsilon:.4g} each for both rates together;"
    say(gap_table(document["gaps"], found.confidence, f"{each} "))
