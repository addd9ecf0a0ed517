"""Pages list what the command line, and configuration files, have."""

import re

import pytest
from test_help import ALL

from synthfair.cli import COMMANDS, EXIT_CODES
from synthfair.data.datasets import configs_folder
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.settings import ServerConfig

PAGE = (configs_folder().parent / "docs" / "command-line.md").read_text(encoding="utf-8")


def command_table():
    """Every command with its purpose, as the page has it."""
    lines = ["| to | command | purpose |", "|---|---|---|"]
    for title, group in COMMANDS.items():
        first = len(lines)
        for name in (path.split(":")[1] for path in group):
            for words, command in ALL.items():
                if words == name or words.startswith(f"{name} "):
                    lines += [f"| | `{words}` | {command.help.splitlines()[0]} |"]
        lines[first] = f"| {title} {lines[first].removeprefix('| ')}"
    return "\n".join(lines)


def test_the_page_lists_every_command_with_its_purpose():
    """If not, put the table that is asserted here into the page."""
    assert command_table() in PAGE


def test_the_page_has_the_exit_codes():
    found = dict(re.findall(r"^\| (\d+) \| (.*?) \|", PAGE, re.MULTILINE))
    assert found == {str(code): meaning for code, meaning in EXIT_CODES.items()}


@pytest.mark.parametrize(
    ("page", "settings"),
    [("method", DistillConfig), ("method", SurrogateConfig), ("server", ServerConfig)],
)
def test_every_key_of_a_configuration_file_is_on_its_page(page, settings):
    text = (configs_folder().parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for key in settings.model_fields:
        assert f"`{key}`" in text or f"`--{key.replace('_', '-')}`" in text, key
