"""``python -m synthfair``."""

from synthfair.cli import main

if __name__ == "__main__":
    main()
