"""The commands of the pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

from page_texts import ROOT

PROGRAM = re.compile(r"^\$? *python -m synthfair[. ]")


def commands(block):
    """A block's lines, each in one piece, without the program's name."""
    return [PROGRAM.sub("", line) for line in re.sub(r"\\\n\s*", "", block).splitlines()]


def typed(command, folder, timeout=None):
    """What a command prints, which must succeed, within some seconds."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    words = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=timeout
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout
