"""The output of commands: results on standard output, all else on standard error."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from synthfair.errors import printable

if TYPE_CHECKING:
    from synthfair.distill.problem import StepRecord


_VARYING = re.compile(r"^\S+: |'[^']*'|[\d.,]*\d")
"""The parts in which warnings of one kind may differ: the file, names in quotes, numbers."""

_drawn = threading.Event()
"""Set where a bar says what a command does."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process


def say(result: RenderableType, *, whole: bool = False) -> None:
    """Print a result; sentences are broken between words, but a path or command may be whole."""
    console = _Output()
    if isinstance(result, str):
        result = printable(result) if whole else _filled(result, console.width)
    console.print(result, highlight=False, markup=False, soft_wrap=isinstance(result, str))


def _filled(text: str, width: int) -> str:
    """Return lines that are broken between words; a word that is longer stays whole."""
    lines = printable(text).splitlines()
    breaks = TextWrapper(max(width, 20), break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(breaks.fill, lines))


def note(text: str, style: str | None = None) -> None:
    """Print on standard error what is no result, in a style of rich."""
    console = Console(stderr=True)
    text = _filled(text, console.width)
    console.print(text, highlight=False, markup=False, style=style, soft_wrap=True)


def warn(*messages: str | None) -> None:
    """Print warnings on standard error, of those that there are: of each kind one, and how many."""
    kinds: dict[str, list[str]] = {}
    for message in filter(None, messages):
        kinds.setdefault(_VARYING.sub("", message), []).append(message)
    for first, *others in kinds.values():
        names = [" ".join(re.findall(r"^\S+(?=: )|'[^']*'", other)[:2]) for other in others]
        of = f": {', '.join(dict.fromkeys(names))}" if all(names) else ""
        more = f" ({len(others)} more such warnings{of})" if others else ""
        note(f"warning: {first}{more}", "yellow")


@contextmanager
def saying(words: str, after: float = 3.0) -> Iterator[None]:
    """Say on a terminal what is done, once that has taken some seconds and no bar says it."""

    def tell() -> None:
        if not _drawn.is_set():
            console = terminal()
            console.print(_filled(words, console.width), highlight=False, markup=False)

    _drawn.clear()
    timer = threading.Timer(after, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def conclude(sentence: str | None, files: Iterable[object], following: str) -> None:
    """Say how a command ends: the report's sentence, the files written, and the next command."""
    if sentence:
        say(sentence)
    if names := ", ".join(map(str, files)):
        say(f"Wrote {names}.")
    say(f"Next: {following}", whole=True)


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
    console = terminal()
    if not console.quiet:
        _drawn.set()
    with Progress(*columns, console=console, transient=True) as bar:
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
