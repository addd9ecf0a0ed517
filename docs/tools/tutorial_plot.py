"""The picture of docs/tutorial.md: ``python docs/tools/tutorial_plot.py`` draws it anew.

It runs the code of the page up to the plot, in a folder that is removed.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

PAGE = Path(__file__).parents[1] / "tutorial.md"
TARGET = PAGE.parent / "assets" / "tutorial.svg"

if __name__ == "__main__":
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(f"](assets/{TARGET.name})")
    code = re.findall(r"^```python\n(.*?)^```$", before, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec("\n".join(code), names)  # noqa: S102
    mpl.rcParams |= {"svg.hashsalt": "synthfair", "svg.fonttype": "none"}
    names["figure"].savefig(TARGET, metadata={"Date": None})
