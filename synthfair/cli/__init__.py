"""One group-fair model of organisations that may not share rows.

In short:

    python -m synthfair demo              shows it all on a real table
    python -m synthfair COMMAND --help    explains a command
"""

# A command is a typed function, which parses, calls, prints; no mathematics.

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.help import DefaultFormatter

from synthfair import __version__
from synthfair.cli.parameters import converted, shown_default
from synthfair.cli.show import saying, warn
from synthfair.errors import InputError, printable, reason

__all__ = ["main", "make_app"]

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130

EXIT_CODES = {
    DONE: "done",
    FAILED: "system error",
    REFUSED: "input or result refused",
    INTERRUPTED: "Ctrl-C",
}
"""The meanings of the exit codes of every command."""

COMMANDS = {
    "Get started": ("first_steps:demo", "first_steps:split", "first_steps:schema"),
    "Make a release": (
        "client:client", "answer:answer", "releases:keygen", "releases:inspect", "releases:ledger",
    ),
    "Pool and evaluate": ("server:server", "server:evaluate", "models:predict", "models:report"),
    "Run a federation": ("deploy:deploy",),
    "Train in rounds, compare": ("train:train", "compare:compare"),
    "Measure gaps over devices": ("gap:gap",),
    "Sum counts, and use them": ("secure:secure", "decisions:thresholds"),
}  # fmt: skip
"""Commands by what people do with them: module and function.

A command is imported when it is run or explained, so that the others take no time.
"""

GROUPS = {title: Group.create_ordered(title) for title in COMMANDS}
"""Made once: an application that is a module's own keeps the group of the first that holds it."""


class Help(DefaultFormatter):
    """The layout of help by cyclopts, but for examples, which can be copied as they stand."""

    def render_description(self, console: Any, options: Any, description: Any) -> None:  # noqa: ARG002
        """Print the docstring, whose indented paragraphs are examples."""
        for paragraph in description.primary_renderable.markup.split("\n\n"):
            is_example = paragraph.startswith("    ")
            text = paragraph if is_example else " ".join(paragraph.split())
            console.print(f"{text}\n", markup=False, highlight=False, soft_wrap=is_example)


def make_app(argv: Sequence[str] = ()) -> App:
    """Return the application for some words; the flags of ``train`` depend on them."""
    codes = ((str(code), meaning) for code, meaning in EXIT_CODES.items())
    app = App(
        name="python -m synthfair",
        version=__version__,
        help=__doc__,
        help_epilogue=f"Exit codes: {', '.join(map(' '.join, codes))}.",
        help_format="markdown",  # of which a paragraph is broken between words
        help_formatter=Help(),
        default_parameter=Parameter(
            allow_repeating=True,  # of one value the last counts; several add up
            converter=converted,
            consume_multiple=(1, None),  # --data a.csv b.csv
            negative=(),
            show_default=shown_default,
        ),
    )
    for title, commands in COMMANDS.items():
        for path in commands:
            name, command = path.split(":")[1], f"synthfair.cli.{path}"
            if name == "train" == "".join(argv[:1]):
                from synthfair.cli import train

                app.command(train.command(argv), name=name, group=GROUPS[title])
            else:
                app.command(command, name=name, group=GROUPS[title])
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    app = make_app(argv)
    if argv[:1] in (["-h"], ["--help"]):
        for word in app:
            app[word]  # is imported: the overview has each command's own words
    try:
        run, bound, _ = app.parse_args(argv, exit_on_error=False, print_error=False)
        if run.__name__ == "help_print" and not {"-h", "--help"} & {*argv}:
            return _fail(REFUSED, "error: name a command; --help shows all of them")
        work = (run.__doc__ or run.__name__).partition("\n")[0].removesuffix(".")
        given: list[str] = []
        with saying(f"This takes a while ({work})."), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: given.append(str(message))
            try:
                run(*bound.args, **bound.kwargs)
            finally:
                warn(*given)
        _flush()
    except (InputError, CycloptsError) as error:
        flags = [f" (--{name.replace('_', '-')})" for name in getattr(error, "arguments", ())]
        return _fail(REFUSED, f"error: {error}{''.join(flags)}")
    except EOFError:  # Ctrl-D where the client asks whether to go on
        return _fail(REFUSED, "error: no release is made")
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
    """Drop output not written yet: it would fail again at the end, with Python's exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, message: str) -> int:
    print(printable(message), file=sys.stderr)  # noqa: T201 - the command line's own voice
    try:
        _flush()
    except BrokenPipeError:
        _drop_output()
    return code
