"""The server's whole routine: releases in, one ordinary model and its metrics out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from synthfair.config import ServerConfig
from synthfair.data.schema import read_schema
from synthfair.evaluation import (
    Evaluation,
    as_numbers,
    evaluate,
    evaluation_document,
    file_names,
    number,
    read_tests,
)
from synthfair.files import require_distinct, require_free, write_json
from synthfair.release.keys import read_keys
from synthfair.server.influence import Influences, measure_influence, refuse_influence
from synthfair.server.pooling import pool_and_train, read_releases, signer
from synthfair.trained import TrainedModel, write_model


class Served(NamedTuple):
    """What a server has written.

    Attributes:
        model: the trained model.
        evaluation: its metrics.
        influences: of the releases, by the names of their files.
    """

    model: TrainedModel
    evaluation: Evaluation
    influences: Influences


def serve(
    releases: Sequence[Path],
    schema_path: Path,
    tests: Sequence[Path],
    output: Path,
    config: ServerConfig,
    *,
    keys: Sequence[Path] = (),
    force: bool = False,
) -> Served:
    """From files to files: writes model.json and metrics.json.

    Args:
        releases: release files, one a client.
        schema_path: the public schema.
        tests: test tables, one a client; their file names, without ending, name the clients.
        output: folder, made if need be.
        config: of the report, and of how far one release may move the model.
        keys: public key files of the clients, or folders of them; with them, each release must be
            signed by another client.
        force: whether existing files are overwritten.

    Raises:
        InputError: an input is refused, one release moves the model too far, or a file exists or
            cannot be written.
    """
    model_path, metrics_path = output / "model.json", output / "metrics.json"
    for path in (model_path, metrics_path):
        require_distinct(path, schema_path, *tests, *releases, *keys)
    require_free(model_path, metrics_path, force=force)
    schema = read_schema(schema_path)
    clients = read_keys(keys) if keys else None
    pooled = read_releases(releases, schema, keys=clients)
    model = pool_and_train(pooled, schema)
    tables = read_tests(tests, schema)
    evaluation = evaluate(model, tables, config, sources=tests)
    influences = measure_influence(pooled, model, tables)
    refuse_influence(influences, config.max_influence)
    names = file_names(releases)
    named = dict(zip(names, pooled.values(), strict=True))
    # A pool of one has no influences.
    influences = influences._replace(
        releases=dict(zip(names, influences.releases.values(), strict=False))
    )
    signed = {} if clients is None else {name: signer(r, clients) for name, r in named.items()}
    headers = {name: release.header for name, release in named.items()}
    document = {
        **evaluation_document(evaluation, schema, config),
        "n_synthetic": sum(len(release.y) for release in pooled.values()),
        "config": {name: header.config.model_dump(mode="json") for name, header in headers.items()},
        "privacy": {
            name: header.privacy.model_dump(mode="json") for name, header in headers.items()
        },
        **({"signed_by": signed} if signed else {}),
        "influence": {
            "outliers_above": number(influences.outliers_above),
            "releases": as_numbers(influences.releases),
        },
        "max_influence": config.max_influence,
        "converged": model.converged,
    }
    write_model(model, model_path)
    write_json(metrics_path, document)
    return Served(model, evaluation, influences)
