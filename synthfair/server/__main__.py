"""``python -m synthfair.server``."""

import sys

from synthfair.interrupt import exit_on_interrupt

if __name__ == "__main__":
    exit_on_interrupt()
    from synthfair.cli import run, server

    sys.exit(run(server, prog="python -m synthfair.server"))
