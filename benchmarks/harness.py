"""What all benchmarks share: experiments with runs in a CSV file, and the command line.

An :class:`Experiment` has settings, a function that makes one run (a setting and a seed give
values), and a summary of all runs as files. Runs that are in the CSV file are not made again.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import math
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel

from benchmarks.runs import Run, Runs
from synthfair.data.datasets import Source
from synthfair.files import write_text

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"

NAMES = (
    "table2", "figure2", "adult_fpfl", "two_phase", "methods", "unlike",
    "unlike_bias", "unreliable", "records", "additive", "alternatives",
    "privacy", "disclosure", "audit", "gap", "secure", "privfairfl", "speed", "scale", "fit",
    "deploy",
)  # fmt: skip
"""All benchmarks, in this order."""

SURROGATES = "records of blocks without links by group", "margins of histograms and tables"
"""The versions of surrogates: without epsilon, and with it."""

Summary = Callable[[Runs], Mapping[str, str]]
"""Of all runs: name of a file to its text."""


@dataclass(frozen=True)
class Experiment:
    """Settings, how one of them is run, and what is written about all runs.

    Attributes:
        name: on the command line.
        settings: named tuples, all of one type.
        run: ``run(setting, seed, smoke=...)`` gives values, a named tuple of the type that it is
            annotated with; with smoke in the fewest steps.
        summary: of all runs, in the order of the settings: name of a file to its text.
        smoke: settings of a smoke run; none where another experiment runs the same code.
        seeds: how many, if not asked for otherwise; None where nothing is random.
        most_seeds: how many seeds of a setting there are at most.
        file: name of the CSV file, if not the experiment's; fields of a setting in braces are
            filled in.
        version: of the method; raised by hand where a change of code changes values.
        sources: files that a setting reads; their content counts.
        behind: all other settings behind a setting, see :func:`fingerprint`; None if there are
            none.
        parallel: whether processes may share the runs; not where time is measured.
        float64: whether JAX computes in double precision.
        default: whether it is run where no experiment is named.
    """

    name: str
    settings: Sequence[Any]
    run: Callable[..., Any]
    summary: Summary
    smoke: Sequence[Any] = ()
    seeds: int | None = None
    most_seeds: Callable[[Any], float] = lambda _: math.inf
    file: str = ""
    version: int = 1
    sources: Callable[[Any], Sequence[Source]] = lambda _: ()
    behind: Callable[[Any], Sequence[object] | None] = lambda _: None
    parallel: bool = False
    float64: bool = True
    default: bool = True

    def small(self) -> Experiment:
        """Return the smoke run of this experiment; its runs are never taken for others."""
        seeds = None if self.seeds is None else 1
        return replace(self, settings=tuple(self.smoke), seeds=seeds, version=0)

    def made_with(self, setting: Any) -> str:
        """Return what a run depends on beside setting and seed; if this changes, it is made again.

        This is the version, the sha256 of the files, and the fingerprint.
        """
        files = [source.sha256[:8] for source in self.sources(setting)]
        behind = self.behind(setting)
        digest = [] if behind is None else [fingerprint(*behind)]
        return " ".join([f"v{self.version}", *files, *digest])

    def read(self, folder: Path) -> Runs:
        """All runs in the file, whatever they were made with.

        A line that was cut off, or lacks a column, is none.
        """
        setting, values = type(self.settings[0]), get_type_hints(self.run)["return"]
        needed, runs = {*setting._fields, *values._fields}, []
        for path in sorted({folder / self._file(one) for one in self.settings}):
            if not path.exists():
                continue
            with path.open(newline="") as file:
                for line in csv.DictReader(file):
                    if None not in line.values() and needed <= line.keys():
                        entries = parsed(setting, line), int(line.get("seed", 0))
                        runs.append(Run(*entries, parsed(values, line), line.get("made_with", "")))
        return Runs(runs)

    def write(self, folder: Path, runs: Sequence[Run]) -> None:
        """Write the whole file anew, or leave it as it is."""
        text = io.StringIO(newline="")
        writer, seeded = csv.writer(text, lineterminator="\n"), self.seeds is not None
        first = runs[0]
        names = [*first.setting._fields, *["seed"] * seeded, *first.values._fields, "made_with"]
        writer.writerow(names)
        for run in runs:
            cells = [*run.setting, *[run.seed] * seeded, *run.values, run.made_with]
            writer.writerow([int(cell) if isinstance(cell, bool) else cell for cell in cells])
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / self._file(first.setting), text.getvalue())

    def _file(self, setting: Any) -> str:
        return (self.file or f"{self.name}.csv").format(**setting._asdict())

    def current(self, runs: Sequence[Run]) -> Runs:
        """Return the runs that would come out the same today, in the order of the settings."""
        place = {setting: i for i, setting in enumerate(self.settings)}
        same = [
            run for run in runs
            if run.setting in place and run.made_with == self.made_with(run.setting)
        ]  # fmt: skip
        return Runs(sorted(same, key=lambda run: (place[run.setting], run.seed)))

    def missing(
        self, runs: Sequence[Run], settings: Sequence[Any], seeds: int | None
    ) -> list[tuple[Any, int]]:
        """Return settings and seeds still to run, seed by seed: if stopped, tables are whole."""
        done = {(run.setting, run.seed) for run in self.current(runs)}
        count = 1 if self.seeds is None else seeds or self.seeds
        wanted = [(one, seed) for seed in range(count) for one in settings]
        return [one for one in wanted if one[1] < self.most_seeds(one[0]) and one not in done]

    def resume(
        self, folder: Path, settings: Sequence[Any], *, seeds: int | None, smoke: bool = False,
        workers: int = 1,
    ) -> None:  # fmt: skip
        """Make the missing runs, and add each to its file in place of an older one."""
        from rich.progress import track

        runs = list(self.read(folder))
        if older := len(runs) - len(self.current(runs)):
            print(f"{self.name}: {older} runs were made with something else; they do not count")
        todo = self.missing(runs, settings, seeds)
        results = self._results(todo, smoke=smoke, workers=workers if self.parallel else 1)
        for setting, seed, values in track(results, self.name, len(todo), disable=smoke):
            runs = [run for run in runs if (run.setting, run.seed) != (setting, seed)]
            runs.append(Run(setting, seed, values, self.made_with(setting)))
            file = self._file(setting)
            self.write(folder, [run for run in runs if self._file(run.setting) == file])

    def _results(
        self, todo: Sequence[tuple[Any, int]], *, smoke: bool, workers: int
    ) -> Iterator[tuple[Any, int, Any]]:
        if workers == 1 or len(todo) < 2:
            for setting, seed in todo:
                yield setting, seed, self.run(setting, seed, smoke=smoke)
            return
        # Each worker is one thread's worth: BLAS threads of several would only be in their way.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        fresh = multiprocessing.get_context("spawn")  # a forked JAX may lock up
        start = use_float64 if self.float64 else None
        with ProcessPoolExecutor(workers, fresh, initializer=start) as pool:
            futures = {pool.submit(self.run, *one, smoke=smoke): one for one in todo}
            try:
                for future in as_completed(futures):
                    yield *futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def parsed(kind: type[Any], line: Mapping[str, str]) -> Any:
    """Return a named tuple whose entries are parsed from the columns of their names."""
    parse: dict[type, Callable[[str], Any]] = {
        bool: lambda text: text in ("1", "True"),
        int: int,
        float: lambda text: float(text or "nan"),
    }
    hints = get_type_hints(kind)
    return kind(*(parse.get(hints[name], str)(line[name]) for name in kind._fields))


def use_float64() -> None:
    """Double precision, as the command line has it."""
    import jax

    jax.config.update("jax_enable_x64", True)


def fingerprint(*settings: object) -> str:
    """Twelve hexadecimal digits that name settings.

    Of pydantic models, dataclasses and named tuples those entries count that are not the defaults:
    a setting that is new, with a default that changes nothing, leaves all fingerprints as they are.
    """
    return hashlib.sha256(repr([*map(_changed, settings)]).encode()).hexdigest()[:12]


def surrogates_version(epsilon: float | None) -> str:
    """Return how surrogates are made, for :func:`fingerprint`; each change of bytes has its own."""
    return SURROGATES[bool(epsilon)]


def _changed(settings: Any) -> object:
    if isinstance(settings, BaseModel):
        return sorted(settings.model_dump(exclude_defaults=True).items())
    if is_dataclass(settings):
        entries = {field.name: field.default for field in fields(settings)}
    elif hasattr(settings, "_field_defaults"):
        entries = dict.fromkeys(settings._fields) | settings._field_defaults
    else:
        return settings
    values = {name: getattr(settings, name) for name in entries}
    return sorted((name, value) for name, value in values.items() if value != entries[name])


# Experiments and their committed runs, by name


def experiments(name: str) -> tuple[Experiment, ...]:
    """Those of a benchmark."""
    spec = find_spec(f"benchmarks.{name}")
    package = spec is not None and spec.submodule_search_locations is not None
    module = import_module(f"benchmarks.{name}.__main__" if package else f"benchmarks.{name}")
    return module.EXPERIMENTS


def written(name: str, experiment: str = "runs") -> Runs:
    """All runs in ``benchmarks/results``, those of earlier versions of the code, too."""
    return experiment_of(name, experiment).read(folder_of(name))


def committed(name: str, experiment: str = "runs") -> Runs:
    """Return the runs in ``benchmarks/results`` that count, see :meth:`Experiment.current`."""
    return experiment_of(name, experiment).current(written(name, experiment))


def folder_of(name: str) -> Path:
    """Return the folder of a benchmark's results."""
    return RESULTS / name


