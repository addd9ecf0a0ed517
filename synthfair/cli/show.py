"""Consoles and progress bars. Tables go to standard output, all else to standard error."""

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


def say(what: RenderableType) -> None:
    """Print a result; a sentence is not broken, as it may hold a path."""
    what = printable(what) if isinstance(what, str) else what
    _Output().print(what, highlight=False, markup=False, soft_wrap=isinstance(what, str))


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
def distilling_bar() -> Iterator[Callable[..., None]]:
    """Show step, outer objective, covariance and inner gradient norm; fits 80 columns.

    It yields a function of records, step and steps, or of the name of the stage that begins, of at
    most 13 letters.
    """
    title = "distilling"
    with counting_bar(title) as update:

        def show(now: StepRecord | str, step: int = 0, steps: int | None = None) -> None:
            nonlocal title
            state = "preparing"
            if isinstance(now, str):
                title = now
            else:
                state = (
                    f"objective {now.objective[-1]:.4f} cov {now.covariance[-1]:+.4f}"
                    f" grad {now.gradient_norm[-1]:.0e}"
                )
            update(step, steps, state, title)

        yield show


@contextmanager
def stage_bar() -> Iterator[Callable[[str], None]]:
    """Show what is done now, and for how long already; Ctrl-C ends it at once."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=terminal(), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda stage: bar.update(task, description=stage)


@contextmanager
def counting_bar(title: str) -> Iterator[Callable[..., None]]:
    """Yield a function of done, total and a few words, which shows them.

    Another title may follow, from which on it is the bar's.

    The bar is full at the end, also of work that ends early. One that never moved is removed, as
    where an input is refused.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=6),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=terminal(), transient=True)
    task = bar.add_task(title, total=None, state="preparing")

    def update(done: int, total: int | None, state: str, title: str = title) -> None:
        bar.update(task, completed=done, total=total, state=state, description=title)
        bar.live.transient = False

    with bar:
        yield update
        bar.update(task, total=bar.tasks[task].completed)
