"""``python -m synthfair.client``."""

from synthfair.cli import client, run

if __name__ == "__main__":
    run(client, prog="python -m synthfair.client")
