"""``python -m synthfair.server``."""

import sys

from synthfair.interrupt import exit_on_interrupt

if __name__ == "__main__":
    exit_on_interrupt()
    from synthfair.cli import main

    sys.exit(main(["server", *sys.argv[1:]]))
