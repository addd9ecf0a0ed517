"""The pages of the documentation, and their commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

from synthfair.data.datasets import configs_folder

ROOT = configs_folder().parent


README = ROOT / "README.md"


DOCS = sorted((ROOT / "docs").rglob("*.md"))


PAGES = [README, *DOCS, ROOT / "CONTRIBUTING.md"]


TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}


def blocks(page, language):
    """The fenced blocks of a language: ``python`` is run here, ``py`` only shown."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT[page], re.DOTALL | re.MULTILINE)


def prose(page):
    return re.sub(r"^```.*?^```$", "", TEXT[page], flags=re.DOTALL | re.MULTILINE)


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
