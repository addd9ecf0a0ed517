"""Consoles and progress bars. Tables go to standard output, all else to standard error."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from synthfair.client.distillation import Progress
    from synthfair.distill.hypergradient import StepRecord
    from synthfair.federated.training import OnRounds


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process


def say(what: RenderableType) -> None:
    """Prints a result; a sentence is not broken, as it may hold a path."""
    _Output().print(what, highlight=False, markup=False, soft_wrap=isinstance(what, str))


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    Console(stderr=True).print(f"warning: {message}", highlight=False, markup=False, style="yellow")


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Shows step, outer objective, covariance and inner gradient norm; fits 80 columns."""
    with _bar(title) as update:

        def show(records: StepRecord, step: int, steps: int) -> None:
            state = (
                f"objective {records.objective[-1]:.4f} cov {records.covariance[-1]:+.4f}"
                f" grad {records.gradient_norm[-1]:.0e}"
            )
            update(step, steps, state)

        yield show


@contextmanager
def stage_bar() -> Iterator[Callable[[str], None]]:
    """Shows what is done now, and for how long already; Ctrl-C ends it at once."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda stage: bar.update(task, description=stage)


@contextmanager
def round_bar() -> Iterator[OnRounds]:
    """Shows the round, and a few words about its state."""
    with _bar("training") as update:
        yield update


@contextmanager
def _bar(title: str) -> Iterator[OnRounds]:
    """Yields a function of done, total and a few words, which shows them and handles Ctrl-C."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=6),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with (
        deferred_interrupt() as interrupt,
        Progress(*columns, console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task(title, total=None, state="compiling")

        def update(done: int, total: int, state: str) -> None:
            bar.update(task, completed=done, total=total, state=state)
            interrupt()

        yield update


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Yields a function that raises KeyboardInterrupt if Ctrl-C was pressed since the start.

    Until that is called, Ctrl-C is only noted, as XLA cannot be stopped while it compiles. Pressed
    again, it ends the process as the system does.
    """
    pressed = False

    def note(_signal: int, _frame: object) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def interrupt() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
