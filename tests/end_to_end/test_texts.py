"""README, docs/ and CONTRIBUTING: their commands, links and names exist.

Their Python runs in test_examples.py.
"""

import re
import shlex
from itertools import takewhile

import pytest
from comparison import same_text
from configured_runs import RUNS
from page_texts import DOCS, PAGES, README, ROOT, TEXT, blocks, prose
from parsed_commands import ALL, parsed

import synthfair as sf
from benchmarks import texts
from synthfair.cli import main
from synthfair.data.schema import parse_schema
from synthfair.federated import METHODS
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
def test_python_that_is_only_shown_is_python(page):
    for code in blocks(page, "py"):
        compile(code, page.name, "exec")


@each_page
def test_commands_parse(page):
    for arguments in commands(page):
        assert parsed(arguments)[0].__module__.startswith("synthfair.cli.")


def test_flags_in_the_text_exist(capsys):
    for command in (*ALL, *(f"train --method {method}" for method in METHODS)):
        assert main([*command.split(), "--help"]) == 0
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) | {"--help", "--version"}
    code = [span for page in (README, *DOCS) for span in re.findall(r"`([^`]+)`", prose(page))]
    assert {flag for span in code for flag in re.findall(r"--[a-z-]+", span)} <= known


@each_page
def test_names_of_the_library_exist(page):
    for name in set(re.findall(r"\bsf((?:\.\w+)+)", TEXT[page])):
        found = sf
        for part in name[1:].split("."):
            found = getattr(found, part)


@each_page
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@each_page
def test_files_and_modules_that_are_named_exist(page):
    for path in re.findall(
        r"\b(?:configs|examples|tests|synthfair)/[\w/]*\w(?:\.\w+)?", TEXT[page]
    ):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"python -m (benchmarks[\w.]*|tests[\w.]*)", TEXT[page]):
        module = ROOT / name.rstrip(".").replace(".", "/")
        assert module.is_dir() or module.with_suffix(".py").exists(), name


def test_the_table_of_rooms_names_all_of_them_and_files_that_exist():
    rooms = set()
    for row in re.findall(r"^\|.*\|$", TEXT[ROOT / "CONTRIBUTING.md"], re.MULTILINE):
        names = re.findall(r"`([\w/]+(?:/|\.py))`", row)
        folders = [ROOT, *(ROOT / name for name in names if name.endswith("/"))]
        for name in names:
            assert any((folder / name).exists() for folder in folders), name
        rooms |= {*folders}
    assert {init.parent for init in (ROOT / "synthfair").glob("*/__init__.py")} <= rooms


@each_page
def test_numbers_are_those_of_the_committed_runs(page):
    """If not: python -m benchmarks texts."""
    assert same_text(TEXT[page], texts.with_results(TEXT[page]))


def test_costs_of_an_epsilon_that_a_client_warns_of_are_those_of_the_committed_runs():
    """If not: python -m benchmarks texts writes them into docs/privacy.md; put them into EPSILON_COSTS."""
    for kind, cost in EPSILON_COSTS.items():
        assert f"| {kind} | {cost} |" in texts.block("decision")


def test_a_block_with_another_number_is_seen():
    page = ROOT / "docs" / "which-release.md"
    start = TEXT[page].index("<!-- results: unlike -->")
    (number, *_) = re.findall(r"0\.\d{3}", TEXT[page][start:])
    altered = TEXT[page][:start] + TEXT[page][start:].replace(number, "0.123", 1)
    assert same_text(TEXT[page], texts.with_results(altered))
    assert not same_text(altered, texts.with_results(altered))


def test_limits_of_the_configurations_are_those_that_are_verified():
    rows = re.findall(
        r"^\| (?:Law School|Dutch) \| \w+ \| (\d) \| (\S+) \| (\S+) \|$",
        TEXT[ROOT / "docs" / "results.md"], re.MULTILINE,
    )  # fmt: skip
    assert [tuple(map(float, row)) for row in rows] == [one[2:] for one in RUNS.values()]


def test_the_example_of_a_schema_is_one():
    (text,) = blocks(ROOT / "docs" / "own-table.md", "json")
    assert parse_schema(text, source="the example").groups[:2] == ("female", "male")


def test_the_citation_is_of_this_version():
    assert f"\nversion: {sf.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_readme_is_short_and_has_two_command_lines():
    """.ci/run runs the lines that start with a dollar."""
    lines = TEXT[README].splitlines()
    assert len(lines) <= 150
    assert sum(line.startswith("$ ") for line in lines) == 2
