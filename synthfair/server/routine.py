"""The server's whole routine: releases in, one logistic model and its metrics out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError
from synthfair.evaluation import (
    encode_tests,
    evaluate,
    file_names,
    read_tests,
    small_group_warnings,
)
from synthfair.fairness.intervals import (
    FEW_ROWS,
    MOST_NAMED,
    metrics_with_intervals,
    missed_gap,
    near_constant,
    size,
    unfair_clients,
)
from synthfair.fairness.metrics import METRIC_OF, Scored
from synthfair.fairness.penalties import Grouping
from synthfair.files import require_free, whole_file
from synthfair.release.format import Release
from synthfair.release.keys import read_keys
from synthfair.run_files import (
    FRONTIER,
    METRICS,
    Evaluation,
    FrontierLine,
    Metrics,
    MetricsFile,
    write_frontier,
    write_metrics,
)
from synthfair.server.influence import Influences, influence_in, refuse_influence
from synthfair.server.pooling import (
    MANY_MEDIANS,
    Pool,
    make_pool,
    pool_records,
    read_releases,
    signer,
    train_pool,
)
from synthfair.server.trust import MIN_TRUST
from synthfair.settings import DistillConfig, ServerConfig, Target
from synthfair.surrogate.fair import frontier as fair_frontier
from synthfair.surrogate.objective import FrontierPoint
from synthfair.trained import TrainedModel, write_model


class ServerResult(NamedTuple):
    """What a server has written.

    Attributes:
        model: the trained model.
        metrics: its metrics, as in metrics.json; None without test tables.
        influences: of the releases, by the names of their files.
        point: of surrogates, the weight of the penalty and what the model reaches on the pooled
            rows; None of fair releases.
        frontier: other weights, and what their models reach; none if not asked for.
        warnings: sentences on what is not as it should be.
        max_rows: that a client counts as, at most.
        by: groupings that the penalty compares, of several attributes.
    """

    model: TrainedModel
    metrics: MetricsFile | None
    influences: Influences
    point: FrontierPoint | None = None
    frontier: tuple[FrontierLine, ...] = ()
    warnings: tuple[str, ...] = ()
    max_rows: float = np.inf
    by: tuple[Grouping, ...] = ()


FILES = "model.json", METRICS, FRONTIER, "frontier.svg"
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
        force: whether existing files are overwritten.

    Raises:
        InputError: an input is refused, one release moves the model too far, or a file exists or
            cannot be written.
    """
    # What is written must not be there, and must be no input.
    files, more = [output / name for name in FILES], [records] if records else []
    inputs = (schema_path, *tests, *releases, *keys, trusted)
    require_free(*files, *more, inputs=inputs, force=force)

    # Every release is verified, and all are pooled.
    schema, clients = read_schema(schema_path), read_keys(keys) if keys else None
    read = read_releases(releases, schema, keys=clients)
    rows = encode(read_table(trusted, schema), schema, source=str(trusted)) if trusted else None
    pooled = make_pool(read, schema, config, trusted=rows)
    if frontier and pooled.penalty is None:
        raise InputError("frontier: fair releases have one weight of the penalty, their clients'")
    table = _records(read, schema, pooled) if records else None
    tables = encode_tests(read_tests(tests, schema), schema, sources=tests)

    # One model is trained, and measured on the test tables.
    model, point = train_pool(pooled, schema)
    evaluation = evaluate(model, tables, config) if tables else None
    free = _without_penalty(pooled, model, point, schema) if point and evaluation else None
    without = Metrics(**evaluate(free, tables, config).overall) if free else None

    # No release may move it too far; what looks wrong is said.
    influences = influence_in(pooled, model, tables, price=point.price if point else None)
    missed = _missed(evaluation, read, config) if evaluation else ()
    remedy = UNLIKE if missed and not point else ""
    most = config.most_influence(surrogates=point is not None)
    refuse_influence(influences, most, config.max_spd_influence, remedy=remedy)
    warnings = _hardly_count(pooled, file_names(releases))
    warnings += _surrogate_warnings(pooled, point, config, schema, free) if point else ()
    if evaluation:
        warnings += (*missed, *small_group_warnings(evaluation, schema))
    least = config.min_group_rows
    lines = frontier_lines(pooled, model, tables, least) if frontier else ()

    # All is computed before anything is written, and what no longer holds is removed.
    named = dict(zip(file_names(releases), read.values(), strict=True))
    headers = {name: release.header for name, release in named.items()}
    by_file = dict(zip(named, influences.releases.values(), strict=False))  # none in a pool of one
    influences, metrics = influences._replace(releases=by_file), None
    if evaluation:
        signed = {name: signer(release, clients) for name, release in named.items() if clients}
        metrics = MetricsFile.of(
            evaluation,
            n_synthetic=sum(len(release.y) for release in named.values()),
            config={name: header.config for name, header in headers.items()},
            guarantees={name: header.guarantee for name, header in headers.items()},
            hides_pairs=tuple(name for name, header in headers.items() if header.hides_pairs),
            signed_by=signed,
            influence=influences,
            max_influence=most,
            max_spd_influence=config.max_spd_influence,
            server=config if point else None,
            asked=config.asked if point else _asked(read),
            rho=point.price.rho if point else None,
            without_penalty=without,
            left_out=pooled.left_out,
            warnings=warnings,
            converged=model.converged,
        )
    for path in files:
        path.unlink(missing_ok=True)
    if metrics:
        write_metrics(metrics, output / METRICS)
    write_model(model, output / "model.json")
    if records and table is not None:
        with whole_file(records) as temporary:
            table.to_parquet(temporary, index=False)
    if lines:
        write_frontier(lines, output / FRONTIER)
    return ServerResult(
        model, metrics, influences, point, lines, warnings, pooled.max_rows, pooled.by
    )


