"""What a block is made of: runs, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import Run
from benchmarks.showing import marked, means

Runs = Sequence[Run[Any, Any]]

Read = Callable[..., Runs]
"""Benchmark and experiment to runs."""


def both(
    runs: Runs, gap: str = "spd", *, constants: Runs = (), digits: int = 3, error: bool = False
) -> str:
    """Mean accuracy / mean gap with standard deviations or errors, marked; empty without runs."""
    if not runs:
        return ""
    form = f".{digits}f"
    accuracy = marked(runs, constants, form, error=error)
    return f"{accuracy} / {means(runs, gap).text(form, error=error)}"
