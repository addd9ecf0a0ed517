"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import synthfair
from synthfair.config import DistillConfig
from synthfair.files import require_free, write_text
from synthfair.release import disclosures
from synthfair.report import plots
from synthfair.report.results import Metrics, Part, Result

METRICS = {
    "accuracy": "accuracy",
    "spd": "SPD",
    "equal_opportunity_difference": "equal opportunity difference",
    "equalized_odds_difference": "equalized odds difference",
    "covariance": "covariance",
}


class Picture(NamedTuple):
    """A plot.

    Attributes:
        name: of its file, without ending.
        title: in words; read aloud where the plot cannot be seen.
        svg: the plot.
    """

    name: str
    title: str
    svg: str

    @property
    def address(self) -> str:
        """The plot inside the page; an image, so that its ids cannot clash with another's."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


class Section(NamedTuple):
    """All that is shown of one run."""

    result: Result
    pictures: list[Picture]
    disclosures: dict[str, tuple[str, ...]]
    commands: list[str]


class Summary(NamedTuple):
    """Runs of one method and weight, over seeds."""

    method: str
    rho_o: float | None
    seeds: int
    point: plots.Point
    spd: float
    spread: tuple[float, float] | None
    converged: bool


def write_report(results: Sequence[Result], path: Path, *, force: bool = False) -> list[Path]:
    """Writes the page, and its plots as files into a folder ``plots`` beside it.

    Args:
        results: at least one.
        path: of the page.
        force: whether existing files are overwritten.

    Returns:
        The files written.

    Raises:
        InputError: a file exists and force is false, or the folder cannot be written to.
    """
    summaries = summarise(results)
    overview = [_frontier(summaries)] if len(results) > 1 else []
    sections = [_section(result) for result in results]
    pictures = overview + [picture for section in sections for picture in section.pictures]
    files = {path.parent / "plots" / f"{p.name}.svg": p.svg for p in pictures}
    require_free(path, *files, force=force)
    for file, svg in files.items():
        write_text(file, svg)
    write_text(path, _render(results, summaries, overview, sections))
    return [path, *files]


def summarise(results: Sequence[Result]) -> list[Summary]:
    """Means over seeds, with standard errors, of the runs of each method and weight."""
    groups: dict[tuple[str, float | None], list[Metrics]] = {}
    for result in results:
        groups.setdefault((result.metrics.method, result.rho_o), []).append(result.metrics)
    return [_summary(*key, runs) for key, runs in groups.items()]


def _summary(method: str, rho_o: float | None, runs: Sequence[Metrics]) -> Summary:
    accuracy = [_number(run.accuracy.value) for run in runs]
    spd = [_number(run.spd.value) for run in runs]
    n = len(runs)
    errors = (stdev(spd) / n**0.5, stdev(accuracy) / n**0.5) if n > 1 else (0.0, 0.0)
    point = plots.Point(abs(fmean(spd)), fmean(accuracy), *errors)
    spread = (stdev(accuracy), stdev(spd)) if n > 1 else None
    converged = all(run.converged for run in runs)
    return Summary(method, rho_o, n, point, fmean(spd), spread, converged)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _frontier(summaries: Sequence[Summary]) -> Picture:
    curves: dict[str, list[plots.Point]] = {}
    for summary in summaries:
        curves.setdefault(summary.method.replace("_", "-"), []).append(summary.point)
    title = "Accuracy against the size of SPD, on test rows, for each method"
    return Picture("frontier", title, plots.frontier(curves))


def _section(result: Result) -> Section:
    pictures = [
        Picture(
            f"{result.name}-groups",
            f"Selection and error rates by group, {result.name}",
            plots.group_rates(result.metrics.by_group),
        )
    ]
    if result.histories:
        title = f"Outer objective and training gap against steps, {result.name}"
        svg = plots.convergence(result.histories)
        pictures.append(Picture(f"{result.name}-convergence", title, svg))
    single_shot = result.metrics.method == "single_shot"
    configs = result.metrics.config if single_shot else {}
    told = {client: disclosures(config) for client, config in configs.items()}
    commands = [_command(client, config) for client, config in configs.items()]
    return Section(result, pictures, told, commands)


def _command(client: str, config: DistillConfig) -> str:
    flags = []
    for key, value in changed(config).items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            flags += [flag, str(value)]
    start = f"python -m synthfair.client --data {client}_train.csv --schema schema.json"
    return f"{start} --output {client}.parquet {shlex.join(flags)}".rstrip()


def changed(config: DistillConfig) -> dict[str, Any]:
    """The settings that are not the defaults."""
    default = DistillConfig().model_dump()
    return {k: v for k, v in config.model_dump().items() if v != default[k]}


def _render(
    results: Sequence[Result],
    summaries: Sequence[Summary],
    overview: Sequence[Picture],
    sections: Sequence[Section],
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": _shown, "words": _words}
    return environment.get_template("report.html.j2").render(
        metrics=METRICS,
        results=results,
        summaries=summaries,
        overview=overview,
        sections=sections,
        version=synthfair.__version__,
        parts=_parts,
    )


def _parts(metrics: Metrics) -> dict[str, Part]:
    return {"all clients": metrics, **metrics.per_client}


def _shown(value: float | None, digits: int = 4) -> str:
    return "undefined" if value is None else f"{value:.{digits}f}"


def _words(name: str) -> str:
    return name.replace("_", "-")