UNLIKE = (
    "The clients may be unlike: ask them to send surrogates (release = surrogate), of which"
    " this server trains a model that is fair over all of them."
)
"""The remedy where a pool of fair releases is not fair or accurate enough."""

STRICTER = "Ask for a smaller max_gap, or look at the frontier for what can be had."
"""The remedy for surrogates: what is wanted holds on the pooled rows, and test rows differ."""


def _missed(
    evaluation: Evaluation, releases: Mapping[str, Release], config: ServerConfig
) -> tuple[str, ...]:
    """Return what to say of a model that is less fair, or less accurate, than it should be."""
    asked, notion, remedy = config.asked, config.notion, STRICTER
    configs = [release.header.config for release in releases.values()]
    if fair := [config for config in configs if isinstance(config, DistillConfig)]:
        # The strictest wish says which rows are compared; without one, the first client does.
        notion = min(fair, key=lambda one: one.max_gap or np.inf).notion
        asked, remedy = _asked(releases), UNLIKE
    metric, accuracy = METRIC_OF[notion], evaluation.overall["accuracy"]
    gap, clients = evaluation.overall[metric], evaluation.client_gaps[metric]
    # Where a group has few rows, or none of a label, a smaller gap on the pooled rows is no remedy.
    if np.isnan(gap.value) or evaluation.small_groups:
        remedy = "Give test tables with more rows of each group and label."
    found = (
        (missed_gap(gap, asked.max_gap), f". {remedy}"),
        (
            unfair_clients(gap, clients, asked.client_limit),
            ". Of surrogates a server takes max_client_gap",
        ),
        (near_constant(accuracy, evaluation.constant_accuracy), f". {UNLIKE}" if fair else ""),
    )
    return tuple(said + remedy for said, remedy in found if said)


def _asked(fair: Mapping[str, Release]) -> Target:
    """How much fairness the clients' own settings ask for."""
    configs = (release.header.config for release in fair.values())
    return Target.of(config.asked for config in configs if isinstance(config, DistillConfig))


def _without_penalty(
    pooled: Pool, model: TrainedModel, point: FrontierPoint, schema: Schema
) -> TrainedModel:
    """The model of weight 0, which says what fairness costs."""
    if not point.price.rho:
        return model
    free = pooled._replace(rho=0.0, max_gap=None, max_client_gap=None, compared=())
    return train_pool(free, schema)[0]


def _hardly_count(pooled: Pool, names: Sequence[str]) -> tuple[str, ...]:
    """Says which releases hardly count, given trusted rows."""
    weights = zip(names, pooled.trust.values(), strict=False)  # none without trusted rows
    if not (few := [f"{name} ({weight:.2g})" for name, weight in weights if weight < MIN_TRUST]):
        return ()
    more = f" and {len(few) - 5} more" if len(few) > 5 else ""
    return (
        f"{', '.join(few[:5])}{more}: a row counts for less than {MIN_TRUST:g} rows, as the model"
        " does better on the trusted rows without. Ask the sites whether groups, labels and units"
        " are right; their people may also be others than those of the trusted rows, or their"
        " pairs of group and label be made up (`inspect` says so)",
    )


