"""Ctrl-C is one line and exit code 130 at any moment, also while modules are imported."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # importing typing takes as long as all else before Ctrl-C is cared for
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

INTERRUPTED = 130
"""Exit code: 128 and the number of the signal, as shells have it."""


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the process at once from now on; where it was ignored, it stays ignored.

    No exception is raised: in the middle of an import it would pass through compiled modules that
    are half made. Those of jaxlib then end the process with a segmentation fault, or abort it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)
        sys.unraisablehook = _send_again


@contextmanager
def interrupt_raises() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, so that a command can tidy up; not in imports."""
    if signal.getsignal(signal.SIGINT) is not _exit:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _exit)


def _raise(number: int, frame: FrameType | None) -> None:
    at = frame
    while at:
        if at.f_code.co_filename == "<frozen importlib._bootstrap>":
            _exit(number, frame)
        at = at.f_back
    raise KeyboardInterrupt


def _exit(_signal: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _send_again(exception: UnraisableHookArgs) -> None:
    """Sends Ctrl-C anew where Python drops its exception, as in JAX's callback of the collector."""
    if not isinstance(exception.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(exception)
        return
    from threading import Timer  # later, as nothing can be raised from here

    Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
