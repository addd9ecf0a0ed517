"""docs/command-line.md lists what the parser has."""

import re

from test_help import ALL

from synthfair.cli import GROUPS
from synthfair.cli.options import EXIT_CODES
from synthfair.data.datasets import configs_folder

PAGE = (configs_folder().parent / "docs" / "command-line.md").read_text(encoding="utf-8")


def command_table():
    """Every command with its purpose, as the page has it."""
    lines = ["| to | command | purpose |", "|---|---|---|"]
    for title, group in GROUPS.items():
        first = len(lines)
        for name, module in group.items():
            below = getattr(module, "COMMANDS", {})
            lines += [f"| | `{name}` | {module.HELP} |"]
            lines += [f"| | `{name} {word}` | {one.HELP} |" for word, one in below.items()]
        lines[first] = f"| {title} {lines[first].removeprefix('| ')}"
    return "\n".join(lines)


def test_the_page_lists_every_command_with_its_purpose():
    """If not, put the table that is asserted here into the page."""
    assert command_table() in PAGE
    assert {f"`{name}`" for name in ALL} <= set(re.findall(r"`[^`\n]+`", PAGE))


def test_the_page_has_the_exit_codes():
    found = dict(re.findall(r"^\| (\d+) \| (.*?) \|", PAGE, re.MULTILINE))
    assert found == {str(code): meaning for code, meaning in EXIT_CODES.items()}
