"""The program ``python -m synthfair``, which is also the installed command ``synthfair``."""

import sys


def script(*command: str) -> None:
    """Run the command line and exit; ``command`` precedes what the user's line has."""
    try:
        from synthfair.cli import main

        code = main([*command, *sys.argv[1:]])
    except KeyboardInterrupt:  # pressed while the command line is imported
        print("interrupted", file=sys.stderr)  # noqa: T201 - the command line's own voice
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    script()
