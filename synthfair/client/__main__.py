"""``python -m synthfair.client``."""

from functools import partial

from synthfair.cli import as_process, client, run

if __name__ == "__main__":
    as_process(partial(run, client, prog="python -m synthfair.client"))
