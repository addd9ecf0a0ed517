"""What --help says of every command: complete, with examples that parse, and quick."""

import io
import re
import shlex
from contextlib import redirect_stdout
from typing import get_args

import pytest
from cyclopts import App, CycloptsError

from synthfair.cli import COMMANDS, EXIT_CODES, main, make_app
from synthfair.cli.train import Method

ABOVE = ("gap", "secure", "deploy")
"""Commands that only hold others."""


def commands_below(above, name=""):
    """Every command, by the words that lead to it."""
    for word in above:
        if not word.startswith("-"):
            command = above[word]
            yield f"{name} {word}".strip(), command
            yield from commands_below(command, f"{name} {word}".strip())


APP = make_app()
ALL = dict(commands_below(APP))
each = pytest.mark.parametrize("name", ALL)


@pytest.fixture(scope="module")
def helps():
    """What a terminal of 80 columns shows of each command."""
    shown = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name in ALL:
            with redirect_stdout(io.StringIO()) as said:
                assert main([*name.split(), "--help"]) == 0
            shown[name] = said.getvalue()
    return shown


def words_of(shown):
    """Help without the frames of its panels, and where lines end."""
    return " ".join(shown.replace("│", " ").split())


def examples(text):
    """Arguments of each ``python -m synthfair ...``, up to a redirection."""
    text = re.sub(r"\\\n *", "", text)
    for found in re.findall(r"^ {4}(?:\S+ \| )?python -m synthfair[. ](.*)", text, re.MULTILINE):
        yield shlex.split(re.split(r" [<>|] | {2,}", found)[0])


def parsed(words):
    return make_app(words).parse_args(words, exit_on_error=False, print_error=False)


@each
def test_a_page_has_at_most_twenty_flags(name):
    if name in ABOVE:
        return
    flags = [flag.name for flag in ALL[name].assemble_argument_collection() if flag.show]
    assert len([flag for flag in flags if flag.startswith("--")]) <= 20, flags


@pytest.mark.parametrize("method", get_args(Method))
def test_the_page_of_a_method_has_its_settings_alone(method, capsys):
    assert main(["train", "--method", method, "--help"]) == 0
    flags = re.findall(r"^│ \*? *--([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert {"rounds", "seed"} <= {*flags}
    assert len(flags) <= 20
    assert "output" not in flags


def test_the_overview_names_every_command_with_its_purpose(capsys):
    assert main(["--help"]) == 0
    said = words_of(capsys.readouterr().out)
    for title, group in COMMANDS.items():
        assert f"─ {title} ─" in said
        for name in (path.split(":")[1] for path in group):
            assert f"{name} {ALL[name].help.splitlines()[0]}" in said


@each
def test_a_command_has_an_example_and_all_of_them_parse(name, helps):
    found = list(examples(helps[name]))
    assert any(words[: len(name.split())] == name.split() for words in found)
    for words in found:
        assert words[-1] == "--help" or parsed(words)[0].__name__ != "help_print"


def test_an_example_that_does_not_parse_is_seen():
    (words,) = examples(
        "    python -m synthfair split loanapp \\\n      --output DIR --klients 3\n"
    )
    with pytest.raises(CycloptsError, match="Did you mean --clients"):
        parsed(words)


@each
def test_everything_is_explained_and_each_flag_is_in_the_help(name, helps):
    if name in ABOVE:
        return
    shown = helps[name]
    for argument in ALL[name].assemble_argument_collection(parse_docstring=True):
        if argument.children or not argument.show:
            continue
        assert argument.parameter.help, argument.name
        assert argument.parameter.help.endswith("."), argument.name
        assert re.search(
            rf"^│ .*{argument.name.lstrip('-')}\b", shown, re.MULTILINE | re.IGNORECASE
        )


@each
def test_help_fits_a_terminal_and_names_the_exit_codes(name, helps):
    shown = helps[name]
    assert all(len(line) <= 80 for line in shown.splitlines())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in shown


def test_a_command_is_explained_by_its_docstring_and_a_group_by_its_commands(helps):
    assert "The release file to write. [required]" in words_of(helps["client"])
    assert "Settings of fair releases" in helps["client"]
    assert "Find the clients, epsilon or precision" in helps["gap"]
    assert isinstance(ALL["gap"], App)