def _surrogate_warnings(
    pooled: Pool,
    point: FrontierPoint,
    config: ServerConfig,
    schema: Schema,
    free: TrainedModel | None,
) -> tuple[str, ...]:
    """Says what is wrong with a pool of surrogates, its model and that without a penalty."""
    usual = "" if config.max_rows else f", {MANY_MEDIANS:g} times the lower median of the releases"
    found = [
        f"{name}: claims {claim:,.0f} rows, and counts as {pooled.max_rows:,.0f}{usual}; ask its"
        " site how many it has, and set max_rows"
        for name, claim in pooled.capped.items()
    ]
    if pooled.left_out:
        found.append(
            f"too few rows to be compared, of all releases together: {_some(pooled.left_out)}"
        )
    times = Counter(pair for pairs in pooled.estimated.values() for pair in pairs)
    if times:
        each = [f"{schema.pair(*pair)} (of {n} releases)" for pair, n in times.items()]
        found.append(
            f"estimated, not reported: {_some(each)}; where there are no such people, the model"
            " decides less well for that group"
        )
    if pooled.unpaired:
        found.append(
            f"{_some(pooled.unpaired)}: some pair of group and label has fewer rows than k_min,"
            " and how often pairs occur is made up from labels and groups. These rows take part in"
            f" the loss, but not in {config.notion}: ask for releases with a lower k_min, or for"
            " statistical_parity"
        )
    limits = {
        "gap on the pooled rows": (point.gap, config.max_gap),
        "largest gap of a client on its pooled rows": (point.client_gap, config.max_client_gap),
    }
    for what, (gap, most) in limits.items():
        if most is not None and gap > most:
            found.append(
                f"no model that was tried brings the {what} to {most:g}; this one has {gap:.3f}"
            )
    if free and point.price.rho and not free.converged:
        found.append(
            "the training without a penalty, which says what fairness costs, did not converge;"
            f" gradient norm {free.gradient_norm:.1e}"
        )
    trusted = [name for name in pooled.parts if pooled.trust.get(name, 1.0) >= MIN_TRUST]
    few = [n for n in trusted if n not in pooled.compared and n not in pooled.unpaired]
    if few and config.max_client_gap is not None:
        found.append(
            f"max_client_gap leaves out {_some(few)}, which stand for fewer"
            f" than {max(FEW_ROWS, config.min_group_rows)} rows of a group that is compared"
        )
    return tuple(found)


def frontier_lines(
    pooled: Pool, model: TrainedModel, tables: Mapping[str, Encoded], min_group_rows: int = 0
) -> tuple[FrontierLine, ...]:
    """Return accuracy and gap over the weight of the penalty, on pooled rows and test rows.

    Args:
        pooled: surrogates.
        model: any that was trained on it; only its inputs count.
        tables: test tables, by name; perhaps none.
        min_group_rows: groups with fewer test rows do not count for their gap.
    """
    lines, rows = [], None
    if tables:
        x, s, y = (np.concatenate(part) for part in zip(*tables.values(), strict=True))
        rows = Scored(y, model.rows(x, s), s, pooled.n_groups)
    settings = {"resamples": 1, "seed": 0, "min_group_rows": min_group_rows, "by": pooled.by}
    for point in fair_frontier(cast(Any, pooled.problem())):
        accuracy = gap = np.nan
        if rows:
            scored = rows._replace(score=rows.score @ point.theta)
            found = metrics_with_intervals(scored, **settings)
            accuracy, gap = found["accuracy"].value, size(found[METRIC_OF[pooled.notion]]).value
        numbers = point.price.rho, point.accuracy, point.gap, accuracy, gap, float(point.converged)
        lines.append(FrontierLine(*numbers))
    return tuple(lines)


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _records(releases: Mapping[str, Release], schema: Schema, pooled: Pool) -> pd.DataFrame:
    """Return the records of all releases, with a last column ``weight``."""
    if "weight" in schema.columns:
        raise InputError(
            "records: have a column 'weight' of their own, and so has the schema; leave them out",
            "records",
        )
    table, _ = pool_records(releases, schema)
    return table.assign(weight=np.asarray(pooled.rows.weight))
