"""What all benchmarks share: runs in a CSV file, and the command line.

An :class:`Experiment` has settings, a function that makes one run (a setting and a seed give
values), and a summary of all runs as files. Runs that are in the CSV file are not made again.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel

from synthfair.data.datasets import Source
from synthfair.files import write_text

Setting = TypeVar("Setting", bound=tuple)
Values = TypeVar("Values", bound=tuple)

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"


class Run(NamedTuple, Generic[Setting, Values]):
    """One line of the CSV file.

    Attributes:
        setting: what was run, a named tuple of text and numbers.
        seed: of all that is random; a repeat where nothing is.
        values: what was measured, a named tuple.
        made_with: all else that the values depend on; see :meth:`Experiment.made_with`.
    """

    setting: Setting
    seed: int
    values: Values
    made_with: str = ""


@dataclass(frozen=True)
class Experiment(Generic[Setting, Values]):
    """Settings, how one of them is run, and what is written about all runs.

    Attributes:
        name: on the command line.
        settings: all of one type.
        run: ``run(setting, seed, smoke=...)`` gives values, a named tuple of the type that it is
            annotated with; with smoke in the fewest steps.
        summary: of all runs, in the order of the settings: name of a file to its text.
        smoke: settings of a smoke run; none where another experiment runs the same code.
        seeds: how many, if not asked for otherwise; None where nothing is random.
        file: name of the CSV file, if not the experiment's; fields of a setting in braces are
            filled in.
        version: of the method; raised by hand where a change of code changes values.
        sources: files that a setting reads; their content counts.
        fingerprint: of all other settings behind a setting, see :func:`fingerprint`.
        parallel: whether processes may share the runs; not where time is measured.
        float64: whether JAX computes in double precision.
        default: whether it is run where no experiment is named.
    """

    name: str
    settings: Sequence[Setting]
    run: Callable[..., Values]
    summary: Callable[[Sequence[Run[Setting, Values]]], Mapping[str, str]]
    smoke: Sequence[Setting]
    seeds: int | None = None
    file: str = ""
    version: int = 1
    sources: Callable[[Setting], Sequence[Source]] = lambda _: ()
    fingerprint: Callable[[Setting], str] = lambda _: ""
    parallel: bool = False
    float64: bool = True
    default: bool = True

    @property
    def values(self) -> type[Values]:
        """What a run gives."""
        return get_type_hints(self.run)["return"]

    def small(self) -> Experiment[Setting, Values]:
        """The smoke run; its runs are never taken for others."""
        settings, seeds = tuple(self.smoke), None if self.seeds is None else 1
        return replace(self, settings=settings, seeds=seeds, version=0)

    def made_with(self, setting: Setting) -> str:
        """What a run depends on beside setting and seed; a run with anything else is made again.

        The version, the sha256 of the files, and the fingerprint.
        """
        files = [source.sha256[:8] for source in self.sources(setting)]
        return " ".join([f"v{self.version}", *files, self.fingerprint(setting)]).rstrip()

    def read(self, folder: Path) -> list[Run[Setting, Values]]:
        """All runs in the file, whatever they were made with.

        A line that was cut off, or lacks a column, is none.
        """
        setting, paths = type(self.settings[0]), {folder / self._file(one) for one in self.settings}
        needed = {*setting._fields, *self.values._fields}  # type: ignore[attr-defined]
        lines: list[dict[str, str]] = []
        for path in sorted(path for path in paths if path.exists()):
            with path.open(newline="") as file:
                lines += [
                    line
                    for line in csv.DictReader(file)
                    if None not in line.values() and needed <= line.keys()
                ]
        return [
            Run(
                _parsed(setting, line),
                int(line.get("seed", 0)),
                _parsed(self.values, line),
                line.get("made_with", ""),
            )
            for line in lines
        ]

    def write(self, folder: Path, runs: Sequence[Run[Setting, Values]]) -> None:
        """The whole file anew, or not at all."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        seeded = self.seeds is not None
        names: tuple[str, ...] = runs[0].setting._fields  # type: ignore[attr-defined]
        columns = [*names, *["seed"] * seeded, *self.values._fields]  # type: ignore
        writer.writerow([*columns, "made_with"])
        for run in runs:
            cells = [*run.setting, *[run.seed] * seeded, *run.values, run.made_with]
            writer.writerow([int(cell) if isinstance(cell, bool) else cell for cell in cells])
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / self._file(runs[0].setting), text.getvalue())

    def _file(self, setting: Any) -> str:
        return (self.file or f"{self.name}.csv").format(**setting._asdict())

    def current(self, runs: Iterable[Run[Setting, Values]]) -> list[Run[Setting, Values]]:
        """The runs that would come out the same today, in the order of the settings."""
        place = {setting: i for i, setting in enumerate(self.settings)}
        fit = [run for run in runs if run.setting in place]
        fit = [run for run in fit if run.made_with == self.made_with(run.setting)]
        return sorted(fit, key=lambda run: (place[run.setting], run.seed))

    def missing(
        self, runs: Iterable[Run[Setting, Values]], settings: Sequence[Setting], seeds: int | None
    ) -> list[tuple[Setting, int]]:
        """What must still be run of these, seeds first: interrupted, it leaves whole tables."""
        done = {(run.setting, run.seed) for run in self.current(runs)}
        count = 1 if self.seeds is None else seeds or self.seeds
        wanted = [(setting, seed) for seed in range(count) for setting in settings]
        return [one for one in wanted if one not in done]

    def resume(
        self, folder: Path, settings: Sequence[Setting], *, seeds: int | None, smoke: bool = False,
        workers: int = 1,
    ) -> None:  # fmt: skip
        """Makes the missing runs, and adds each to its file in place of an older one."""
        from rich.progress import track

        runs = self.read(folder)
        if older := len(runs) - len(self.current(runs)):
            print(f"{self.name}: {older} runs were made with something else; they do not count")
        todo = self.missing(runs, settings, seeds)
        made = self._made(todo, smoke=smoke, workers=workers if self.parallel else 1)
        for setting, seed, values in track(made, self.name, len(todo), disable=smoke):
            runs = [run for run in runs if (run.setting, run.seed) != (setting, seed)]
            runs.append(Run(setting, seed, values, self.made_with(setting)))
            file = self._file(setting)
            self.write(folder, [run for run in runs if self._file(run.setting) == file])

    def _made(
        self, todo: Sequence[tuple[Setting, int]], *, smoke: bool, workers: int
    ) -> Iterator[tuple[Setting, int, Values]]:
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


