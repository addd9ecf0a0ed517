"""README, docs/ and CONTRIBUTING: their links and files exist, and their numbers are measured.

Their Python runs in test_examples.py, their commands in test_console_examples.py.
"""

import re
import shlex
from itertools import takewhile

import pytest
from comparison import same_text
from page_texts import PAGES, ROOT, TEXT, blocks, prose
from parsed_commands import parsed

from benchmarks import texts
from synthfair.report.release_tables import EPSILON_COSTS

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: "/".join(page.parts[-2:]))


def commands(page):
    """Arguments of each ``python -m synthfair ...`` in the blocks of commands."""
    for block in blocks(page, "console"):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        for part in (part for line in lines for part in line.removeprefix("$ ").split(" && ")):
            words = list(takewhile(lambda word: word not in "<>|", shlex.split(part)))
            if words[:2] == ["python", "-m"] and words[2].split(".")[0] == "synthfair":
                yield words[2].split(".")[1:] + words[3:]


def anchors(page):
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@each_page
def test_commands_of_a_page_parse(page):
    for arguments in commands(page):
        assert parsed(arguments)[0].__module__.startswith("synthfair.cli.")


@each_page
def test_links_of_a_page_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"
    for path in re.findall(
        r"\b(?:configs|examples|tests|synthfair)/[\w/]*\w(?:\.\w+)?", TEXT[page]
    ):
        assert (ROOT / path).exists(), path


@each_page
def test_numbers_of_a_page_are_those_of_the_committed_runs(page):
    """If not: python -m benchmarks texts."""
    assert same_text(TEXT[page], texts.with_results(TEXT[page]))


def test_numbers_that_a_client_warns_of_are_those_of_the_committed_runs():
    """If not: python -m benchmarks texts writes them into docs/privacy.md; put them into EPSILON_COSTS."""
    for kind, cost in EPSILON_COSTS.items():
        assert f"| {kind} | {cost} |" in texts.block("decision")
