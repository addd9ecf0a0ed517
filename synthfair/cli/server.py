"""The commands of whoever runs the server: ``server``, ``evaluate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from synthfair.cli.parameters import (
    Config,
    Force,
    Model,
    SchemaFile,
    with_settings,
)
from synthfair.cli.show import command, conclude, opening, say, warn
from synthfair.errors import InputError
from synthfair.server.settings import ServerConfig
from synthfair.settings import load_settings

if TYPE_CHECKING:
    from synthfair.server.page import Refinement, ServerResult

_EVALUATION = ("notion", "groups_by", "min_group_rows")
_TRAINING = ("rho", "max_gap", "max_client_gap", "min_ratio", "penalty")


@with_settings(("Settings", ServerConfig, (*_TRAINING, *_EVALUATION)))
def server(
    releases: tuple[Path, ...] = (),
    /,
    *,
    schema: SchemaFile,
    test: tuple[Path, ...] = (),
    config: Config | None = None,
    output: Path,
    force: Force = False,
    keys: tuple[Path, ...] = (),
    frontier: bool = False,
    records: Path | None = None,
    refine: Path | None = None,
    answers: Annotated[int, Parameter(validator=validators.Number(gte=1))] | None = None,
    trusted: Path | None = None,
    report: bool = False,
    **settings: Any,
) -> None:
    r"""Pool release files, train one model, and report accuracy and fairness.

    Accuracy and group gaps are those on the test tables. Writes model.json and metrics.json.

        python -m synthfair.server DIR/*.parquet --schema DIR/schema.json \
            --test DIR/*_test.csv --output DIR/server

    On fair releases it trains an ordinary logistic model. On surrogates it trains one that is fair
    over all clients, as often as you like. --max-gap 0.05 looks for an accurate model
    with that gap, --frontier shows accuracy and gap for many:

        python -m synthfair.server DIR/*.parquet --schema DIR/schema.json \
            --test DIR/*_test.csv --max-gap 0.05 --frontier --output DIR/server

    Settings are keys of the configuration file, which flags override; the file can have further
    keys, which docs/server.md lists.

    --records writes the pooled records as a table, on which any learner can be trained.

    --refine goes on from the model of surrogates by exchanges of sums with the clients: it writes
    DIR/refine/1/question.json, which python -m synthfair answer answers. The same command
    with --force, once all answers lie next to the question, writes the next one, and the model so
    far.

    Args:
        releases: Release files, one a client.
        test: Test tables, one a client. For surrogates they may be missing; then there is no
            metrics.json.
        output: Folder to write to.
        keys: Public keys of the clients, NAME.pub each, or folders of them: then every release must
            be signed by another client.
        frontier: Surrogates: write accuracy and gap over rho as well, on the pooled rows and on the
            test rows, to frontier.csv.
        records: Surrogates: write the records of all clients to this Parquet file, in the columns
            of the schema and a last one, weight: the real rows that each stands for, which learners
            take as sample_weight.
        refine: Surrogates: folder of exchanges, which lead to the model of all rows in one place;
            four or five do.
        answers: Answers that complete an exchange, where not all clients may answer. Default: as
            many as there are releases.
        trusted: Small table of the server's own, about 200 rows: used for nothing but how much
            each release counts. Those that make the model worse on it hardly do.
        report: Write report.html and its plots to the output folder as well.
    """
    server_config = load_settings(ServerConfig, config, settings)
    if report and not test:
        raise InputError("--report: needs --test")
    if refine and (trusted or server_config.max_client_gap is not None):
        other = "--trusted" if trusted else "--max-client-gap"
        raise InputError(
            f"--refine, {other}: give one; exchanged sums are over the rows of all clients alike"
        )

    from synthfair.files import require_free
    from synthfair.release.keys import read_keys
    from synthfair.report.answer import run_sentence
    from synthfair.report.page import write_report
    from synthfair.server import serve
    from synthfair.server.page import SERVER_FILES

    page = output / "report.html"
    if report:  # all that could refuse it, before any work is done
        plots = output.glob("report_plots/*")
        require_free(page, *plots, inputs=[records], force=force)
    exchanges = None
    if refine:
        from synthfair.federated.refine_files import replay

        exchanges = partial(
            replay,
            folder=refine,
            config=server_config,
            releases=releases,
            answers=answers or len(releases),
            keys=read_keys(keys) if keys else None,
        )
    result = serve(
        releases,
        schema,
        test,
        output,
        server_config,
        keys=keys,
        frontier=frontier,
        records=records,
        trusted=trusted,
        refine=exchanges,
        force=force,
    )
    files = [path for name in SERVER_FILES if (path := output / name).exists()]
    following = command("evaluate", "--model", files[0], "--data", "TEST.csv")
    if test:
        following = command("report", output, "--output", page)
    if report:
        write_report(output, page, force=True)
        files, following = [*files, page], opening(page)
    _tell(result)
    if result.refinement:
        following = _next_exchange(result.refinement, schema) or following
    sentence = run_sentence(output) if test else None
    conclude(sentence, [*files, *filter(None, [records])], following)


def _tell(result: ServerResult) -> None:
    """Print the metrics, the releases that stand out, and warnings."""
    from synthfair.report import result_tables as make

    if result.metrics:
        say(make.evaluation_tables(result.metrics))
    if result.point:
        say(make.pooled_summary(result.point))
    if result.influences.releases:
        say(make.influence_summary(result.influences))
    outliers = make.outlier_warning(result.influences)
    warn(make.untrained_warning(result.model), outliers, *result.warnings)


def _next_exchange(now: Refinement, schema: Path) -> str | None:
    """Say how far the exchanges have come; return the command that is next, if any is."""
    model = now.model
    if now.done:
        problem = f"objective {now.done.objective:.6f}, gradient {now.done.gradient_norm:.0e}"
        say(f"Exchanges: {now.done.exchanges}; {problem}{', the optimum' * bool(model.converged)}.")
        if model.converged:
            return None
    say(
        f"{now.missing} answers to {now.question} are missing. Each client makes one by the command"
        " below. When all lie next to the question, run the server's command again, with --force."
    )
    words = "answer", now.question, "--data", "CLIENT.csv", "--schema", schema
    return command(*words, "--output", now.question.with_name("CLIENT.json"))


@with_settings(("Settings", ServerConfig, _EVALUATION))
def evaluate(
    *,
    model: Model,
    data: tuple[Path, ...],
    id: str | None = None,  # noqa: A002 - the name of the flag
    within: str | None = None,
    max_gap: float | None = None,
    min_ratio: float | None = None,
    output: Path | None = None,
    force: Force = False,
    **settings: Any,
) -> None:
    r"""Measure accuracy and group gaps of a model that the server trained.

    They are measured over all rows of the tables given and for each table by itself. Tables without
    the label's column give selection rates and SPD; accuracy and the other gaps need labels.

        python -m synthfair evaluate --model DIR/server/model.json \
            --data DIR/*_test.csv

    With --within, groups are compared among rows of the same value of a column, such as applicants
    to one department: each value has a gap.

    Of a model whose decisions are drawn by coins, metrics are means over the coins. With thresholds
    by group, report shows the folder of --output fair/metrics.json.

    Args:
        data: Test tables, CSV or Parquet.
        id: Column of the ids, as predict takes them; no metric depends on them.
        within: Column of the tables, of few values.
        max_gap: Gap between groups that is fair enough, above 0 and below 1, of which the last
            sentence speaks. Default: 0.1, a rule of thumb.
        min_ratio: Ratio of the lowest selection rate to the highest that is fair enough, e.g. 0.8.
        output: JSON file to write the metrics to as well.
    """
    limits = {"max_gap": max_gap, "min_ratio": min_ratio}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    config = load_settings(ServerConfig, None, settings | given)

    from synthfair.evaluation import (
        decision_metrics,
        encode_tests,
        read_tests,
        rows_within,
        small_group_warnings,
    )
    from synthfair.evaluation import evaluate as measure
    from synthfair.fairness.intervals import near_constant, unfair_clients
    from synthfair.fairness.metrics import NOTION_METRICS
    from synthfair.files import require_free
    from synthfair.metrics_file import write_metrics
    from synthfair.report.answer import sentence
    from synthfair.report.result_tables import evaluation_tables, parts_table, untrained_warning
    from synthfair.trained import read_model, take_ids

    if output:
        require_free(output, inputs=(model, *data), force=force)
    trained = read_model(model)
    tables = read_tests(data, trained.schema_)
    if id:
        named = zip(data, tables.items(), strict=True)
        tables = {
            name: take_ids(rows, id, trained.schema_, source=str(path))[1]
            for path, (name, rows) in named
        }
    following = command("predict", "--model", model, "--data", "NEW.csv", "--output", "scored.csv")
    if decision := trained.decision:
        if "notion" not in config.model_fields_set:  # what the decision was chosen for
            config = config.replace(notion=decision.notion)
        if output and output.name == "metrics.json":
            page = output.with_name("report.html")
            following = command("report", output.parent, "--output", page)
    # The metrics, on a terminal and in a file.
    encoded = encode_tests(tables, trained.schema_, paths=data)
    if within:
        encoded = rows_within(encoded, tables, trained.schema_, within)
    evaluation, metric = measure(trained, encoded, config), NOTION_METRICS[config.notion]
    if output:
        write_metrics(decision_metrics(trained, evaluation), output)
    say(evaluation_tables(evaluation))
    gap, parts = evaluation.overall[metric], evaluation.client_gaps[metric]
    if within:
        say(parts_table(evaluation, metric, gap, config.asked.client_limit))
    warn(
        *small_group_warnings(evaluation, trained.schema_),
        unfair_clients(
            gap,
            parts,
            config.asked.client_limit,
            f"values of {within}" if within else "clients",
        ),
        near_constant(evaluation.overall["accuracy"], evaluation.constant_accuracy),
        untrained_warning(trained),
    )
    reads, limit = trained.needs_groups, config.max_gap
    said = sentence(metric, evaluation, target=config.asked, limit=limit, reads=reads)
    conclude(said, filter(None, [output]), following)
