"""``python -m synthfair deploy``: the same client and server between real organisations."""

from __future__ import annotations

import argparse

from synthfair.cli.deploy import check, demo, kit, run_job
from synthfair.cli.options import add_commands

HELP = "run clients and server as a federation of organisations, on NVIDIA FLARE"

DESCRIPTION = """\
Run the client at each organisation's own site and the server at a hub, connected by an
engine for federations, NVIDIA FLARE 2.9.0: pip install 'synthfair[nvflare]'.

  python -m synthfair deploy demo --output DIR         a server and two sites on this machine
  python -m synthfair deploy kit project.yml --output DIR     the hub: a kit for each party
  python -m synthfair deploy check KIT                 each party, before it joins
  KIT/startup/start.sh                                 the server, then each site
  python -m synthfair deploy run KIT --job DIR/jobs/single_shot --output RESULTS
"""

COMMANDS = {"kit": kit, "check": check, "demo": demo, "run": run_job}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the commands."""
    add_commands(parser, COMMANDS, COMMANDS)
