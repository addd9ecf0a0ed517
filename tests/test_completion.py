"""The shell completes commands, options, choices and files."""

import subprocess
import sys

import pytest

from synthfair.cli import COMMANDS, main
from synthfair.cli.completion import SHELLS


@pytest.fixture
def complete(tmp_path, capsys):
    """What bash offers for the last of some words, in a folder with one file."""
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "loans.csv").touch()
    ask = 'COMPREPLY=(); _shtab_synthfair synthfair "${@: -1}"; printf "%s\\n" "${COMPREPLY[@]}"'

    def offered(*words):
        code = f'source ./script; COMP_WORDS=(synthfair "$@"); COMP_CWORD=$#; {ask}'
        done = subprocess.run(
            ["bash", "-c", code, "bash", *words],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    return offered


def test_bash_offers_commands_options_choices_and_files(complete):
    assert complete("comp") == ["compare", "completion"]
    assert complete("gap", "p") == ["plan", "perturb"]
    assert complete("client", "--rho") == ["--rho-o", "--rho-s"]
    assert complete("client", "--notion", "equal") == ["equal_opportunity", "equalized_odds"]
    assert complete("client", "--data", "lo") == ["loans.csv"]
    assert complete("secure", "share", "--data", "lo") == ["loans.csv"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_with_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_without_the_extra_it_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'synthfair[completion]'" in capsys.readouterr().err
