"""What --help says of every command: each flag, and examples that parse."""

import inspect
import re
import shlex
from typing import get_args

import pytest
from parsed_commands import ALL, parsed

from synthfair.cli import main
from synthfair.cli.train import Method
from synthfair.federated import METHODS


def examples(text):
    """Arguments of each ``python -m synthfair ...``, up to a redirection."""
    text = re.sub(r"\\\n *", "", text)
    for found in re.findall(r"^ {4}(?:\S+ \| )?python -m synthfair[. ](.*)", text, re.MULTILINE):
        yield shlex.split(re.split(r" [<>|] | {2,}", found)[0])


@pytest.mark.parametrize("name", ALL)
def test_help_of_a_command_has_examples_that_parse(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    found = list(examples(shown))
    assert any(words[: len(name.split())] == name.split() for words in found)
    for words in found:
        assert words[-1] == "--help" or parsed(words)[0].__name__ != "help_print"


@pytest.mark.parametrize("method", METHODS)
def test_help_with_a_method_has_its_settings_alone(method, capsys):
    assert main(["train", "--method", method, "--help"]) == 0
    page = capsys.readouterr().out
    assert inspect.getdoc(METHODS[method]).splitlines()[0] in " ".join(page.split())
    assert not re.search(r"^│ --[A-Za-z-]+( INT| FLOAT)? +\[default", page, re.MULTILINE)
    shown = re.findall(r"^│ --([A-Za-z-]+)", page, re.MULTILINE)
    fields = {name.lower() for name in METHODS[method].model_fields if METHODS[method].reads(name)}
    assert {name.replace("-", "_").lower() for name in shown} == fields - {"method", "start"}
    assert len(shown) <= 20


def test_flags_of_train_are_the_settings_of_its_method():
    assert get_args(Method) == tuple(METHODS)
    words = "train loanapp --output o --method privfairfl_pre --epsilon 1 --no-group-input"
    _, given, _ = parsed([*words.split(), "--hidden", "3", "2"])
    expected = {"epsilon": 1.0, "group_input": False, "hidden": (3, 2)}
    assert given.arguments["method"] == "privfairfl_pre"
    assert given.arguments["settings"] == expected
