"""``python -m synthfair.server``."""

from synthfair.__main__ import script

if __name__ == "__main__":
    script("server")
