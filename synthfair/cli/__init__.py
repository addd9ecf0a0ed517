"""The command line: parses, calls, prints; no mathematics."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from synthfair import __version__
from synthfair.cli import (
    client,
    compare,
    demo,
    deploy,
    evaluate,
    gap,
    inspect,
    keygen,
    ledger,
    predict,
    report,
    schema,
    secure,
    server,
    split,
    thresholds,
    train,
    weights,
)
from synthfair.errors import InputError, reason
from synthfair.interrupt import INTERRUPTED, interrupt_raises

__all__ = ["client", "main", "run", "server"]

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "split": split,
    "schema": schema,
    "keygen": keygen,
    "client": client,
    "ledger": ledger,
    "inspect": inspect,
    "server": server,
    "predict": predict,
    "evaluate": evaluate,
    "gap": gap,
    "secure": secure,
    "report": report,
    "thresholds": thresholds,
    "weights": weights,
    "train": train,
    "compare": compare,
    "deploy": deploy,
}
"""A command is a module with HELP, DESCRIPTION, add_arguments(parser) and run(args)."""

_EPILOG = """\
the way of the data:
  split or schema -> client (one for each organisation) -> server -> predict, evaluate,
  report; keygen and inspect: who sent a release, and what it holds; gap: how well a
  model serves each group, over devices none of which reveals its group; secure: sums of
  counts over clients whose parts nobody sees

  python -m synthfair demo          sees it all run on a real table, in half a minute
  python -m synthfair COMMAND -h    explains a command, with an example
"""


def main(argv: Sequence[str] | None = None) -> int:
    """All commands; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m synthfair",
        description="Train one group-fair model across organisations that may not share rows.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"synthfair {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        _configure(commands.add_parser(name, help=module.HELP), module)
    return _execute(parser, argv)


def run(module: ModuleType, *, prog: str, argv: Sequence[str] | None = None) -> int:
    """One command by itself, as in ``python -m synthfair.client``; returns the exit code."""
    parser = argparse.ArgumentParser(prog=prog)
    _configure(parser, module)
    return _execute(parser, argv)


def _configure(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    parser.description = module.DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)


def _execute(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    args = parser.parse_args(argv)
    try:
        with interrupt_raises():
            args.run(args)
            _flush()
    except InputError as error:
        return _fail(2, f"error: {error}")
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        _drop_output()
    except OSError as error:
        return _fail(1, f"error: {error.filename or 'output'}: {reason(error)}")
    except KeyboardInterrupt as stop:
        return _fail(INTERRUPTED, f"interrupted: {stop}" if str(stop) else "interrupted")
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed before the process began
            stream.flush()


def _drop_output() -> None:
    """What is not yet written would fail again at the end, with an exit code of Python's own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, message: str) -> int:
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)
    print(shown, file=sys.stderr)  # noqa: T201 - the command line's own voice
    try:
        _flush()
    except BrokenPipeError:
        _drop_output()
    return code
