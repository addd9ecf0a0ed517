"""The commands on docs/getting-started.md run, and print what the page says; README has some of them.

They run in order in an empty folder, as they are typed. Each line of a ``text`` block must be a line
of what the commands before it print, in order: words the same, numbers to TOLERANCE, or to 3 % where
they are larger, since two of the 84 rows of the smallest group may be decided otherwise on another
machine. Sizes and sha256 differ, too, and do not count. README's commands with a dollar are run by
.ci/run; test_compare.py compares the table that the second of them prints.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_examples import same_output
from test_texts import README, ROOT, TEXT

STARTED = ROOT / "docs" / "getting-started.md"
BLOCK = re.compile(r"^```(console|text|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TOLERANCE = 0.03
OF_THE_READER = re.compile(r"\b(?:DIR/|loans\.csv)")
"""Names of files that are the reader's own; such a block cannot run here."""

MASKED = re.compile(r"(?<=sha256)\s+[0-9a-f]+|[\d,]+(?= bytes)")


def first_not_printed(claimed, printed):
    """The first line of a page that is no line of the output, in order; None if all are."""
    lines = iter(MASKED.sub("", printed).splitlines())
    for line in MASKED.sub("", claimed).splitlines():
        if line.strip() and not any(
            same_output(line, other, TOLERANCE, rel=0.03) for other in lines
        ):
            return line
    return None


def console(page):
    return [block for language, block in BLOCK.findall(TEXT[page]) if language == "console"]


def test_the_commands_of_the_readme_are_those_of_the_page():
    """But for flags at the end."""
    ours, theirs = (
        [command for block in console(page) for command in block.replace("\\\n", "").splitlines()]
        for page in (README, STARTED)
    )
    ours = [command for command in ours if not command.startswith("$ ")]
    assert len(ours) == 4
    assert all(any(other.startswith(command) for other in theirs) for command in ours)


@pytest.mark.slow
def test_commands_run_and_print_what_the_page_says(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    compared, printed = 0, ""
    for language, block in BLOCK.findall(TEXT[STARTED]):
        if language == "text" and printed:
            compared += 1
            assert first_not_printed(block, printed) is None, printed
            continue
        printed = ""  # a text block shows what comes just before it
        if language == "console" and not OF_THE_READER.search(block):
            command = ["bash", "-euo", "pipefail", "-c", block]
            done = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block}\n{done.stderr}"
            printed = done.stdout
    assert compared == 4


PRINTED = "rows 800 of 211\nfile a.parquet (282,842 bytes)\nsha256 b65c02\n   4f\naccuracy 0.91\n"


@pytest.mark.parametrize(
    ("claimed", "missing"),
    [
        ("file a.parquet (282,900 bytes)\naccuracy   0.93\n", None),
        ("sha256 b65c03\naccuracy 0.91", None),
        ("accuracy 0.95\n", "accuracy 0.95"),
        ("accuracy 0.91\nrows 800 of 211\n", "rows 800 of 211"),  # in another order
        ("rows 900 of 211\n", "rows 900 of 211"),
        ("precision 0.91\n", "precision 0.91"),
    ],
)
def test_lines_that_are_not_printed_are_found(claimed, missing):
    assert first_not_printed(claimed, PRINTED) == missing
