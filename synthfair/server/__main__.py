"""``python -m synthfair.server``."""

import sys

from synthfair.cli import run, server

if __name__ == "__main__":
    sys.exit(run(server, prog="python -m synthfair.server"))
