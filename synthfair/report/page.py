"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import synthfair
from synthfair.fairness.intervals import (
    FEW_ROWS,
    UNDEFINED,
    rows_to_settle,
    size,
    unfair_clients,
    verdict,
)
from synthfair.fairness.metrics import Rates
from synthfair.files import require_free, write_text
from synthfair.measure.gaps_file import GAPS, read_gaps
from synthfair.metrics_file import METRICS, MetricsFile
from synthfair.report import figures
from synthfair.report import result_tables as make
from synthfair.report.answer import RATES_OF, VERDICTS, answer, compared_rates
from synthfair.report.privacy_words import disclosures, guarantee_facts, origin_facts
from synthfair.report.results import GAP_OF, RUN_FILES, Overview, Result, overviews, read_results
from synthfair.report.shapes import plot_shapes
from synthfair.report.text_table import Table, as_text


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
    leads = [_lead(overview, max_gap) for overview in overviews(results)]
    plots = _plots(leads, results)
    folder = path.with_name(f"{path.stem}_plots")
    files = {folder / f"{name}.svg": svg for name, svg in plots.items()}
    inputs = [run / name for run in runs for name in RUN_FILES]
    require_free(path, *files, inputs=inputs, force=force)
    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.j2").render(
        leads=leads,
        views=[_view(result, max_gap) for result in results],
        plots=plots,
        measured=[(run.resolve().name, gaps, make.gap_table(gaps, None)) for run, gaps in measured],
        missing="" if figures.can_draw() else figures.NO_MATPLOTLIB,
        verdicts={code: words for code, (words, _) in VERDICTS.items()},
        compared=RATES_OF,
        as_text=as_text,
        few_rows=FEW_ROWS,
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
    figure = figures.answer_figure(lead, overview)
    return {
        "overview": overview,
        "answer": lead,
        "more": rows_to_settle(subject.gap, lead.limit, run.n_test),
        "side": VERDICTS[verdict(subject.gap_size, lead.limit)][1],
        "groups": compared_rates(run),
        "unfair": unfair_clients(subject.gap, gaps, limit if max_gap is None else max_gap),
        "figure": figure,
        "points": Table(("model", "accuracy", figure.x_label), figure.rows),
        "table": Table.of(make.overview_records(overview, lead.limit)),
    }


def _plots(leads: Sequence[dict[str, Any]], results: Sequence[Result]) -> dict[str, str]:
    """Return the figures as SVG text, by the names of their files; none without matplotlib."""
    if not figures.can_draw():
        return {}
    canvases = {f"answer-{i}": lead["figure"].draw() for i, lead in enumerate(leads, 1)}
    for result in results:
        canvases[f"{result.name}-groups"] = figures.group_figure(result.metrics).draw()
        model = result.model
        if not model or model.hidden:
            continue
        if model.schema_.encoded_names != model.schema_.plain.encoded_names:  # else straight lines
            canvases[f"{result.name}-shapes"] = plot_shapes(model)
    return {name: figures.svg_text(canvas) for name, canvas in canvases.items()}


def _view(result: Result, max_gap: float | None) -> dict[str, Any]:
    """Return the part of the page about one run: tables, and tables that can be opened.

    All are by the titles of their sections in the template, which has the words.
    """
    run, gap = result.metrics, GAP_OF[result.settings["notion"][0]]

    # What the rows of groups and clients meet with.
    folds = {"Rates by group": _rates_table(run.by_group, run.rows)}
    tables = _client_tables(run, gap, max_gap)
    if run.groupings:
        title, names = "Metrics by attribute", [name for name in run.overall if name != "accuracy"]
        tables[title] = make.metrics_table("groups by", run.groupings.items(), names)
        groupings = run.groupings.values()
        groups = {name: of for grouping in groupings for name, of in grouping.rates.items()}
        folds[title] = _rates_table(groups)
    if result.model and not result.model.hidden:
        rows = list(result.model.coefficients.items())
        coefficients = Table(("input", "coefficient"), rows, form="z.4f")
        folds["What each column adds to the score"] = coefficients

    # What devices, sites and releases have done.
    if result.gaps:
        tables["Gaps measured in private"] = make.gap_table(result.gaps, None)
    if result.federation:
        tables["How the sites have answered"] = make.federation_table(result.federation)
    if run.influence and run.influence.releases:
        title = "How far each release moves the model"
        tables[title] = make.influence_table(run.influence, run.signed_by, None)
    if guarantees := _guarantees(run):
        tables["What each release guarantees and discloses"] = guarantees
    folds["Configuration"] = _settings(run)
    return {"result": result, "tables": tables, "folds": folds}


def _rates_table(rates: Mapping[str, Rates], counts: Any = None) -> Table:
    metrics_of = figures.group_metrics(rates, counts)
    rows = [(group, int(rates[group].n), *metrics) for group, metrics in metrics_of.items()]
    return Table(("group", "rows", *figures.RATE_NAMES.values()), rows)


def _client_tables(run: MetricsFile, gap: str, max_gap: float | None) -> dict[str, Table]:
    """Return the tables of what the rows of each client meet with."""
    parts = [("all clients", run), *run.per_client.items()]  # a client may be called so, too
    tables = {"Metrics by client": make.metrics_table("test rows of", parts)}
    if run.client_gaps:
        limit = run.asked.client_limit if max_gap is None else max_gap
        gaps = run.client_gaps.get(gap, {})
        sizes = {client: size(gaps.get(client, UNDEFINED)) for client in run.per_client}
        rows = [(client, gap_size, verdict(gap_size, limit)) for client, gap_size in sizes.items()]
        columns = ("test rows of", f"size of the {make.METRIC_NAMES[gap]}", f"at most {limit:g}?")
        tables["Is it fair at each client?"] = Table(columns, rows)
    return tables


def _guarantees(run: MetricsFile) -> Table | None:
    """Return a table of what releases, or a training, guarantee and disclose."""
    facts: dict[str, dict[str, Any]] = {}
    if run.guarantee:
        facts["all users"] = guarantee_facts(run.guarantee)
    elif run.guarantees or (run.method == "single_shot" and not run.counts):
        for name, config in run.config.items():
            guarantee = run.guarantees.get(name)
            disclosed = disclosures(config, guarantee is not None, name in run.hides_pairs)
            facts[name] = (guarantee_facts(guarantee) if guarantee else {}) | {
                "discloses": disclosed
            }
    if run.counts:
        facts["counts over all clients"] = origin_facts(run.counts)
    rows = [(name, *row) for name, values in facts.items() for row in Table.of_facts(values).rows]
    return Table(("of", "what", "in words"), rows) if rows else None


def _settings(run: MetricsFile) -> Table:
    configs: dict[str, Any] = {"all groups": run.decision, "all users": run.train}
    configs = {name: config for name, config in configs.items() if config} or run.config
    values = [config.model_dump() for config in configs.values()]
    rows = [
        (name, *("not set" if value[name] is None else str(value[name]) for value in values))
        for name in values[0]
    ]
    return Table(("setting", *configs), rows)
