"""``python -m synthfair.client``."""

import sys

from synthfair.cli import client, run

if __name__ == "__main__":
    sys.exit(run(client, prog="python -m synthfair.client"))
