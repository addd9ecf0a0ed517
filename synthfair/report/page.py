"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import NamedTuple, cast

import synthfair
from synthfair.config import (
    DistillConfig,
    ServerConfig,
    SurrogateConfig,
    TrainConfig,
    changed_settings,
)
from synthfair.files import require_distinct, require_free, write_text
from synthfair.measure.estimate import FEW
from synthfair.postprocess.decision import RANDOMIZED
from synthfair.release.format import disclosures
from synthfair.release.keys import PRIVATE, PUBLIC
from synthfair.report import plots
from synthfair.report.overview import ACCURACY_GAP, Overview, overviews
from synthfair.report.releases import statement_lines, training_guarantee_lines
from synthfair.report.results import Result, inputs_of
from synthfair.report.sums import sum_lines
from synthfair.report.terminal import effort
from synthfair.run_files import (
    DecisionSettings,
    MetricsFile,
    Part,
    RoundSettings,
    SplitTable,
)

TITLES = {
    "accuracy": "accuracy",
    "spd": "SPD",
    "equal_opportunity_difference": "equal opportunity difference",
    "equalized_odds_difference": "equalized odds difference",
    "covariance": "covariance",
}
_GAP_NAMES = TITLES | {ACCURACY_GAP: "accuracy difference"}


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
    """All that is shown of one run: plots, what it says of privacy, and how to run it again."""

    result: Result
    pictures: list[Picture]
    statements: dict[str, tuple[str, ...]]
    commands: list[str]


def write_report(results: Sequence[Result], path: Path, *, force: bool = False) -> list[Path]:
    """Writes the page, and its plots as files into the folder PAGE_plots next to it.

    Args:
        results: at least one.
        path: of the page.
        force: whether existing files are overwritten.

    Returns:
        The files written.

    Raises:
        InputError: a file exists and force is false, or the folder cannot be written to; two runs
            differ in nothing.
    """
    for result in results:
        require_distinct(path, *inputs_of(result.folder))
    groups = overviews(results)
    compared = [(group, _frontier(group, i)) for i, group in enumerate(groups)]
    sections = [_section(result) for result in results]
    pictures = [picture for section in sections for picture in section.pictures]
    if len(results) > 1:
        pictures += [picture for _, picture in compared]
    files = {_plot_file(path, picture.name): picture.svg for picture in pictures}
    require_free(path, *files, force=force)
    for file, svg in files.items():
        write_text(file, svg)
    write_text(path, _render(results, compared, sections))
    return [path, *files]


def files_of_one(path: Path, name: str) -> list[Path]:
    """All that a report on one run of that name may write."""
    return [path, *(_plot_file(path, f"{name}-{part}") for part in ("groups", "convergence"))]


def _plot_file(path: Path, name: str) -> Path:
    return path.parent / f"{path.stem}_plots" / f"{name}.svg"


def _frontier(overview: Overview, i: int) -> Picture:
    name, gap = f"frontier{f'-{i + 1}' if i else ''}", _GAP_NAMES[overview.gap]
    title = f"Accuracy against the size of the mean {gap}, on test rows, for each method"
    return Picture(name, title, plots.frontier(overview.curves, gap=gap))


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
        if result.settings["max_gap"] != (None,):
            title += "; each 50 steps have a rho_o of their own, which the objective contains"
        svg = plots.convergence(result.histories)
        pictures.append(Picture(f"{result.name}-convergence", title, svg))
    return Section(result, pictures, _statements(result.metrics), _commands(result.metrics))


def _statements(metrics: MetricsFile) -> dict[str, tuple[str, ...]]:
    """What each release says of privacy; where metrics.json has no statements, what they would."""
    counts = {}
    if metrics.counts:
        lines = (f"{title}: {line}" for title, line in sum_lines(metrics.counts))
        counts["counts over all clients"] = tuple(lines)
    if metrics.guarantee:
        return {"all users": training_guarantee_lines(metrics.guarantee), **counts}
    if metrics.privacy:
        return {
            client: tuple(f"{title}: {line}" for title, line in statement_lines(statement))
            for client, statement in metrics.privacy.items()
        }
    configs = metrics.config if metrics.method == "single_shot" else {}
    return counts or {client: disclosures(config) for client, config in configs.items()}


def _commands(metrics: MetricsFile) -> list[str]:
    """What to type to run it again. The server does not know the names of clients' tables."""
    if metrics.table:
        return [_compare_command(metrics, metrics.table)]
    if metrics.train:
        return [_train_command(metrics.train, weighted=metrics.weights is not None)]
    if metrics.decision:
        return [_thresholds_command(metrics.decision, metrics.method)]
    names = {client: _stem(client) for client in metrics.config}
    signed = {client: f"{name}{PRIVATE}" for client, name in metrics.signed_by.items()}
    clients = [
        client_command(names[client], config, signed.get(client))
        for client, config in metrics.config.items()
    ]
    words = ["python", "-m", "synthfair.server", *(f"{name}.parquet" for name in names.values())]
    words += ["--schema", "schema.json", "--test"]
    words += [f"{_stem(client)}.csv" for client in metrics.per_client]
    if metrics.signed_by:
        words += ["--keys", *(f"{name}{PUBLIC}" for name in metrics.signed_by.values())]
    words += ["--output", "server"]
    if metrics.server:
        return [*clients, shlex.join([*words, *_flags(metrics.server), "--report"])]
    words += ["--resamples", str(metrics.resamples), *_least(metrics)]
    if metrics.max_influence is not None:
        words += ["--max-influence", repr(metrics.max_influence)]
    return [*clients, shlex.join([*words, "--seed", str(metrics.seed), "--report"])]


