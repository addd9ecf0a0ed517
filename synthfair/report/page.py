"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import synthfair
from synthfair.fairness.intervals import FEW_ROWS, rate_interval
from synthfair.fairness.metrics import Metric
from synthfair.files import require_distinct, require_free, write_text
from synthfair.measure.estimate import FEW
from synthfair.release.format import disclosures
from synthfair.report import pictures
from synthfair.report.answer import (
    VERDICTS,
    Answer,
    answer,
    group_labels,
    verdict,
)
from synthfair.report.chart import STYLE, Chart, as_svg
from synthfair.report.commands import commands
from synthfair.report.overview import ACCURACY_GAP, METRIC_OF, Overview, Summary, overviews
from synthfair.report.releases import statement_lines, training_guarantee_lines
from synthfair.report.results import Result, inputs_of
from synthfair.report.scores import (
    AtThreshold,
    Calibration,
    at_thresholds,
    calibration,
    has_scores,
)
from synthfair.report.sums import sum_lines
from synthfair.report.terminal import byte_size, effort
from synthfair.run_files import MetricsFile, Part

if TYPE_CHECKING:
    from markupsafe import Markup

TITLES = {
    "accuracy": "accuracy",
    "spd": "statistical parity difference (SPD)",
    "equal_opportunity_difference": "equal opportunity difference",
    "equalized_odds_difference": "equalized odds difference",
    "covariance": "covariance of group and score",
}
GAP_NAMES = TITLES | {
    "spd": "statistical parity difference",
    ACCURACY_GAP: "accuracy difference",
}


class Picture(NamedTuple):
    """A chart, and the name of its file without ending."""

    name: str
    chart: Chart

    @property
    def svg(self) -> Markup:
        """Inside the page, which has its style; names in it are escaped already."""
        from markupsafe import Markup

        return Markup(as_svg(self.chart, alone=False))  # noqa: S704


class Lead(NamedTuple):
    """What the page begins with: an answer and its picture, for runs that can be compared."""

    overview: Overview
    answer: Answer
    picture: Picture

    @property
    def several(self) -> bool:
        """Whether there are means over runs."""
        return any(len(s.runs) > 1 for s in self.overview.summaries)

    @property
    def columns(self) -> list[tuple[str, list[str]]]:
        """Of the table of all runs, titles and cells of what is known of at least one run."""
        private = any(s.epsilon is not None for s in self.overview.summaries)
        rows = [
            (
                s.setting,
                *effort(s.cost),
                ("none" if s.epsilon is None else f"{s.epsilon:g}") if private else "",
                {True: "yes", False: "NO", None: ""}[s.converged],
                f"{len(s.runs)}" if self.several else "",
            )
            for s in self.overview.summaries
        ]
        titles = "fairness setting", "rounds", "sent", "seconds", "epsilon", "converged", "runs"
        cells = map(list, zip(*rows, strict=True))
        return [found for found in zip(titles, cells, strict=True) if any(found[1])]

    def within(self, summary: Summary) -> str:
        """Whether other runs are within the limit of the answer."""
        return verdict(summary.gap_size, self.answer.limit.value)


class Section(NamedTuple):
    """All that is shown of one run.

    Attributes:
        result: the run.
        gap: name of the metric that belongs to its notion of fairness.
        bounds: intervals of the rates of each group.
        thresholds: what other thresholds would do; none without scores.
        calibrations: of each group; none without scores.
        charts: by what they show.
        statements: what each release says of privacy.
        commands: that run it again.
    """

    result: Result
    gap: str
    bounds: dict[str, dict[str, Metric]]
    thresholds: list[AtThreshold]
    calibrations: dict[str, Calibration]
    charts: dict[str, Picture]
    statements: dict[str, tuple[str, ...]]
    commands: list[str]


SAID_OF = {
    "fairness setting": "Fairness setting: the weight of the fairness penalty, the tolerance of the"
    " constraint, or the largest gap that training aims at.",
    "rounds": "Rounds: between clients and server.",
    "sent": "Sent: by all clients together, without what the server sends.",
    "epsilon": "Epsilon: of the differential privacy that is guaranteed.",
}
"""Of columns of the table of all runs, what they hold."""


class ShownInfluence(NamedTuple):
    """What the table of influences has beside the numbers that each release has.

    Attributes:
        groups: those whose rates are shown, and their places among the rates.
        remarks: by release; empty if there are none.
    """

    groups: dict[str, int]
    remarks: dict[str, str]

    @classmethod
    def of(cls, metrics: MetricsFile) -> ShownInfluence:
        """Of a run with influences; older files have no rates."""
        moved = metrics.influence.releases if metrics.influence else {}
        remarks = {
            name: ", ".join(
                ["first step"] * (not one.converged) + ["alone with a group and label"] * one.alone
            )
            for name, one in moved.items()
        }
        known = all(len(one.rates) == len(metrics.by_group) for one in moved.values())
        drawn = pictures.largest_groups({g: int(r.n) for g, r in metrics.by_group.items()})
        groups = {group: i for i, group in enumerate(metrics.by_group) if known and group in drawn}
        return cls(groups, remarks if any(remarks.values()) else {})


