"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import synthfair
from synthfair.fairness.intervals import MIN_RATE_ROWS, unfair_clients
from synthfair.files import require_free, write_text
from synthfair.measure.gaps_file import GAPS_NAME, GapsFile
from synthfair.metrics_file import METRICS
from synthfair.report import figures, result_tables
from synthfair.report.answer import RATES_OF, advice, answer, furthest
from synthfair.report.results import RUN_FILES, Overview, Result, overviews, read_results
from synthfair.report.shapes import plot_shapes
from synthfair.report.text_table import Table, as_text
from synthfair.report.words import render

MAX_LISTED_POINTS = 10
"""Points of a curve in the picture's table; frontier.csv has all."""


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
        max_gap: gap that is fair enough, above 0, at most 1; that of the run if not given.
        force: whether existing files are overwritten.

    Raises:
        InputError: a folder has no results, a file exists and force is false, or two runs differ in
            nothing.
    """
    each = [folders] if isinstance(folders, (str, PathLike)) else folders
    runs, path = [*map(Path, each)], Path(path)
    # Gaps of a model whose metrics.json stands elsewhere have a section of their own.
    alone = [run for run in runs if (run / GAPS_NAME).exists() and not (run / METRICS).exists()]
    measured = [(run.resolve().name, GapsFile.read(run / GAPS_NAME)) for run in alone]
    results = read_results([run for run in runs if run not in alone])
    leads = [_lead(overview, max_gap) for overview in overviews(results)]
    plots = _plots(leads, results)
    folder = path.with_name(f"{path.stem}_plots")
    files = {folder / f"{name}.svg": svg for name, svg in plots.items()}
    inputs = [run / name for run in runs for name in RUN_FILES]
    require_free(path, *files, inputs=inputs, force=force)
    text = render(
        "page.html.j2",
        leads=leads,
        results=results,
        max_gap=max_gap,
        plots=plots,
        measured=measured,
        tables=result_tables,
        Table=Table,
        can_draw=figures.can_draw(),
        compared=RATES_OF,
        furthest=furthest,
        as_text=as_text,
        few_rows=MIN_RATE_ROWS,
        version=synthfair.__version__,
    )
    for file, svg in files.items():
        write_text(file, svg)
    write_text(path, text)
    return [path, *files]


def _lead(overview: Overview, max_gap: float | None) -> dict[str, Any]:
    """Return the first part of the page, for runs that can be compared."""
    lead = answer(overview, max_gap)
    subject, run = lead.subject, lead.subject.runs[0].metrics
    gaps, limit = run.client_gaps.get(overview.gap, {}), subject.asked.client_limit
    series, gap = figures.answer_series(lead, overview), f"difference of {RATES_OF[overview.gap]}"
    points = (
        [*zip(s.names or [s.name], s.y, s.x, strict=True)][:: -(-len(s.y) // MAX_LISTED_POINTS)]
        for s in series
    )
    unfair = unfair_clients(subject.gap, gaps, limit if max_gap is None else max_gap)
    return {
        "overview": overview,
        "answer": lead,
        "next": advice(lead, overview.gap, unfair),
        "unfair": unfair,
        "groups": result_tables.groups_table(run),
        "series": series,
        "points": Table(("model", "accuracy", gap), [*chain(*points)]),
        "table": Table.of(result_tables.overview_records(overview, lead.limit)),
    }


def _plots(leads: Sequence[dict[str, Any]], results: Sequence[Result]) -> dict[str, str]:
    """Return the figures as SVG text, by the names of their files; none without matplotlib."""
    if not figures.can_draw():
        return {}
    canvases = {}
    for i, lead in enumerate(leads, 1):
        gap = f"{lead['points'].columns[2]} (smaller is fairer)"
        canvas = figures.draw(lead["series"], lead["answer"].limit, xlabel=gap, ylabel="accuracy")
        canvases[f"answer-{i}"] = canvas
    for result in results:
        canvases[f"{result.name}-groups"] = figures.plot_groups(result.metrics)
        model = result.model
        if not model or model.hidden:
            continue
        if model.schema_.encoded_names != model.schema_.plain.encoded_names:  # else straight lines
            canvases[f"{result.name}-shapes"] = plot_shapes(model)
    return {name: figures.svg_text(canvas) for name, canvas in canvases.items()}
