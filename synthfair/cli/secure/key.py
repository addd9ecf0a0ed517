"""``python -m synthfair secure key``: the keys of an aggregator."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make the keys of an aggregator"

DESCRIPTION = """\
Make the keys of an aggregator: NAME.key, which stays with it and which only its owner
may read; NAME.pub, for whoever plans the sum and for every client, to be handed over by a
way on which nobody can replace it; and the folder NAME.answers, without which add does
not answer.

  python -m synthfair secure key --output aggregator_0.key
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--output", type=Path, required=True, help="The private keys to write, NAME.key.")
    add("--force", action="store_true",
        help="Overwrite keys that exist; uploads to them can then no longer be read.")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.secure.aggregator_keys import make_aggregator_keys

    public, _ = make_aggregator_keys(args.output, force=args.force)
    say(f"Wrote {args.output} (keep it secret) and {public} (for the planner and clients).")
