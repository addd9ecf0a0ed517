"""The README's Python runs, and says what it prints."""

import re
from pathlib import Path

import pytest

from synthfair.data.datasets import configs_folder

README = configs_folder().parent / "README.md"


def test_python_example_prints_what_the_readme_says(capsys):
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (claimed,) = re.findall(r"It prints `(.*?)`", text)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    numbers = [
        [float(n) for n in re.findall(r"0\.\d+", t)] for t in (claimed, capsys.readouterr().out)
    ]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.011)  # three rows of 399 may turn


@pytest.mark.parametrize(
    "path", re.findall(r"\]\((\w+\.md)\)|(configs/[\w/.]+\.toml)", README.read_text())
)
def test_files_that_the_readme_names_exist(path):
    assert (README.parent / Path("".join(path))).is_file()