def _stem(name: str) -> str:
    """A client's name; where names repeated, the server has used whole paths instead."""
    return name.removesuffix(".parquet").removesuffix(".csv")


def _compare_command(metrics: MetricsFile, table: SplitTable) -> str:
    config = cast(DistillConfig, next(iter(metrics.config.values())))
    words = ["python", "-m", "synthfair", "compare", table.name, "--sensitive", table.sensitive]
    words += ["--schema", "schema.json"] if table.sha256 else []
    split = table.model_dump(exclude={"name", "sensitive", "sha256"}, exclude_defaults=True)
    for key, value in split.items():
        words += ["--" + key.replace("_", "-"), str(value)]
    words += _least(metrics)
    words += ["--methods", metrics.method]
    words += ["--weights", repr(config.rho_o), "--seeds", str(config.seed + 1)]
    if metrics.train:  # its settings stand in metrics.json
        words += ["--train-config", "train.toml"]
        words += _user_flags(metrics.train)
    words += ["--output", "comparison", *_flags(config, leave_out=("rho_o", "seed"))]
    return shlex.join(words)


def _least(metrics: MetricsFile) -> list[str]:
    """Which groups count, as flags."""
    least = metrics.min_group_rows
    return ["--min-group-rows", str(least)] if least else []


def _thresholds_command(decision: DecisionSettings, method: str) -> str:
    words = ["python", "-m", "synthfair", "thresholds", "histogram.json"]
    words += ["--notion", decision.notion, "--alpha", repr(decision.alpha)]
    words += ["--randomized"] if method == RANDOMIZED else []
    return shlex.join([*words, "--model", "model.json", "--output", "fair_model.json"])


def _train_command(train: RoundSettings, *, weighted: bool) -> str:
    """The name of its table is known only where it ran."""
    words = ["python", "-m", "synthfair", "train", "table.csv", "--schema", "schema.json"]
    words += _user_flags(train)
    words += ["--weights", "weights.json"] if weighted else []
    config = TrainConfig(**{key: getattr(train, key) for key in TrainConfig.model_fields})
    return shlex.join([*words, "--output", "trained", *_flags(config)])


def _user_flags(train: RoundSettings) -> list[str]:
    """How rows became users, as flags."""
    words = ["--each-row"] if train.each_row else []
    for key in ("clients", "rows_per_user", "user_column"):
        if (value := getattr(train, key)) is not None:
            words += ["--" + key.replace("_", "-"), str(value)]
    return words


def client_command(
    client: str, config: DistillConfig | SurrogateConfig, key: str | None = None
) -> str:
    """What a client types to distil with these settings."""
    words = ["python", "-m", "synthfair.client", "--data", f"{client}_train.csv"]
    words += ["--release", "surrogate"] if isinstance(config, SurrogateConfig) else []
    words += ["--schema", "schema.json", "--output", f"{client}.parquet", *_flags(config)]
    return shlex.join([*words, *(["--sign", key] if key else [])])


def _flags(
    config: DistillConfig | SurrogateConfig | ServerConfig | TrainConfig,
    leave_out: Sequence[str] = (),
) -> list[str]:
    flags = []
    for key, value in changed_settings(config).items():
        flag = "--" + key.replace("_", "-")
        if key in leave_out:
            continue
        if isinstance(value, bool):
            flags.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, tuple):
            flags += [flag, *map(str, value)]
        else:
            flags += [flag, str(value)]
    return flags


def _render(
    results: Sequence[Result],
    compared: Sequence[tuple[Overview, Picture]],
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
    environment.filters |= {"shown": _shown, "words": _words, "effort": effort}
    return environment.get_template("report.html.j2").render(
        metrics=TITLES,
        gap_names=_GAP_NAMES,
        few=FEW,
        results=results,
        compared=compared,
        sections=sections,
        version=synthfair.__version__,
        parts=_parts,
        servers=any(not result.metrics.table for result in results),
    )


def _parts(metrics: MetricsFile) -> list[tuple[str, Part]]:
    return [("all clients", metrics), *metrics.per_client.items()]


def _shown(value: float | None, digits: int = 4) -> str:
    return "undefined" if value is None or isnan(value) else f"{value:.{digits}f}"


def _words(name: str) -> str:
    return name.replace("_", "-")
