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


def test_the_example_of_measured_gaps_runs(tmp_path):
    (code,) = re.findall(
        r"The same as a library:\n\n```py\n(.*?)```", README.read_text(), re.DOTALL
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    low, high = map(float, re.findall(r"-?\d\.\d+", run.stdout))
    assert high - low < 0.5
    assert low < 0.2
    assert high > -1.0


@pytest.mark.parametrize(
    "path", re.findall(r"\]\((\w+\.md)\)|(configs/[\w/.]+\.toml)", README.read_text())
)
def test_files_that_the_readme_names_exist(path):
    assert (README.parent / Path("".join(path))).is_file()
