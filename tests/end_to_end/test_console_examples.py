"""The commands on docs/getting-started.md run, and print what the page says.

They run in order in an empty folder, as they are typed. Each line of a ``text`` block must be a line
of what the commands before it print, in order: words the same, numbers nearly, or to 3 % where they
are larger. What MASKED finds differs, too, and does not count. README's commands with a dollar are run by
.ci/run; its others are those of docs/own-table.md, which test_page_walks.py runs.

The commands on the pages in PAGES run in a folder of two lenders, command by command: but for those
in NOT_RUN, and shorter where SHORTER says how. A page is added by its name there. Those whose commands
need several parties are in test_page_walks.py.
"""

import os
import re
import shutil

import pandas as pd
import pytest
from comparison import EXAMPLE, same_text
from page_texts import ROOT, TEXT, commands, typed

STARTED = ROOT / "docs" / "getting-started.md"
BLOCK = re.compile(r"^```(console|text|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OF_THE_READER = re.compile(r"\b(?:DIR/|loans\.csv)")
"""Names of files that are the reader's own; such a block cannot run here."""

MASKED = re.compile(r"(?<=sha256)\s+[0-9a-f]+|[\d,]+(?= bytes)|probably (?:below|above)")
"""The last hangs on a decision for one row of a small group."""


def first_not_printed(claimed, printed):
    """The first line of a page that is no line of the output, in order; None if all are."""
    lines = iter(MASKED.sub("", printed).splitlines())
    for line in MASKED.sub("", claimed).splitlines():
        if line.strip() and not any(
            same_text(line, other, tolerance=EXAMPLE, rel=0.03) for other in lines
        ):
            return line
    return None


@pytest.mark.slow
def test_commands_of_getting_started_print_what_it_says(tmp_path):
    compared, printed = 0, ""
    for language, block in BLOCK.findall(TEXT[STARTED]):
        if language == "text" and printed:
            compared += 1
            assert first_not_printed(block, printed) is None, printed
            continue
        printed = ""  # a text block shows what comes just before it
        if language == "console" and not OF_THE_READER.search(block):
            printed = typed(block, tmp_path)
    assert compared == 2


PAGES = ("gaps", "privacy", "rounds", "server", "which-method", "which-release")

NOT_RUN = {
    "gap aggregate gap.json reports/": "needs the reports of 594,505 devices",
    "gap perturb rates.json": "needs the plan, model and rows of a device; tests/measure/test_gap_command.py",
    "answer lenders/refine/1/question.json": "is refused, as the page says; test_refine_files.py",
}
"""Beginnings of commands that cannot run in the folder of two lenders, and why."""

SHORTER = {
    "client --data lenders/client_1_train.csv": "",
    "client --data lenders/": "--steps 100",
    "train adult": "--rounds 2",
    "train people.csv": "--rounds 2",
    "compare law_school --methods single_shot fedavg": "--weights 0 --seeds 1 --methods fedsgd",
    "split law_school --sensitive race --clients 4": "--clients 2",
    "server schools/": "--max-gap 0.2",
}
"""Flags behind the beginnings of commands that take minutes as they stand; of two alike, the last counts."""


def beginning(command, known):
    """What a table says of a command; None if nothing."""
    spaced = " ".join(command.split())
    return next((said for start, said in known.items() if spaced.startswith(start)), None)


@pytest.fixture(scope="module")
def lenders(tmp_path_factory):
    """Two lenders' tables and files, as pages have them, and tables to score and to trust."""
    folder = tmp_path_factory.mktemp("pages")
    typed("python -m synthfair split loanapp --by suffolk --output lenders", folder)
    for i in range(2):
        words = f"--data lenders/client_{i}_train.csv --schema lenders/schema.json --k-min 10"
        words += f" --release surrogate --without-epsilon --output lenders/client_{i}.parquet"
        typed(f"python -m synthfair client {words}", folder)
    rows = pd.read_csv(folder / "lenders" / "client_0_test.csv", dtype=str)
    rows.drop(columns="approve").to_csv(folder / "new.csv", index=False)
    rows.to_csv(folder / "own.csv", index=False)
    rows.assign(id=[i // 2 for i in range(len(rows))]).to_csv(folder / "people.csv", index=False)
    shutil.copy(folder / "lenders" / "schema.json", folder)
    shutil.copytree(ROOT / "configs", folder / "configs")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run(page, lenders, tmp_path):
    """And print what it says, where all commands of a block run as they stand."""
    shutil.copytree(lenders, tmp_path, dirs_exist_ok=True)
    printed = ""
    for language, block in BLOCK.findall(TEXT[ROOT / "docs" / f"{page}.md"]):
        if language == "text" and printed:
            assert first_not_printed(block, printed) is None, printed
        printed, whole = "", True
        for command in commands(block) if language == "console" else ():
            if "adult" in command and not os.environ.get("SYNTHFAIR_DATA"):
                continue
            flags = beginning(command, SHORTER)
            whole = whole and not flags
            if OF_THE_READER.search(command) or beginning(command, NOT_RUN):
                whole = False
                continue
            printed += typed(f"python -m synthfair {command} {flags or ''}", tmp_path)
        printed = printed if whole else ""