def experiment_of(name: str, experiment: str = "runs") -> Experiment:
    """Return an experiment of a benchmark."""
    return next(one for one in experiments(name) if one.name == experiment)


# The command line


def main(doc: str | None, folder: str, *experiments: Experiment) -> None:
    """Make the runs of a benchmark that are asked for, and write and print their pages.

    Args:
        doc: of the benchmark's module.
        folder: of its results, in ``benchmarks/results``.
        experiments: of the benchmark.
    """
    args = _arguments(doc, folder, experiments)
    chosen = [one for one in experiments if one.name in args.experiments]
    usual = [one for one in experiments if (one.smoke if args.smoke else one.default)]
    for experiment in chosen or usual:
        one = experiment.small() if args.smoke else experiment
        if one.float64:
            use_float64()
        if not args.show:
            settings, workers = _chosen(one, args.only), 1 if args.smoke else args.workers
            one.resume(args.output, settings, seeds=args.seeds, smoke=args.smoke, workers=workers)
        stored = one.read(args.output)
        runs = one.current(stored)
        if not runs:
            raise SystemExit(
                f"{args.output}: {len(stored)} runs, none that would come out the same today"
            )
        for name, text in one.summary(runs).items():
            write_text(args.output / name, text)
            if name.endswith(".md"):
                print(text, flush=True)


