"""``python -m synthfair.server``."""

from functools import partial

from synthfair.cli import as_process, run, server

if __name__ == "__main__":
    as_process(partial(run, server, prog="python -m synthfair.server"))
