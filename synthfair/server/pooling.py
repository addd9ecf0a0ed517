"""Releases in, one ordinary model out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.inner import InnerSolution, train
from synthfair.distill.problem import make_rows
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.release.format import Release, name_of
from synthfair.release.reading import release_reader
from synthfair.release.signature import Keys
from synthfair.trained import TrainedModel, input_names


def read_releases(
    paths: Sequence[Path], schema: Schema, *, keys: Keys | None = None
) -> dict[str, Release]:
    """Reads release files, by path.

    Args:
        paths: of the files, one a client.
        schema: the clients'.
        keys: of the clients; with them, each release must be signed by another client.

    Raises:
        InputError: none given, one is refused, two hold the same rows, or, with keys, two come
            from one client.
    """
    if not paths:
        raise InputError("no release files: the pool is empty")
    read = release_reader(schema, keys=keys)
    releases: dict[str, Release] = {}
    seen: dict[bytes, Path] = {}
    senders: dict[str, Path] = {}
    for path in paths:
        release = read(path)
        before = seen.setdefault(release.fingerprint, path)
        if str(path) in releases or before != path:
            raise InputError(f"{path}: the same release as {before}; give each once")
        if keys is not None:
            _refuse_second(path, signer(release, keys), senders)
        releases[str(path)] = release
    return releases


def signer(release: Release, keys: Keys) -> str:
    """The client that signed a release, which was read with these keys."""
    return keys[(release.seal and release.seal.public_key) or ""]


def _refuse_second(path: Path, client: str, senders: dict[str, Path]) -> None:
    before = senders.setdefault(client, path)
    if before != path:
        raise InputError(
            f"{path}: signed by {client!r}, as is {before}; one release a client is allowed"
        )


def pool(releases: Mapping[str, Release]) -> Encoded:
    """The synthetic rows of all releases, one after the other."""
    parts = [(release.x, release.s, release.y) for release in releases.values()]
    return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Foreseen(NamedTuple):
    """What a client foresaw of the server's model."""

    model: str
    intercept: bool
    lambda_theta: float


def foreseen(releases: Mapping[str, Release]) -> Foreseen:
    """The model that all clients foresaw.

    Raises:
        InputError: no release, or two that foresee different models.
    """
    wishes = {name: _wish(release) for name, release in releases.items()}
    if not wishes:
        raise InputError("no releases: the pool is empty")
    first, wish = next(iter(wishes.items()))
    for name, other in wishes.items():
        if other != wish:
            raise InputError(
                f"{name}: made for {other}, but {first} for {wish}; clients must agree"
            )
    return wish


def _wish(release: Release) -> Foreseen:
    config = release.header.config
    return Foreseen(release.header.model, config.intercept, config.lambda_theta)


def pool_and_train(
    releases: Mapping[str, Release], schema: Schema, *, model: LinearModel | None = None
) -> TrainedModel:
    """Trains an ordinary model on the pooled synthetic rows, Wu et al. (2024) eq. (15).

    Nothing here knows of fairness: that came with the rows.

    Args:
        releases: by name.
        schema: the clients'.
        model: what the clients foresaw, where it is not the linear model with logistic loss.

    Raises:
        InputError: no release, or they foresee different models, or another than ``model``.
    """
    wish = foreseen(releases)
    model = model or LinearModel()
    if name_of(model) != wish.model:
        raise InputError(
            f"{next(iter(releases))}: made for the model {wish.model!r}, not {name_of(model)!r};"
            " pass that model to pool_and_train in Python"
        )
    rows = make_rows(pool(releases), n_groups=len(schema.groups), intercept=wish.intercept)
    solution = train(rows, wish.lambda_theta, model=model)
    return as_trained(solution, schema, loss=wish.model, intercept=wish.intercept)


def as_trained(
    solution: InnerSolution, schema: Schema, *, loss: str, intercept: bool
) -> TrainedModel:
    """The params theta of a linear model, ready to be written and used."""
    return TrainedModel(
        schema=schema,
        version=synthfair.__version__,
        loss=loss,
        intercept=intercept,
        inputs=input_names(schema, intercept=intercept),
        theta=tuple(np.asarray(solution.params, dtype=float).tolist()),
        gradient_norm=float(solution.gradient_norm),
        converged=bool(solution.converged),
    )
