"""The benchmarks by name, and their committed runs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, Experiment, Run

NAMES = (
    "table2", "figure2", "figure3", "adult_fpfl", "femnist_fpfl", "two_phase", "methods", "unlike",
    "records", "trainers", "privacy", "disclosure", "gap", "secure", "privfairfl", "speed", "scale",
    "cold", "deploy",
)  # fmt: skip
"""In this order: figure3 is drawn from the runs of table2."""


FOLDERS = {"figure3": "table2"}
"""Of the results, where it is not the benchmark's name."""


def experiments(name: str) -> tuple[Experiment, ...]:
    """Those of a benchmark."""
    spec = find_spec(f"benchmarks.{name}")
    package = spec is not None and spec.submodule_search_locations is not None
    module = import_module(f"benchmarks.{name}.__main__" if package else f"benchmarks.{name}")
    return getattr(module, "EXPERIMENTS", ())


def committed(name: str, experiment: str = "runs") -> list[Run[Any, Any]]:
    """The runs in ``benchmarks/results`` that would come out the same today."""
    return _experiment(name, experiment).current(written(name, experiment))


def written(name: str, experiment: str = "runs") -> list[Run[Any, Any]]:
    """All runs in ``benchmarks/results``, those of earlier versions of the code, too."""
    return _experiment(name, experiment).read(folder_of(name))


def folder_of(name: str) -> Path:
    """Of a benchmark's results."""
    return RESULTS / FOLDERS.get(name, name)


def _experiment(name: str, experiment: str) -> Experiment[Any, Any]:
    return next(one for one in experiments(name) if one.name == experiment)
