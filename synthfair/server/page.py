"""A server's whole job on one page, from releases to a model with its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError
from synthfair.evaluation import (
    encode_tests,
    evaluate,
    file_names,
    read_tests,
)
from synthfair.fairness.intervals import metrics_with_intervals, size
from synthfair.fairness.metrics import NOTION_METRICS, Scored
from synthfair.files import require_free, whole_file
from synthfair.metrics_file import (
    FRONTIER,
    METRICS,
    Exchanges,
    FrontierLine,
    Influences,
    Metrics,
    MetricsFile,
    write_frontier,
    write_metrics,
)
from synthfair.release.keys import read_keys
from synthfair.server import pooling, review
from synthfair.server.pooling import Pool
from synthfair.server.settings import ServerConfig
from synthfair.surrogate.fair import FrontierPoint
from synthfair.surrogate.fair import frontier as fair_frontier
from synthfair.trained import TrainedModel, write_model


class ServerResult(NamedTuple):
    """The results of a server, as they were written.

    Attributes:
        model: the trained model.
        metrics: its metrics, as in metrics.json; None without test tables.
        influences: of the releases, by the names of their files.
        point: of surrogates, the weight of the penalty that was chosen, with accuracy and gap of
            its model on the pooled rows; None of fair releases, and after exchanges.
        frontier: accuracy and gap for many weights of the penalty; empty if not asked for.
        warnings: sentences on what is not as it should be.
        refinement: how far exchanges of sums have come; None where none are asked for.
    """

    model: TrainedModel
    metrics: MetricsFile | None
    influences: Influences
    point: FrontierPoint | None = None
    frontier: tuple[FrontierLine, ...] = ()
    warnings: tuple[str, ...] = ()
    refinement: Refinement | None = None


class Refinement(NamedTuple):
    """The model after the exchanges done, and what is to be answered next.

    Attributes:
        model: after them; without any, that of the surrogates.
        done: exchanges so far, and what the model reaches by them; None before the first.
        rho: weight of its penalty.
        question: file of the next one.
        missing: answers to it.
    """

    model: TrainedModel
    done: Exchanges | None
    rho: float
    question: Path
    missing: int


Refine = Callable[[TrainedModel, FrontierPoint, Pool], Refinement]
"""Goes on from the model of surrogates."""

SERVER_FILES = "model.json", METRICS, FRONTIER
"""Files that a server writes into its folder."""


def serve(
    releases: Sequence[Path],
    schema_path: Path,
    tests: Sequence[Path],
    output: Path,
    config: ServerConfig,
    *,
    keys: Sequence[Path] = (),
    frontier: bool = False,
    records: Path | None = None,
    trusted: Path | None = None,
    refine: Refine | None = None,
    force: bool = False,
) -> ServerResult:
    """Read releases, write model.json and metrics.json, and return what was found.

    Args:
        releases: release files, one a client; all fair, or all surrogates.
        schema_path: the public schema.
        tests: test tables, one a client; their file names, without ending, name the clients.
            Without any, there is no metrics.json.
        output: folder, made if need be.
        config: of the report, of how far one release may move the model, and, for surrogates, of
            fairness.
        keys: public key files of the clients, or folders of them; with them, each release must be
            signed by another client.
        frontier: whether accuracy and gap for many weights of the penalty are written to
            frontier.csv; for surrogates.
        records: file for the records of all surrogates, see :func:`pool_records`: columns of the
            schema, then ``weight``, as Parquet.
        trusted: small table of the server's own; see :func:`synthfair.pool_and_train`.
        refine: goes on from the model of surrogates by exchanges of sums, see
            :func:`synthfair.federated.refine_files.replay`.
        force: whether existing files are overwritten.

    Raises:
        InputError: an input is refused, one release moves the model too far, or a file exists or
            cannot be written. The files of an earlier run are then as they were.
    """
    # What is written must not be there, and must be no input.
    files = [output / name for name in SERVER_FILES] + ([records] if records else [])
    require_free(*files, inputs=(schema_path, *tests, *releases, *keys, trusted), force=force)

    # Every release is verified, as a hostile file is, and all are pooled: synthetic rows of fair
    # releases count alike, records of surrogates by the real rows that they stand for. Where the
    # server has trusted rows of its own, these weigh the releases.
    schema, clients = read_schema(schema_path), read_keys(keys) if keys else None
    read = pooling.read_releases(releases, schema, keys=clients)
    read = dict(zip(file_names(releases), read.values(), strict=True))
    rows = encode(read_table(trusted, schema), schema, source=str(trusted)) if trusted else None
    pooled = pooling.make_pool(read, schema, config, trusted=rows)
    if (frontier or refine) and pooled.penalty is None:
        raise InputError("frontier, refine: of fair releases the penalty is the clients' choice")
    if records and "weight" in schema.columns:
        raise InputError(
            "records: the schema has a column 'weight', too; leave them out", "records"
        )
    table = pooling.pool_records(read, schema)[0] if records else None
    tables = encode_tests(read_tests(tests, schema), schema, paths=tests)

    # One model is trained; of surrogates, exchanges of sums may lead on to that of all rows.
    trained, point = pooling.train_pool(pooled, schema)
    refinement = refine(trained, point, pooled) if refine and point else None
    exchanged = refinement if refinement and refinement.done else None
    model = exchanged.model if exchanged else trained

    # It is measured on the test tables: rows that the clients' owners have set aside and may show,
    # or that the server holds. A model without a penalty beside it shows what fairness costs.
    evaluation = evaluate(model, tables, config) if tables else None
    free = _without_penalty(pooled, trained, point, schema) if point and evaluation else None
    without = Metrics(**evaluate(free, tables, config).overall) if free else None

    # The pool's model without each release in turn: no release may move it too far. (Exchanges
    # start from that model; the sums that they add are limited by the rows of each client.)
    influences = review.measure_influence(pooled, trained, tables, price=point and point.price)
    most = config.max_influence or (3.0 if point else 1.0)
    review.refuse_influence(influences, most, config.max_spd_influence)
    target, notion = review.asked_of(read, config)
    warnings = review.pool_warnings(pooled, point, schema, free)
    if evaluation:
        warnings += review.evaluation_warnings(evaluation, schema, target, notion)
    lines = frontier_lines(pooled, trained, tables) if frontier else ()

    # One document says all of it.
    metrics, headers = None, {name: release.header for name, release in read.items()}
    if evaluation:
        metrics = MetricsFile.of(
            evaluation,
            n_synthetic=sum(len(release.y) for release in read.values()),
            config={name: header.config for name, header in headers.items()},
            guarantees={name: header.guarantee for name, header in headers.items()},
            hides_pairs=tuple(name for name, header in headers.items() if header.hides_pairs),
            signed_by={name: pooling.signer(read[name], clients) for name in read if clients},
            influence=influences,
            max_influence=most,
            max_spd_influence=config.max_spd_influence,
            server=config if point else None,
            asked=target,
            rho=exchanged.rho if exchanged else point.price.rho if point else None,
            pooled_gap=point.gap if point and not exchanged and point.gap >= 0 else None,
            without_penalty=None if exchanged else without,  # it was trained on surrogates alone
            left_out=pooled.left_out,
            warnings=warnings,
            converged=model.converged,
            refinement=exchanged and exchanged.done,
        )

    # All files are written before the first gets its name. Then files of an earlier run that this
    # one has no counterpart of are removed.
    with ExitStack() as outputs:
        if records and table is not None:
            table.assign(weight=pooled.weight).to_parquet(
                outputs.enter_context(whole_file(records)), index=False
            )
        if metrics:
            write_metrics(metrics, outputs.enter_context(whole_file(output / METRICS)))
        if lines:
            write_frontier(lines, outputs.enter_context(whole_file(output / FRONTIER)))
        write_model(model, outputs.enter_context(whole_file(output / "model.json")))
    stale = [name for name, content in ((METRICS, metrics), (FRONTIER, lines)) if not content]
    for name in stale:
        (output / name).unlink(missing_ok=True)
    return ServerResult(
        model, metrics, influences, None if exchanged else point, lines, warnings, refinement
    )


def _without_penalty(
    pooled: Pool, model: TrainedModel, point: FrontierPoint, schema: Schema
) -> TrainedModel:
    """Return the model of weight 0, which says what fairness costs."""
    if not point.price.rho:
        return model
    limits = dict.fromkeys(("max_gap", "max_client_gap", "min_ratio"))
    config = pooled.config.model_copy(update={"rho": 0.0, **limits})
    return pooling.train_pool(pooled._replace(config=config, compared=()), schema)[0]


def frontier_lines(
    pooled: Pool, model: TrainedModel, tables: Mapping[str, Encoded]
) -> tuple[FrontierLine, ...]:
    """Return accuracy and gap over the weight of the penalty, on pooled rows and test rows.

    Args:
        pooled: surrogates.
        model: any that was trained on it; only its inputs count.
        tables: test tables, by name; perhaps none.
    """
    lines, rows = [], None
    if tables:
        x, s, y = pooling.concatenated(tables.values())
        rows = Scored(y, model.rows(x, s), s, pooled.n_groups)
    metric = NOTION_METRICS[pooled.config.notion]
    least = pooled.config.min_group_rows
    settings = {"resamples": 1, "seed": 0, "min_group_rows": least, "by": pooled.by}
    for point in fair_frontier(cast(Any, pooled.problem())):
        accuracy = gap = np.nan
        if rows:
            scored = rows._replace(score=rows.score @ point.theta)
            metrics = metrics_with_intervals(scored, **settings)
            accuracy, gap = metrics["accuracy"].value, size(metrics[metric]).value
        numbers = point.price.rho, point.accuracy, point.gap, accuracy, gap, float(point.converged)
        lines.append(FrontierLine(*numbers))
    return tuple(lines)
