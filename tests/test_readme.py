"""The README's Python runs, and says what it prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from synthfair.data.datasets import configs_folder

README = configs_folder().parent / "README.md"


def test_python_example_prints_what_the_readme_says():
    """In a process of its own, so in JAX's own precision, single."""
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (claimed,) = re.findall(r"It prints `(.*?)`", text)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, expected = ([float(n) for n in re.findall(r"0\.\d+", t)] for t in (run.stdout, claimed))
    assert found == pytest.approx(expected, abs=0.011)  # a few rows of 399 may turn


@pytest.mark.parametrize(
    "path", re.findall(r"\]\((\w+\.md)\)|(configs/[\w/.]+\.toml)", README.read_text())
)
def test_files_that_the_readme_names_exist(path):
    assert (README.parent / Path("".join(path))).is_file()
