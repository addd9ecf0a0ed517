"""``python -m synthfair completion``: completion of commands and options by the shell."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from synthfair.errors import InputError

HELP = "print a script by which the shell completes commands, options and files"

DESCRIPTION = """\
Print the script by which a shell completes the command synthfair: its commands, options,
choices and file names. Needs the extra synthfair[completion].

  python -m synthfair completion bash > ~/.local/share/bash-completion/completions/synthfair
  python -m synthfair completion zsh > ~/.zfunc/_synthfair    with ~/.zfunc in $fpath
  python -m synthfair completion fish > ~/.config/fish/completions/synthfair.fish
  python -m synthfair completion tcsh > ~/.synthfair.tcsh     then source it in ~/.tcshrc
"""

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="The shell that is to complete.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    try:
        import shtab
    except ImportError as error:
        raise InputError(
            "completion needs the package shtab: pip install 'synthfair[completion]'"
        ) from error
    from synthfair.cli import make_parser

    parser = make_parser(prog="synthfair")
    _complete_files(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, args.shell) + "\n")


def _complete_files(parser: argparse.ArgumentParser, how: object) -> None:
    """Marks what takes a path, here and in the commands below; shtab reads the mark."""
    for action in parser._actions:
        if action.type is Path:
            action.complete = how  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, how)
