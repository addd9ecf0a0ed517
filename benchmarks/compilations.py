"""How often distillation was compiled, beside the number of shapes that share a compilation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import synthfair as sf
from synthfair.compare import Federation, Fitted
from synthfair.distill import outer


class Compiled(NamedTuple):
    """In one process.

    Attributes:
        process: its number.
        compilations: of chunks of outer steps.
        shapes: of what was distilled: sizes, and what is chosen when compiling.
    """

    process: int
    compilations: int
    shapes: int


_seen: set[tuple[object, ...]] = set()


def note(clients: Federation, fitted: Fitted, config: sf.DistillConfig) -> None:
    """Remembers the shapes of a run."""
    chosen = (config.optimizer, config.penalty, config.temperature, config.intercept)
    for real, distillation in zip(clients.train, fitted.distillations, strict=False):
        _seen.add((real.x.shape, distillation.release.x.shape, *chosen))


def compiled() -> Compiled:
    """What was compiled in this process so far."""
    return Compiled(os.getpid(), outer.compilations(), len(_seen))


def summary(found: Iterable[Compiled]) -> str:
    """A line for each process, of the last that it said."""
    last = {one.process: one for one in sorted(found)}
    return "\n".join(
        f"process {one.process}: {one.compilations} compilations of distillation for {one.shapes}"
        " shapes"
        for one in last.values()
    )
