"""The tutorial as a notebook: ``python docs/tools/tutorial_notebook.py`` writes it.

docs/tutorial.md is the source, and a test compares the two. Outputs are left out: who runs the
notebook makes them.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SOURCE = Path(__file__).parents[1] / "tutorial.md"
TARGET = SOURCE.with_suffix(".ipynb")
CODE = re.compile(r"^```python\n(.*?)\n```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def notebook(page: str) -> str:
    """Return the notebook of a page: its ``python`` blocks are cells of code, all else is text."""
    pieces = CODE.split(page)  # text and code by turns
    make = (new_markdown_cell, new_code_cell)
    cells = [make[i % 2](piece.strip()) for i, piece in enumerate(pieces) if piece.strip()]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # nbformat's own are drawn at random
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.writes(new_notebook(cells=cells, metadata={"kernelspec": kernel})) + "\n"


if __name__ == "__main__":
    TARGET.write_text(notebook(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
