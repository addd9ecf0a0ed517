"""``python -m synthfair.server``."""

from synthfair.cli import server, run

if __name__ == "__main__":
    run(server, prog="python -m synthfair.server")