CHARTS = ("groups", "thresholds", "selection", "calibration", "objective", "gap")
"""That a run may have."""


def write_report(
    results: Sequence[Result], path: Path, *, max_gap: float | None = None, force: bool = False
) -> list[Path]:
    """Writes the page, and its charts as files into the folder PAGE_plots next to it.

    Args:
        results: at least one.
        path: of the page.
        max_gap: gap that is fair enough, from 0 to 1; see :func:`synthfair.report.answer.answer`.
        force: whether existing files are overwritten.

    Returns:
        The files written.

    Raises:
        InputError: a file exists and force is false, or the folder cannot be written to; two runs
            differ in nothing.
    """
    for result in results:
        require_distinct(path, *inputs_of(result.folder))
    leads = [_lead(found, i, max_gap) for i, found in enumerate(overviews(results))]
    sections = [_section(result) for result in results]
    shown = [lead.picture for lead in leads]
    shown += [picture for section in sections for picture in section.charts.values()]
    files = {_plot_file(path, picture.name): as_svg(picture.chart) for picture in shown}
    require_free(path, *files, force=force)
    for file, svg in files.items():
        write_text(file, svg)
    write_text(path, _render(results, leads, sections))
    return [path, *files]


def files_of_one(path: Path, name: str) -> list[Path]:
    """All that a report on one run of that name may write."""
    return [
        path,
        *(_plot_file(path, part) for part in ("answer", *(f"{name}-{c}" for c in CHARTS))),
    ]


def _plot_file(path: Path, name: str) -> Path:
    return path.parent / f"{path.stem}_plots" / f"{name}.svg"


def _lead(overview: Overview, i: int, max_gap: float | None) -> Lead:
    found = answer(overview, max_gap)
    chart = pictures.answer_chart(found, overview, GAP_NAMES[overview.gap])
    return Lead(overview, found, Picture(f"answer{f'-{i + 1}' if i else ''}", chart))


def _section(result: Result) -> Section:
    metrics, gap = result.metrics, METRIC_OF[result.settings["notion"][0]]
    bounds = {group: _bounds(metrics, group) for group in metrics.by_group}
    charts = {"groups": pictures.group_chart(metrics.by_group, bounds)}
    thresholds, calibrations = [], {}
    if metrics.scores is not None and has_scores(metrics.scores):
        sizes = {group: int(rates.n) for group, rates in metrics.by_group.items()}
        thresholds = at_thresholds(metrics.scores, gap, metrics.min_group_rows)
        calibrations = {group: calibration(found) for group, found in metrics.scores.items()}
        charts["thresholds"] = pictures.threshold_chart(thresholds, GAP_NAMES[gap])
        charts["selection"] = pictures.selection_chart(thresholds, sizes)
        charts["calibration"] = pictures.calibration_chart(calibrations, sizes)
    if result.histories:
        charts |= pictures.convergence_charts(result.histories)
    return Section(
        result,
        gap,
        bounds,
        thresholds,
        calibrations,
        {kind: Picture(f"{result.name}-{kind}", chart) for kind, chart in charts.items()},
        _statements(metrics),
        commands(metrics),
    )


def _bounds(metrics: MetricsFile, group: str) -> dict[str, Metric]:
    """Intervals of a group's rates; of rates by label only where labels were counted."""
    rates, labels = metrics.by_group[group], group_labels(metrics).get(group)
    rows = {"selection_rate": rates.n, "error_rate": rates.n}
    if labels:
        rows |= {"true_positive_rate": labels.positive, "false_positive_rate": labels.negative}
    return {
        name: rate_interval(share * rows[name], rows[name])
        if name in rows
        else Metric(share, float("nan"), float("nan"))
        for name, share in rates._asdict().items()
        if name in pictures.RATES
    }


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


def _render(results: Sequence[Result], leads: Sequence[Lead], sections: Sequence[Section]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": _shown, "change": _change, "metric": _metric, "words": _words}
    environment.filters["bytes"] = byte_size
    return environment.get_template("report.html.j2").render(
        metrics=TITLES,
        gap_names=GAP_NAMES,
        verdicts=VERDICTS,
        rates=pictures.RATES,
        few=FEW,
        few_rows=FEW_ROWS,
        said_of=SAID_OF,
        influences=ShownInfluence.of,
        results=results,
        leads=leads,
        sections=sections,
        version=synthfair.__version__,
        parts=_parts,
        chart_style=STYLE,
        servers=any(not result.metrics.table for result in results),
    )


def _parts(metrics: MetricsFile) -> list[tuple[str, Part]]:
    return [("all clients", metrics), *metrics.per_client.items()]


def _shown(value: float | None, digits: int = 3) -> str:
    return "undefined" if value is None or isnan(value) else f"{value:z.{digits}f}"


def _change(value: float) -> str:
    """With its sign."""
    return "undefined" if isnan(value) else f"{value:+z.3f}"


def _metric(found: Metric) -> str:
    """A value and its interval, as in a table."""
    if isnan(found.value) or isnan(found.low):
        return _shown(found.value)
    return f"{_shown(found.value)} [{', '.join(map(_shown, found[1:]))}]"


def _words(name: str) -> str:
    return name.replace("_", "-")
