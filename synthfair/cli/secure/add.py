"""``python -m synthfair secure add``: an aggregator's answer."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from synthfair.cli.options import advanced
from synthfair.cli.secure.plan import RELATIONS
from synthfair.errors import InputError

HELP = "at an aggregator: verify uploads, add them up, add noise, and answer once"

DESCRIPTION = """\
Verify the clients' files for this aggregator, add up their shares, add noise of the
system's entropy, and sign the sum. Files that are refused stop it, and are listed, each
with its reason; take them out at every aggregator. A task that costs more than was agreed
is refused, too. A task is answered once: the answer is recorded in a folder next to the key
before it is written, and a second one is refused, also after a crash. The folder is made
with the key, and no other is taken. Never put it back to an older state.

  python -m synthfair secure add --task task.json --key aggregator_0.key DIR \\
      --most-epsilon 1 --check              verifies only, shows the hash of the list
  python -m synthfair secure add --task task.json --key aggregator_0.key DIR \\
      --most-epsilon 1 --output sum_0.json

Aggregators must have the files of the same clients: compare what --check shows first.
Before any sum is published, publish the commitments to all of them, for open.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--task", type=Path, required=True, help="The public file that plan wrote.")
    add("--key", type=Path, required=True, help="The aggregator's private keys.")
    add("uploads", type=Path, nargs="+",
        help="Files of the clients, or folders, whose *.to_ROLE are read.")  # fmt: skip
    add("--output", type=Path, help="The partial sum to write, e.g. sum_0.json.")
    add("--most-epsilon", type=float, help="Most epsilon agreed; needed for counts.")
    add("--check", action="store_true", help="Only verify; nothing is answered or spent.")
    add("--force", action="store_true", help="Overwrite the output if it exists.")
    add = advanced(parser).add_argument
    add("--most-rho", type=float, help="Most rho agreed; needed for vectors.")
    add("--without-noise", action="store_true",
        help="Allow vectors without noise, of whose total nothing is guaranteed.")  # fmt: skip
    add("--relation", choices=RELATIONS, default=RELATIONS[0],
        help=f"Which tables are neighbours, as agreed. Default: {RELATIONS[0]}.")  # fmt: skip
    add("--records", type=Path,
        help="Folder of the answers so far, which secure key made with the key. Default: next to"
        " the key, its name with .answers for .key.")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.report.table import Table
    from synthfair.secure.aggregator import answer, receive, require_unanswered
    from synthfair.secure.aggregator_keys import RECORDS, read_aggregator_secret
    from synthfair.secure.task import read_task

    if args.check == (args.output is not None):
        raise InputError("flags: give one of --output and --check")
    if args.output:
        require_distinct(args.output, args.task, args.key, *args.uploads)
        require_free(args.output, force=args.force)
    task, secret = read_task(args.task), read_aggregator_secret(args.key)
    records = args.records or Path(os.path.realpath(args.key)).with_suffix(RECORDS)
    role = task.role_of(secret.public)
    task.require_within(
        most_epsilon=args.most_epsilon,
        most_rho=args.most_rho,
        without_noise=args.without_noise,
        relation=args.relation,
    )
    say(f"Task {task.id.hex()}")
    say(Table.of_facts(task.statement))
    if not args.check:
        require_unanswered(task, secret, records)
    received = receive(task, secret, _files(args.uploads, role))
    seen = f"{received.clients} clients; their list has the hash {received.clients_hash}"
    if args.check:
        say(f"Aggregator {role}: {seen}. Nothing was answered.")
        return
    partial = answer(task, secret, received, records)
    write_json(args.output, partial.model_dump(mode="json"))
    say(f"Wrote {args.output}, of aggregator {role}: {seen}.")
    say(f"Commitment: {partial.commitment}")


def _files(places: list[Path], role: int) -> list[Path]:
    """The files, and those for this role of the folders."""
    found: list[Path] = []
    for place in places:
        inside = sorted(place.glob(f"*.to_{role}")) if place.is_dir() else [place]
        if not inside:
            raise InputError(f"{place}: a folder without files for aggregator {role} (*.to_{role})")
        found += inside
    return found
