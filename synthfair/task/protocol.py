"""The protocol of tasks: what a site is asked for, and how its answer is computed from its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema
from synthfair.privacy.guarantee import Guarantee


class ReleaseTask(Protocol):
    """A release that a site is asked for: public settings, and the only code that sees rows.

    The order of a site's work is that of the methods: :meth:`read` the rows, :meth:`try_out` what
    an answer would give away, :meth:`measure` the rows, and make the :meth:`answer` of what was
    measured. With an epsilon, nothing but :meth:`measure` reads rows on which the answer depends,
    so that it is booked before, once, and what it returns is saved.
    """

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        ...

    @property
    def config(self) -> Any:
        """The settings."""
        ...

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the answer, known before a row is read; None where it has none."""
        ...

    @property
    def has_trial(self) -> bool:
        """Whether rows can be held out of a trial."""
        ...

    @property
    def Measured(self) -> type[Any]:  # noqa: N802 - a type
        """A named tuple of arrays, of what is measured with an epsilon."""
        ...

    @property
    def most_numbers(self) -> int:
        """The most numbers that are measured."""
        ...

    def read(self, data: Path, *, hold_out: float = 0.0, clipping: Clipping | None = None) -> Any:
        """A site's rows, with their fingerprint ``sha256``; some held out for a trial."""
        ...

    def measured_by(self) -> str:
        """All but the rows that :meth:`measure` depends on, as text."""
        ...

    def try_out(self, rows: Any, run: Any) -> Any:
        """Measures what an answer without the rows held out gives away of the others."""
        ...

    def measure(self, rows: Any) -> Any:
        """Measures all that the answer depends on: with an epsilon, noisy numbers."""
        ...

    def answer(self, measured: Any, run: Any) -> Any:
        """The release, and how well it was computed."""
        ...

    def check(self, answer: Any, rows: Any, trial: Any) -> Any:
        """Checks what a reader of the answer may do with it; None where nothing is checked."""
        ...
