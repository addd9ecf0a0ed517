"""``python -m synthfair.server``."""

from synthfair.cli import run, server

if __name__ == "__main__":
    run(server, prog="python -m synthfair.server")
