"""``python -m synthfair inspect``: what a release file holds and claims, verified."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "show what a release file holds and claims, and verify it"

DESCRIPTION = """\
Show what a release file holds and claims, before it is sent or after it came. The sha256
of its content and its signature, if it has one, are verified in any case; the schema, the
file's own sha256 as the client printed it, and the clients' public keys where they are
given. Exits with 2 where anything does not fit.

  python -m synthfair inspect DIR/client_0.parquet --schema DIR/schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("release", type=Path, help="The release file.")
    parser.add_argument("--schema", type=Path, help="The public schema that it must be made with.")
    parser.add_argument("--sha256", help="That the file must have, as the client printed it.")
    parser.add_argument(
        "--keys", type=Path, nargs="+", help="Public keys, one of which must have signed it."
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.data.schema import read_schema
    from synthfair.errors import InputError
    from synthfair.release.inspection import inspect_release
    from synthfair.release.keys import read_keys
    from synthfair.report.releases import inspection_table

    found = inspect_release(
        args.release,
        schema=read_schema(args.schema) if args.schema else None,
        sha256=args.sha256,
        keys=read_keys(args.keys) if args.keys else None,
    )
    say(inspection_table(found))
    if found.problems:
        raise InputError("\n".join(found.problems))
