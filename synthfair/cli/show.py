"""The output of commands: results on standard output, all else on standard error."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from synthfair.errors import printable

if TYPE_CHECKING:
    from synthfair.distill.problem import StepRecord


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process


def say(result: RenderableType) -> None:
    """Print a result; a sentence is not broken, as it may hold a path."""
    result = printable(result) if isinstance(result, str) else result
    _Output().print(result, highlight=False, markup=False, soft_wrap=isinstance(result, str))


def warn(*messages: str | None) -> None:
    """Print warnings on standard error, of those that there are."""
    for message in filter(None, messages):
        text = f"warning: {printable(message)}"
        Console(stderr=True).print(text, highlight=False, markup=False, style="yellow")


def conclude(sentence: str | None, files: Iterable[object], following: str) -> None:
    """Say how a command ends: the report's sentence, the files written, and the next command."""
    if sentence:
        say(Text(printable(sentence)))  # broken between words
    if names := ", ".join(map(str, files)):
        say(f"Wrote {names}.")
    say(f"Next: {following}")


def command(*words: object) -> str:
    """Return a command of this package, as it is typed."""
    return shlex.join(["python", "-m", "synthfair", *map(str, words)])


def opening(page: Path) -> str:
    """Return the command that opens a page on this system."""
    program = {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")
    return shlex.join([program, str(page)])


def terminal() -> Console:
    """Return standard error for bars, which are drawn on a terminal alone, never in a log."""
    console = Console(stderr=True)
    console.quiet = not console.is_interactive
    return console


@contextmanager
def stage_bar(title: str = "starting") -> Iterator[Callable[[str], None]]:
    """Show what is done now, and for how long already; it is gone at the end."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    stage = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), stage, TimeElapsedColumn()
    with Progress(*columns, console=terminal(), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda stage: bar.update(task, description=stage)


@contextmanager
def counting_bar(title: str) -> Iterator[Callable[[int, int | None, str], None]]:
    """Show how much is done of how much, and a few words."""
    with stage_bar(title) as show:
        yield lambda done, total, state: show(f"{title} {done:,}/{total or 0:,} {state}")


def distilling(now: StepRecord, step: int, steps: int) -> str:
    """Return a step in words, which fit 80 columns."""
    return (
        f"distilling {step}/{steps} objective {now.objective[-1]:.4f} cov {now.covariance[-1]:+.4f}"
        f" grad {now.gradient_norm[-1]:.0e}"
    )
