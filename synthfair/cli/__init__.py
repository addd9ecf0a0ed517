"""The command line: parses, calls, prints; no mathematics."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from types import ModuleType

from synthfair import __version__
from synthfair.cli import (
    client,
    compare,
    completion,
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
from synthfair.cli.options import (
    DONE,
    FAILED,
    REFUSED,
    Parser,
    add_commands,
    configure,
)
from synthfair.errors import InputError, reason
from synthfair.interrupt import INTERRUPTED, interrupt_raises

__all__ = ["client", "main", "run", "server"]

GROUPS: dict[str, dict[str, ModuleType]] = {
    "get started": {"demo": demo, "split": split, "schema": schema},
    "make a release": {"client": client, "keygen": keygen, "inspect": inspect, "ledger": ledger},
    "pool and evaluate": {
        "server": server,
        "evaluate": evaluate,
        "predict": predict,
        "report": report,
    },
    "run a federation": {"deploy": deploy},
    "train in rounds, compare": {"train": train, "compare": compare},
    "measure gaps over devices": {"gap": gap},
    "sum counts, and use them": {"secure": secure, "thresholds": thresholds, "weights": weights},
    "the command line itself": {"completion": completion},
}
"""Commands by what people do with them."""

COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}


class _Overview(Parser):
    def format_help(self) -> str:
        """All commands, group by group."""
        lines = [self.format_usage(), f"{self.description}\n"]
        for title, commands in GROUPS.items():
            lines += [f"{title}:", *(f"  {n:<12}{m.HELP}" for n, m in commands.items()), ""]
        lines += [
            "python -m synthfair demo            shows it all on a real table, in half a minute",
            "python -m synthfair COMMAND -h      explains a command; --help shows all its options",
            "python -m synthfair --version       prints the version",
            f"\n{self.epilog}\n",
        ]
        return "\n".join(lines)


def make_parser(
    names: Collection[str] = tuple(COMMANDS), *, prog: str = "python -m synthfair"
) -> Parser:
    """Of all commands, of which those in ``names`` have their options."""
    parser = _Overview(
        prog=prog,
        description="Train one group-fair model across organisations that may not share rows.",
    )
    parser.add_argument("--version", action="version", version=f"synthfair {__version__}")
    add_commands(parser, COMMANDS, names)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """All commands; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    return _execute(make_parser(argv), argv)


def run(module: ModuleType, *, prog: str, argv: Sequence[str] | None = None) -> int:
    """One command by itself, as in ``python -m synthfair.client``; returns the exit code."""
    parser = Parser(prog=prog)
    configure(parser, module)
    return _execute(parser, argv)


def _execute(parser: Parser, argv: Sequence[str] | None) -> int:
    args = parser.parse_args(argv)
    try:
        with interrupt_raises():
            args.run(args)
            _flush()
    except InputError as error:
        return _fail(REFUSED, f"error: {error}")
    except EOFError:  # Ctrl-D at a question
        return _fail(REFUSED, "error: the answers end before the questions")
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        _drop_output()
    except OSError as error:
        return _fail(FAILED, f"error: {error.filename or 'output'}: {reason(error)}")
    except KeyboardInterrupt as stop:
        return _fail(INTERRUPTED, f"interrupted: {stop}" if str(stop) else "interrupted")
    return DONE


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
