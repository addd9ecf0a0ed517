"""The commands on docs/getting-started.md run, and print what the page says.

They run in order in an empty folder, as they are typed. Each line of a ``text`` block must be a line
of what the commands before it print, in order: words the same, numbers nearly, or to 3 % where they
are larger. What MASKED finds differs, too, and does not count. README's commands with a dollar are run by
.ci/run; test_compare.py compares the table that the second of them prints. Its others are those of
docs/own-table.md, which test_own_table_page.py runs.

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
from page_commands import commands, typed
from page_texts import README, ROOT, TEXT, blocks

STARTED = ROOT / "docs" / "getting-started.md"
BLOCK = re.compile(r"^```(console|text|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OF_THE_READER = re.compile(r"\b(?:DIR/|loans\.csv)")
"""Names of files that are the reader's own; such a block cannot run here."""

MASKED = re.compile(r"(?<=sha256)\s+[0-9a-f]+|[\d,]+(?= bytes)|probably (?:met|missed)")
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


def console(page):
    return [block for language, block in BLOCK.findall(TEXT[page]) if language == "console"]


def test_the_commands_of_the_readme_are_the_first_on_the_page_of_own_tables():
    ours = [command for block in console(README) for command in commands(block)]
    ours = [command for command in ours if not command.startswith("$ ")]
    assert len(ours) == 4
    first, second, *_ = map(commands, console(ROOT / "docs" / "own-table.md"))
    assert (first + second)[:4] == ours


def test_the_last_lines_of_the_server_in_the_readme_are_those_of_the_page():
    """But for the files, as the page asks for more."""
    (ours,) = (block for block in blocks(README, "text") if "lenders/server" in block)
    last = re.sub("^Wrote .*\n", "", ours, flags=re.MULTILINE)
    page = " ".join(TEXT[STARTED].split())
    assert " ".join(last.split()) in page


@pytest.mark.slow
def test_commands_run_and_print_what_the_page_says(tmp_path):
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

ELSEWHERE = {
    "deploy": "test_page_walks.py",
    "deploy-jobs": "test_page_walks.py",
    "getting-started": "above, with what it prints",
    "index": "pip install; .ci/run runs demo",
    "own-table": "test_own_table_page.py",
    "postprocess": "test_page_walks.py",
    "secure": "test_page_walks.py",
}
"""Pages with commands that are run elsewhere, and where."""

NOT_RUN = {
    "gap aggregate gap.json reports/": "needs the reports of 594,505 devices",
    "gap perturb rates.json": "needs the plan, model and rows of a device; test_gap_devices.py",
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


def test_every_page_with_commands_is_run_somewhere():
    with_commands = {page.stem for page in TEXT if page.parent.name == "docs" and console(page)}
    assert with_commands == {*PAGES, *ELSEWHERE}


def test_exceptions_are_of_commands_that_there_are():
    lines = [
        c for page in PAGES for block in console(ROOT / f"docs/{page}.md") for c in commands(block)
    ]
    for start in (*NOT_RUN, *SHORTER):
        assert any(beginning(line, {start: True}) for line in lines), start


@pytest.fixture(scope="module")
def lenders(tmp_path_factory):
    """What docs/getting-started.md makes before its server, and tables to score and to trust."""
    folder = tmp_path_factory.mktemp("pages")
    for block in console(STARTED)[:2]:
        typed(block, folder)
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
