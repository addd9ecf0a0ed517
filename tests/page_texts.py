"""The pages of the documentation."""

import re

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
