"""One self-contained HTML page from the results of some runs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import synthfair
from synthfair.fairness.intervals import MIN_RATE_ROWS, UNDEFINED, rows_to_settle, size, verdict
from synthfair.fairness.metrics import Rates
from synthfair.files import require_free, write_text
from synthfair.measure.gaps_file import GAPS_NAME, read_gaps
from synthfair.metrics_file import METRICS, MetricsFile
from synthfair.report import figures
from synthfair.report import result_tables as make
from synthfair.report.answer import RATES_OF, VERDICTS, answer, compared_rates
from synthfair.report.privacy_words import disclosures, guarantee_facts, origin_facts
from synthfair.report.results import GAP_OF, RUN_FILES, Overview, Result, overviews, read_results
from synthfair.report.shapes import plot_shapes
from synthfair.report.text_table import Table


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
    alone = [run for run in runs if (run / GAPS_NAME).exists() and not (run / METRICS).exists()]
    measured = [(run, read_gaps(run / GAPS_NAME)) for run in alone]
    results = read_results([run for run in runs if run not in alone])
    leads = [_lead(overview, i, max_gap) for i, overview in enumerate(overviews(results))]
    views = [_view(result, max_gap) for result in results]
    # All figures, as SVG text in the page and as files next to it.
    pictures = [lead["picture"] for lead in leads]
    pictures += [picture for view in views for picture in view["pictures"].values()]
    folder = path.with_name(f"{path.stem}_plots")
    plots = {folder / f"{picture.name}.svg": picture.svg for picture in filter(None, pictures)}
    inputs = [run / name for run in runs for name in RUN_FILES]
    require_free(path, *plots, inputs=inputs, force=force)
    # The page, from its template.
    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda text: b64encode(text.encode()).decode()
    text = environment.get_template("page.html.j2").render(
        leads=leads,
        views=views,
        measured=[(run.resolve().name, gaps, make.gap_table(gaps, None)) for run, gaps in measured],
        missing="" if figures.can_draw() else figures.NO_MATPLOTLIB,
        verdicts={code: words for code, (words, _) in VERDICTS.items()},
        compared=RATES_OF,
        few_rows=MIN_RATE_ROWS,
        version=synthfair.__version__,
    )
    for file, svg in plots.items():
        write_text(file, svg)
    write_text(path, text)
    return [path, *plots]


def _lead(overview: Overview, i: int, max_gap: float | None) -> dict[str, Any]:
    """Return the first part of the page, for runs that can be compared."""
    lead = answer(overview, max_gap)
    subject = lead.subject
    figure = figures.answer_figure(lead, overview)
    return {
        "overview": overview,
        "answer": lead,
        "more": rows_to_settle(subject.gap, lead.limit, subject.runs[0].metrics.n_test),
        "side": VERDICTS[verdict(subject.gap_size, lead.limit)][1],
        "groups": compared_rates(subject.runs[0].metrics),
        "picture": _picture(f"answer-{i + 1}" if i else "answer", figure),
        "points": Table(("model", "accuracy", figure.x_label), figure.rows),
        "table": Table.of(make.overview_records(overview, lead.limit)),
    }


class Picture(NamedTuple):
    """A figure on the page, and in a file next to it.

    Attributes:
        name: of the file.
        svg: the figure.
        title: read aloud where the figure cannot be seen.
        note: what is said below it, with the title.
    """

    name: str
    svg: str
    title: str
    note: str = ""


def _picture(name: str, figure: figures.Figure) -> Picture | None:
    """Return a figure as it stands on the page; None where matplotlib is not installed."""
    return Picture(name, figure.svg(), figure.title, figure.note) if figures.can_draw() else None


def _view(result: Result, max_gap: float | None) -> dict[str, Any]:
    """Return the part of the page about one run: figures, tables, and tables that can be opened.

    All are by the titles of their sections in the template, which has the words; a figure is with
    the name of its file.
    """
    run, gap = result.metrics, GAP_OF[result.settings["notion"][0]]

    # What the rows of groups and clients meet with.
    drawn = {"Rates by group": _picture(f"{result.name}-groups", figures.group_figure(run))}
    folds = {"Rates by group": _rates_table(run.by_group, run.rows)}
    tables = _client_tables(run, gap, max_gap)
    if run.groupings:
        title, names = "Metrics by attribute", [name for name in run.overall if name != "accuracy"]
        tables[title] = make.metrics_table("groups by", run.groupings.items(), names)
        groups = {
            name: of for grouping in run.groupings.values() for name, of in grouping.rates.items()
        }
        folds[title] = _rates_table(groups)
    if result.model and not result.model.hidden:
        title, schema = "What each column adds to the score", result.model.schema_
        if schema.encoded_names != schema.plain.encoded_names and figures.can_draw():
            # else all curves are straight
            svg = figures.svg_text(plot_shapes(result.model), f"{title}, all else equal")
            note = "Left: log-odds. Right: the change of the predicted probability."
            drawn[title] = Picture(f"{result.name}-shapes", svg, f"{title}, all else equal", note)
        rows = list(result.model.coefficients.items())
        folds[title] = Table(("input", "coefficient"), rows, form="z.4f")

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
    return {"result": result, "pictures": drawn, "tables": tables, "folds": folds}


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