def _chosen(experiment: Experiment, only: Sequence[str]) -> Sequence[Any]:
    """Those settings whose entries are, as text, among what is wanted."""
    wanted: dict[str, set[str]] = {}
    for one in only:
        name, _, value = one.partition("=")
        wanted.setdefault(name, set()).add(value)
    names = experiment.settings[0]._fields
    if unknown := wanted.keys() - set(names):
        raise SystemExit(f"--only {', '.join(unknown)}: must be of {', '.join(names)}")

    def plain(value: object) -> str:
        return f"{value:g}" if isinstance(value, float) else str(value)

    chosen = [
        setting
        for setting in experiment.settings
        if all(plain(getattr(setting, name)) in wanted[name] for name in wanted)
    ]
    if not chosen:
        raise SystemExit(f"--only {' '.join(only)}: fits no setting of {experiment.name}")
    return chosen


def _arguments(
    doc: str | None, folder: str, experiments: Sequence[Experiment]
) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=formatter)
    names = [one.name for one in experiments]
    usual = ", ".join(one.name for one in experiments if one.default)
    parser.add_argument(
        "experiments", nargs="*", choices=[*names, []], metavar="EXPERIMENT",
        help=f"Of {', '.join(names)}. Default: {usual}.",
    )  # fmt: skip
    seeds = next((one.seeds for one in experiments if one.seeds), 1)
    parser.add_argument("--seeds", type=_positive, help=f"How many. Default: {seeds}.")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME=VALUE",
        help="Of the settings those with these entries, e.g. table=adult.",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="Folder of the results.")
    small = "A few small runs, to see that it runs."
    parser.add_argument("--smoke", action="store_true", help=small)
    parser.add_argument("--show", action="store_true", help="Make no runs; show those there are.")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=_positive, default=cores, help="Processes, if possible.")
    args = parser.parse_args()
    if args.smoke and args.output and args.output.resolve().is_relative_to(RESULTS):
        parser.error(f"--smoke --output {args.output}: holds results; name another folder")
    if args.smoke and args.output is None:
        args.output = Path(tempfile.mkdtemp(prefix=f"{folder}-smoke-"))
        print(f"writes to {args.output}", file=sys.stderr)
    args.output = args.output or RESULTS / folder
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number
