"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import isnan
from os import PathLike
from pathlib import Path
from typing import Any

import synthfair
from synthfair.fairness.intervals import FEW_ROWS, UNDEFINED, size, verdict
from synthfair.fairness.metrics import Rates
from synthfair.files import require_free, write_text
from synthfair.report.answer import COMPARED, IN_WORDS, answer, judged, tiles
from synthfair.report.figures import (
    MISSING,
    RATES,
    Figure,
    answer_figure,
    can_draw,
    group_figure,
    group_metrics,
)
from synthfair.report.gaps import gap_table
from synthfair.report.overview import METRIC_OF, Overview, overviews
from synthfair.report.privacy_words import disclosures, guarantee_facts, origin_facts
from synthfair.report.result_tables import (
    NAMES,
    federation_table,
    influence_table,
    overview_records,
)
from synthfair.report.results import FILES, Result, read_results, run_names
from synthfair.report.shapes import ShapesFigure
from synthfair.report.text_table import Table
from synthfair.run_files import GAPS, METRICS, GapsFile, MetricsFile, read_gaps


def write_report(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]],
    path: str | PathLike[str] = "report.html",
    *,
    max_gap: float | None = None,
    force: bool = False,
) -> list[Path]:
    """Write a page on the results of one run or several, and return the files written.

    The figures are files in the folder PAGE_plots next to the page, too. Without matplotlib, there
    are none, and the page says so.

    Args:
        folders: of the server, ``compare``, ``train`` or ``evaluate``, with their metrics.json; or
            with a gaps.json alone, of ``gap aggregate`` or a deployment's job.
        path: of the page.
        max_gap: gap that is fair enough, from 0 to 1; that of the run if not given.
        force: whether existing files are overwritten.

    Raises:
        InputError: a folder has no results, a file exists and force is false, or two runs differ in
            nothing.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    each = [folders] if isinstance(folders, (str, PathLike)) else folders
    runs, path = [*map(Path, each)], Path(path)
    # Gaps of a model whose metrics.json stands elsewhere have a section of their own.
    alone = [run for run in runs if (run / GAPS).exists() and not (run / METRICS).exists()]
    measured = [(run, read_gaps(run / GAPS)) for run in alone]
    results = read_results([run for run in runs if run not in alone])
    # All figures, as SVG text in the page and as files next to it.
    leads = [_lead(overview, i, max_gap) for i, overview in enumerate(overviews(results))]
    views = [_view(result, max_gap) for result in results]
    figures = [lead["figure"] for lead in leads]
    figures += [figure for view in views for figure in view["figures"].values()]
    svgs = {name: figure.svg() for name, figure in figures if can_draw()}
    plots = {_plot(path, name): svg for name, svg in svgs.items()}
    inputs = [run / name for run in runs for name in FILES]
    require_free(path, *plots, inputs=inputs, force=force)
    # The page, from its template.
    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["without_flags"] = _without_flags
    text = environment.get_template("page.html.j2").render(
        leads=leads,
        views=views,
        measured=[(run.resolve().name, gaps, _measured(gaps)) for run, gaps in measured],
        images={name: b64encode(svg.encode()).decode() for name, svg in svgs.items()},
        missing="" if can_draw() else MISSING,
        verdicts=IN_WORDS,
        few_rows=FEW_ROWS,
        version=synthfair.__version__,
    )
    for file, svg in plots.items():
        write_text(file, svg)
    write_text(path, text)
    return [path, *plots]


def report_files(path: Path, folder: Path) -> list[Path]:
    """Return the files that a report on the one run in a folder may write."""
    (name,) = run_names([folder])
    return [path, *(_plot(path, part) for part in ("answer", f"{name}-groups", f"{name}-shapes"))]


def _without_flags(warning: str) -> str:
    """The parts of a warning that name no flag or command, for people without a command line."""
    parts = re.split(r"(?<=[.;:]) ", warning)
    said = " ".join(part for part in parts if not re.search(r"(?<![-\w])--[a-z]|python -m", part))
    return f"{said.rstrip('.;:')}." if said else ""


def _plot(path: Path, name: str) -> Path:
    return path.parent / f"{path.stem}_plots" / f"{name}.svg"


def _lead(overview: Overview, i: int, max_gap: float | None) -> dict[str, Any]:
    """The first part of the page, for runs that can be compared."""
    lead, gap = answer(overview, max_gap), NAMES[overview.gap]
    subject = lead.subject
    rows: list[tuple[object, ...]] = [
        (f"this model: {s.name}" if s is subject else s.name, s.accuracy, s.gap_size)
        for s in overview.summaries
    ]
    if lead.plain and not lead.reference:
        rows.append(("no penalty", lead.plain.accuracy, lead.plain.gap))
    if not isnan(subject.constant):
        rows.append(("one decision for everybody", subject.constant, 0.0))
    rows += [
        (f"penalty weight {line.rho:g}", line.test_accuracy, line.test_gap)
        for line in subject.runs[0].frontier
    ]
    records = []
    for s, record in zip(overview.summaries, overview_records(overview, gap), strict=True):
        first = {title: record[title] for title in ("method", "accuracy", gap)}
        records.append(first | {f"at most {lead.limit:g}?": judged(s, lead.limit)} | record)
    points = Table(("model", "accuracy", f"difference of {COMPARED[overview.gap]}"), rows)
    return {
        "overview": overview,
        "answer": lead,
        "tiles": tiles(lead, overview.gap),
        "figure": (f"answer-{i + 1}" if i else "answer", answer_figure(lead, overview)),
        "points": points,
        "table": Table.of(records),
    }


def _view(result: Result, max_gap: float | None) -> dict[str, Any]:
    """The part of the page about one run: figures, tables, and tables that can be opened.

    All are by the titles of their sections in the template, which has the words; a figure is with
    the name of its file.
    """
    run, gap = result.metrics, METRIC_OF[result.settings["notion"][0]]

    # What the rows of groups and clients meet with.
    figures: dict[str, tuple[str, Figure | ShapesFigure]] = {
        "Rates by group": (f"{result.name}-groups", group_figure(run))
    }
    folds = {"Rates by group": _rates_table(run.by_group, run.rows)}
    tables = _client_tables(run, gap, max_gap)
    if run.groupings:
        title, names = "Metrics by attribute", [name for name in run.overall if name != "accuracy"]
        rows = [(by, *(getattr(part, n) for n in names)) for by, part in run.groupings.items()]
        tables[title] = Table(("groups by", *(NAMES[name] for name in names)), rows)
        groups = {name: of for part in run.groupings.values() for name, of in part.rates.items()}
        folds[title] = _rates_table(groups)
    if result.model and not result.model.hidden:
        title, schema = "What each column adds to the score", result.model.schema_
        if schema.encoded_names != schema.plain.encoded_names:  # else all curves are straight
            figures[title] = (f"{result.name}-shapes", ShapesFigure(result.model))
        rows = list(result.model.coefficients.items())
        folds[title] = Table(("input", "coefficient"), rows, form="z.4f")

    # What devices, sites and releases have done.
    if result.gaps:
        tables |= _measured(result.gaps)
    if result.federation:
        tables["How the sites have answered"] = federation_table(result.federation)
    if run.influence and (releases := run.influence.releases):
        table = influence_table(run.influence, run.signed_by, len(releases))
        tables["How far each release moves the model"] = table
    if guarantees := _guarantees(run):
        tables["What each release guarantees and discloses"] = guarantees
    folds["Configuration"] = _settings(run)
    return {"result": result, "figures": figures, "tables": tables, "folds": folds}


def _rates_table(rates: Mapping[str, Rates], counts: Any = None) -> Table:
    found = group_metrics(rates, counts)
    rows = [(group, int(rates[group].n), *metrics) for group, metrics in found.items()]
    return Table(("group", "rows", *RATES.values()), rows)


def _measured(gaps: GapsFile) -> dict[str, Table]:
    return {"Gaps measured in private": gap_table(gaps, len(gaps.gaps))}


def _client_tables(run: MetricsFile, gap: str, max_gap: float | None) -> dict[str, Table]:
    """Return the tables of what the rows of each client meet with."""
    names = list(run.overall)
    parts = [("all clients", run), *run.per_client.items()]  # a client may be called so, too
    rows = [(client, *(getattr(part, name) for name in names)) for client, part in parts]
    columns = ("test rows of", *(NAMES[name] for name in names))
    tables = {"Metrics by client": Table(columns, rows)}
    if run.client_gaps:
        limit = run.asked.client_limit if max_gap is None else max_gap
        gaps = run.client_gaps.get(gap, {})
        sizes = {client: size(gaps.get(client, UNDEFINED)) for client in run.per_client}
        rows = [(client, one, verdict(one, limit)) for client, one in sizes.items()]
        columns = ("test rows of", f"size of the {NAMES[gap]}", f"at most {limit:g}?")
        tables["Is it fair at each client?"] = Table(columns, rows)
    if run.rows is not None:
        rows = [
            (client, *(f"{n.negative + n.positive:g} [{n.positive:g}]" for n in counts.values()))
            for client, counts in run.rows.items()
        ]
        tables["Rows by client and group"] = Table(("test rows of", *run.by_group), rows)
    return tables


def _guarantees(run: MetricsFile) -> Table | None:
    """Return a table of what releases, or a training, guarantee and disclose."""
    facts: dict[str, dict[str, Any]] = {}
    if run.guarantee:
        facts["all users"] = guarantee_facts(run.guarantee)
    elif run.guarantees or (run.method == "single_shot" and not run.counts):
        for name, config in run.config.items():
            guarantee = run.guarantees.get(name)
            told = disclosures(config, guarantee is not None, name in run.hides_pairs)
            facts[name] = (guarantee_facts(guarantee) if guarantee else {}) | {"discloses": told}
    if run.counts:
        facts["counts over all clients"] = origin_facts(run.counts)
    rows = [(name, *row) for name, values in facts.items() for row in Table.of_facts(values).rows]
    return Table(("of", "what", "in words"), rows) if rows else None


def _settings(run: MetricsFile) -> Table:
    configs: dict[str, Any] = dict(run.config)
    if run.decision or run.train:
        configs = {"all groups": run.decision} if run.decision else {"all users": run.train}
    values = [config.model_dump() for config in configs.values()]
    rows = [
        (name, *("not set" if value[name] is None else str(value[name]) for value in values))
        for name in values[0]
    ]
    return Table(("setting", *configs), rows)
