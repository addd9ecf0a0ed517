"""``python -m synthfair.client``."""

import sys

from synthfair.interrupt import exit_on_interrupt

if __name__ == "__main__":
    exit_on_interrupt()
    from synthfair.cli import main

    sys.exit(main(["client", *sys.argv[1:]]))