def _parsed(kind: type[Any], line: Mapping[str, str]) -> Any:
    """A named tuple from the columns of its names."""
    kinds = {
        bool: lambda text: text in ("1", "True"),
        int: int,
        float: lambda text: float(text or "nan"),
    }
    hints = get_type_hints(kind)
    return kind(*(kinds.get(hints[name], str)(line[name]) for name in kind._fields))


def use_float64() -> None:
    """Double precision, as the command line has it."""
    import jax

    jax.config.update("jax_enable_x64", True)


def fingerprint(*settings: object) -> str:
    """Of settings, 12 hexadecimal digits.

    Of pydantic models, dataclasses and named tuples those entries count that are not the defaults:
    a setting that is new, with a default that changes nothing, leaves all fingerprints as they are.
    """
    return hashlib.sha256(repr([*map(_changed, settings)]).encode()).hexdigest()[:12]


def surrogates_version(epsilon: float | None) -> str:
    """Of how surrogates are made, for :func:`fingerprint`; another one for each change of bytes."""
    return "records" if epsilon else "records of rounded cells"


def _changed(settings: Any) -> object:
    if isinstance(settings, BaseModel):
        return sorted(settings.model_dump(exclude_defaults=True).items())
    if is_dataclass(settings):
        entries = {field.name: field.default for field in fields(settings)}
    elif hasattr(settings, "_field_defaults"):
        entries = dict.fromkeys(settings._fields) | settings._field_defaults
    else:
        return settings
    return sorted(
        (name, value)
        for name, usual in entries.items()
        if (value := getattr(settings, name)) != usual
    )


# The command line


def main(
    doc: str | None, folder: str, *experiments: Experiment[Any, Any], show: bool = False
) -> None:
    """Runs what is asked for, of one benchmark.

    Args:
        doc: of the benchmark's module.
        folder: of its results, in ``benchmarks/results``.
        experiments: of the benchmark.
        show: whether runs are only shown, as with --show.
    """
    args = _arguments(doc, folder, experiments)
    chosen = [one for one in experiments if one.name in args.experiments]
    usual = [one for one in experiments if (one.smoke if args.smoke else one.default)]
    for experiment in chosen or usual:
        one = experiment.small() if args.smoke else experiment
        if one.float64:
            use_float64()
        if not (args.show or show):
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


def _chosen(experiment: Experiment[Setting, Values], only: Sequence[str]) -> Sequence[Setting]:
    """Those settings whose entries are, as text, among what is wanted."""
    wanted: dict[str, set[str]] = {}
    for one in only:
        name, _, value = one.partition("=")
        wanted.setdefault(name, set()).add(value)
    names: tuple[str, ...] = experiment.settings[0]._fields  # type: ignore[attr-defined]
    if unknown := wanted.keys() - set(names):
        raise SystemExit(f"--only {', '.join(unknown)}: must be of {', '.join(names)}")

    def fits(setting: Any) -> bool:
        return all(_plain(getattr(setting, name)) in wanted[name] for name in wanted)

    chosen = [setting for setting in experiment.settings if fits(setting)]
    if not chosen:
        raise SystemExit(f"--only {' '.join(only)}: fits no setting of {experiment.name}")
    return chosen


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _arguments(
    doc: str | None, folder: str, experiments: Sequence[Experiment[Any, Any]]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    parser.add_argument(
        "--smoke", action="store_true", help="A few small runs, to see that it runs."
    )
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
