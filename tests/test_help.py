"""What -h and --help say of every command: complete, with examples that parse, and quick."""

import argparse
import re
import shlex
import subprocess
import sys

import pytest

from synthfair.cli import COMMANDS, GROUPS, make_parser
from synthfair.cli.options import EXIT_CODES, Parser, add_config_flags, advanced
from synthfair.config import DistillConfig


def commands_below(parser, name=""):
    """The parser of every command, by the words that lead to it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                yield f"{name} {word}".strip(), command
                yield from commands_below(command, f"{name} {word}".strip())


ALL = dict(commands_below(make_parser()))
each = pytest.mark.parametrize("name", ALL)


def options(parser):
    return [action for action in parser._actions if action.option_strings]


def examples(text):
    """Arguments of each ``python -m synthfair ...``, up to a redirection or a remark."""
    text = re.sub(r"\\\n *", "", text)
    for found in re.findall(r"python -m synthfair[. ](.*)", text):
        yield shlex.split(re.split(r" {3,}| [<>|] ", found)[0])


def test_every_command_is_in_one_group():
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(COMMANDS)
    assert len(set(names)) == len(names)


def test_settings_of_one_kind_of_releases_say_so():
    said = {action.dest: action.help for action in options(ALL["client"])}
    assert all(said[key].startswith("Fair: ") for key in ("rho_o", "max_gap", "n_synthetic"))
    assert all(said[key].startswith("Surrogates: ") for key in ("k_min",))
    assert not any(said[key].startswith(("Fair", "Surr")) for key in ("epsilon", "seed", "data"))
    shown = ALL["client"].format_common_help()
    assert "--k-min" in shown
    assert "--n-candidates" not in shown


def test_the_overview_names_every_command_with_its_purpose_and_loads_no_settings():
    code = (
        "import sys; from synthfair.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'pydantic', 'rich', 'numpy', 'shtab'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, module in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(module.HELP)}$", done.stdout, re.MULTILINE)
    assert all(line == line.rstrip() and len(line) <= 88 for line in done.stdout.splitlines())


@each
def test_a_command_has_an_example_and_all_of_them_parse(name):
    found = list(examples(ALL[name].description))
    assert any(words[: len(name.split())] == name.split() for words in found)
    for words in found:
        make_parser(words).parse_args(words)


def test_an_example_that_does_not_parse_is_seen(capsys):
    (words,) = examples(
        "  python -m synthfair split loanapp \\\n      --output DIR --klients 3   of a bank\n"
    )
    with pytest.raises(SystemExit):
        make_parser(words).parse_args(words)
    assert "--klients" in capsys.readouterr().err


@each
def test_every_option_is_explained_with_its_default(name):
    for action in (a for a in ALL[name]._actions if a.metavar != "COMMAND"):
        assert action.help, action.dest
        assert action.help.endswith("."), action.dest
        if action.option_strings and action.default not in (None, False, argparse.SUPPRESS, ()):
            assert "Default:" in action.help, action.dest


@each
def test_what_must_be_given_is_never_advanced(name):
    shown = ALL[name].format_common_help()
    for action in ALL[name]._actions:
        if action.required and action.metavar != "COMMAND":
            assert (action.option_strings or [action.dest])[0] in shown


@each
def test_help_shows_all_and_names_the_exit_codes(name):
    everything, common = ALL[name].format_help(), ALL[name].format_common_help()
    flags = {action.option_strings[0] for action in options(ALL[name])}
    assert flags <= set(re.findall(r"^  (-{1,2}[\w-]+)", everything, re.MULTILINE))
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in everything
        assert f"{code} {meaning}" in common


def test_the_common_help_of_the_main_command_fits_a_screen_and_a_half():
    """Of 48 lines."""
    assert len(ALL["client"].format_common_help().splitlines()) <= 72
    assert len(ALL["client"].format_help().splitlines()) > 144


@pytest.fixture
def parser():
    """One common option, one advanced, and settings of which one is common."""
    made = Parser(prog="it")
    made.add_argument("--table", required=True, help="A table.")
    advanced(made, "files").add_argument("--ledger", help="A ledger.")
    add_config_flags(made, DistillConfig, common=("rho_o",))
    return made


def test_common_options_come_first(parser):
    shown = parser.format_help()
    places = [shown.index(flag) for flag in ("  --table", "  --rho-o", "  --ledger", "  --clip")]
    assert places == sorted(places)
    assert "advanced files:" in shown


def test_h_leaves_advanced_options_out_and_counts_them(parser, capsys):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["-h"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--rho-o" in shown
    assert "--ledger" not in shown
    assert "--clip" not in shown
    assert f"--help shows {len(DistillConfig.model_fields)} advanced options, too." in shown
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert "--ledger" in capsys.readouterr().out


def test_advanced_options_work_as_others(parser):
    parsed = parser.parse_args(["--table", "t", "--ledger", "l", "--clip", "2"])
    assert (parsed.ledger, parsed.clip) == ("l", 2.0)


def test_an_error_shows_only_what_must_be_given(parser, capsys):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args([])
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == "usage: it --table TABLE [options]"


def test_a_long_usage_is_broken_between_words(capsys):
    lines = ALL["secure plan"].format_usage().splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 and not line.endswith("-") for line in lines)
