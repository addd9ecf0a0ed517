"""``python -m synthfair keygen``: makes the pair of keys that a client signs with."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make the keys that a client signs its releases with"

DESCRIPTION = """\
Make a pair of Ed25519 keys: NAME.key, which stays with the client and which only its
owner may read, and NAME.pub, to be handed to whoever runs the server, by a way on which
nobody can replace it. NAME names the client there.

  python -m synthfair keygen --output hospital_a.key

client --sign hospital_a.key signs a release with it, and server --keys hospital_a.pub
hospital_b.pub takes no other releases than those of these two.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "--output", type=Path, required=True, help="The private key to write, NAME.key."
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="Overwrite keys that exist; what they signed can then no longer be verified.",
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.release.keys import make_keys

    public_path, public = make_keys(args.output, force=args.force)
    say(f"Wrote {args.output} (keep it secret) and {public_path} (hand it to the server).")
    say(f"Public key: {public}")
