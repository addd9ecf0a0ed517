"""The shell completes commands, options, choices and files."""

import subprocess

import pytest

from synthfair.cli import COMMANDS, main

NAMES = [path.split(":")[1] for group in COMMANDS.values() for path in group]


@pytest.fixture
def complete(tmp_path, capsys):
    """What bash offers for the last of some words, in a folder with one file."""
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "loans.csv").touch()

    def offered(*words):
        code = (
            'source ./script; COMP_WORDS=(synthfair "$@"); COMP_CWORD=$#; COMPREPLY=();'
            ' $(complete -p synthfair | sed "s/.*-F \\([^ ]*\\) .*/\\1/");'
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", code, "bash", *words],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    return offered


def test_bash_offers_commands_options_choices_and_files(complete):
    assert sorted(complete("comp")) == ["compare", "completion"]
    assert sorted(complete("gap", "p")) == ["perturb", "plan"]
    assert complete("client", "--rho") == ["--rho-o"]
    offered = complete("client", "--notion", "equal")
    assert sorted(offered) == ["equal_opportunity", "equalized_odds"]
    assert complete("client", "--data", "lo") == ["loans.csv"]
    assert complete("secure", "share", "--data", "lo") == ["loans.csv"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_has_a_script_with_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in NAMES)
