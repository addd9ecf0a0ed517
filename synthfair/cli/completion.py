"""``python -m synthfair completion``: completion of commands and options by the shell."""

from __future__ import annotations

import sys
from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish", "powershell"], /) -> None:
    r"""Print a script by which the shell completes commands and options.

    It completes those of the command synthfair: its commands, options, choices and file names.

        python -m synthfair completion bash \
            > ~/.local/share/bash-completion/completions/synthfair
        python -m synthfair completion zsh > ~/.zfunc/_synthfair
        python -m synthfair completion fish \
            > ~/.config/fish/completions/synthfair.fish

    For zsh, ~/.zfunc must be in $fpath.

    Args:
        shell: The shell that is to complete.
    """
    from synthfair.cli import make_app

    sys.stdout.write(make_app().generate_completion(prog_name="synthfair", shell=shell) + "\n")
