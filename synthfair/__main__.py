"""``python -m synthfair``."""

from synthfair.cli import script

if __name__ == "__main__":
    script()
