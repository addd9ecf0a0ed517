"""Kits of parties as their own keys and the engine's commands make them, in this process."""

import os
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from examples import deployment


def nvflare(folder, command):
    """What ``examples.deployment.nvflare`` does, without a process of its own for each command."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")
        from nvflare.cli import run

        patched.setattr(sys, "argv", ["nvflare", *command.split()])
        patched.setattr(sys, "path", [*sys.path])
        patched.setenv("HOME", str(folder))
        printed, before = StringIO(), os.umask(0o077)
        try:
            with chdir(folder), redirect_stdout(printed), redirect_stderr(printed):
                run("nvflare")
        except SystemExit as ended:
            if ended.code:
                pytest.fail(printed.getvalue())
        finally:
            os.umask(before)
    return printed.getvalue()


def make_kits(folder, types):
    """A kit for each name; see ``examples.deployment.make_kits``."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deployment, "nvflare", nvflare)
        return deployment.make_kits(folder, types, 8002)


def prepare(folder):
    """Do what all parties of the example do before their processes start."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deployment, "nvflare", nvflare)
        deployment.prepare(folder, 8002, deployment.unlike_lenders())
