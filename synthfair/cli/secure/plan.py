"""``python -m synthfair secure plan``: the public file of a sum."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.cli.options import advanced
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.secure.aggregator_keys import AggregatorKeys

RELATIONS = ("add_or_remove", "replace")

HELP = "write the public file: what is summed, the privacy, the aggregators, the clients"

DESCRIPTION = """\
Write the public file of a sum. With a model: counts of rows by group, label and bin of
the model's score, from which thresholds are chosen. With a schema alone: counts by
group and label, from which weights follow.

  python -m synthfair secure plan --model model.json --bins 101 --epsilon 1 \\
      --rows-per-client 5000 --aggregators aggregator_0.pub aggregator_1.pub \\
      --clients client_*.pub --least-clients 8 --output task.json

epsilon: for tables that differ in one row (or in one user's rows, with --unit user), no
result is more than exp(epsilon) times as likely from one as from the other. It holds
against each single aggregator and against everyone who sees the total.

Bins: each count has noise of its own, and more bins have more of it in all. With few
rows or a small epsilon take fewer, such as 21.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--model", type=Path, help="model.json, whose scores are counted.")
    add("--schema", type=Path, help="Schema of the tables, for counts without a model.")
    add("--bins", type=int, default=101, help="Number of score bins, with a model. Default: 101.")
    add("--epsilon", type=float, required=True, help="Privacy budget of the total.")
    add("--rows-per-client", type=int, required=True,
        help="No client has more rows; larger tables, and totals that would need them, are"
        " refused.")  # fmt: skip
    add("--aggregators", type=Path, nargs="+", required=True,
        help="Public keys of two or three aggregators that do not collude, by role.")  # fmt: skip
    add("--clients", type=Path, nargs="+", required=True,
        help="Public keys of the clients, as keygen writes them, or folders of them.")  # fmt: skip
    add("--output", type=Path, required=True, help="The public file to write, e.g. task.json.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")
    add = advanced(parser).add_argument
    add("--relation", choices=RELATIONS, default=RELATIONS[0],
        help=f"Which tables are neighbours. Default: {RELATIONS[0]}.")  # fmt: skip
    add("--unit", choices=("row", "user"), default="row",
        help="What epsilon protects: one row, or all rows of a user. Default: row.")  # fmt: skip
    add("--rows-per-user", type=int, default=1, metavar="M",
        help="With the unit user: so many rows of each user count, the first of the table; noise"
        " grows with it. Default: 1.")  # fmt: skip
    add("--least-clients", type=int,
        help="With fewer, nothing is answered. Default: all of them.")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from pydantic import ValidationError

    from synthfair.cli.show import say
    from synthfair.errors import refusal
    from synthfair.files import require_distinct, require_free
    from synthfair.postprocess.histogram import SURE
    from synthfair.release.keys import read_keys
    from synthfair.secure.summands import GroupCounts
    from synthfair.secure.task import make_task, write_task

    described = [path for path in (args.model, args.schema) if path]
    require_distinct(args.output, *described, *args.aggregators, *args.clients)
    require_free(args.output, force=args.force)
    try:
        what = GroupCounts.model_validate(
            _counted(args)
            | {name: getattr(args, name) for name in ("epsilon", "relation", "unit")}
            | {"rows_per_user": args.rows_per_user, "rows_per_client": args.rows_per_client}
        )
    except ValidationError as error:
        raise refusal("flags", error) from error
    clients = list(read_keys(args.clients))
    least = len(clients) if args.least_clients is None else args.least_clients
    aggregators = _aggregators(args.aggregators)
    task = make_task(what, aggregators, clients, least_clients=least)
    write_task(task, args.output)
    deviation = (len(aggregators) * what.variance) ** 0.5
    say(
        f"Wrote {args.output}: {what.length} counts over {least} to {len(clients)} clients; the"
        f" noise of each count has a standard deviation of {deviation:.3g} rows. To choose"
        f" decisions or weights, each group and label needs more than"
        f" {SURE * deviation * what.bins**0.5:.3g} rows over all clients; fewer bins need fewer."
    )
    say(f"Task {task.id.hex()}")


def _aggregators(paths: list[Path]) -> list[AggregatorKeys]:
    from synthfair.secure.aggregator_keys import read_aggregator_keys

    if len(paths) not in (2, 3):
        raise InputError(f"--aggregators: {len(paths)} given; must be two or three")
    aggregators = [read_aggregator_keys(path) for path in paths]
    for i, keys in enumerate(aggregators):
        if (first := aggregators.index(keys)) < i:
            raise InputError(
                f"{paths[i]}: the keys of {paths[first]}; each aggregator must have its own"
            )
    return aggregators


def _counted(args: argparse.Namespace) -> dict[str, Any]:
    from synthfair.data.schema import read_schema
    from synthfair.trained import read_model

    if (args.model is None) == (args.schema is None):
        raise InputError("flags: give one of --model and --schema")
    model = read_model(args.model) if args.model else None
    schema = model.schema_ if model else read_schema(args.schema)
    return {
        "schema_hash": schema.hash,
        "groups": tuple(map(str, schema.groups)),
        "model": model.sha256 if model else None,
        "bins": args.bins if model else 1,
    }
