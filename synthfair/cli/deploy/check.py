"""``python -m synthfair deploy check``: whether a kit is hardened, and ready to join."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.errors import InputError

HELP = "refuse a kit that is loosened, or not ready"

DESCRIPTION = """\
Look whether a kit is as it was hardened: no code in jobs, no shells, only synthfair's own
classes, no log that leaves, stores that nobody else reads, no file in startup and local
that is not the engine's own or the party's; and whether it is ready: its certificate, its
key, its table, its limits. What is not is said, one line each, and the exit code is 2.

  python -m synthfair deploy check KIT
  python -m synthfair deploy check KIT --moved     the server's, once it is where it stays
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("kit", type=Path, help="Folder of a kit.")
    parser.add_argument(
        "--moved",
        action="store_true",
        help="Harden it anew first: the server's stores then lie in this folder.",
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.deploy.check import problems
    from synthfair.deploy.hardening import harden
    from synthfair.deploy.project import require_engine

    require_engine()
    if args.moved:
        harden(args.kit)
    if found := problems(args.kit):
        raise InputError("\n".join(found))
    say(f"{args.kit}: hardened, and ready.")
