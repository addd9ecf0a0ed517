"""``python -m synthfair``, and the installed command ``synthfair``."""

import sys

from synthfair.interrupt import exit_on_interrupt


def script() -> None:
    """Runs the command line; what it needs is imported once Ctrl-C is cared for."""
    exit_on_interrupt()
    from synthfair.cli import main

    sys.exit(main())


if __name__ == "__main__":
    script()
