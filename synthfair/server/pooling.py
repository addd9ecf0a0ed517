"""Releases in, one ordinary model out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.inner import train
from synthfair.distill.problem import make_rows
from synthfair.errors import InputError
from synthfair.model import LinearModel, Model
from synthfair.release.format import Release, name_of
from synthfair.release.reading import read_release
from synthfair.release.signature import Keys
from synthfair.trained import TrainedModel, input_names


def read_releases(
    paths: Sequence[Path], schema: Schema, *, keys: Keys | None = None
) -> dict[str, Release]:
    """Reads release files, by path.

    Args:
        paths: of the files, one a client.
        schema: the clients'.
        keys: of the clients, see :func:`synthfair.release.read_keys`; with them, each release must
            be signed by another client.

    Returns:
        By path, as :func:`pool_and_train` takes them.

    Raises:
        InputError: none given, one is refused, two hold the same rows, or, with keys, two come
            from one client.
    """
    if not paths:
        raise InputError("no release files: the pool is empty")
    releases: dict[str, Release] = {}
    seen: dict[bytes, Path] = {}
    senders: dict[str, Path] = {}
    for path in paths:
        release = read_release(path, schema, keys=keys)
        before = seen.setdefault(release.fingerprint, path)
        if str(path) in releases or before != path:
            raise InputError(f"{path}: the same release as {before}; give each once")
        if keys is not None:
            client = signer(release, keys)
            before = senders.setdefault(client, path)
            if before != path:
                raise InputError(
                    f"{path}: signed by {client!r}, as is {before}; one release a client is allowed"
                )
        releases[str(path)] = release
    return releases


def signer(release: Release, keys: Keys) -> str:
    """The client that signed a release, which was read with these keys."""
    return keys[(release.signature and release.signature.public_key) or ""]


def pool(releases: Mapping[str, Release]) -> Encoded:
    """The synthetic rows of all releases, one after the other.

    Args:
        releases: by name; of one schema, at least one.
    """
    parts = [(release.x, release.s, release.y) for release in releases.values()]
    return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class TrainingProblem(NamedTuple):
    """What the server trains, as the settings of a client say."""

    model: str
    intercept: bool
    lambda_theta: float


def training_problem(releases: Mapping[str, Release]) -> TrainingProblem:
    """What all clients distilled for.

    Raises:
        InputError: no release, or two that were made for different problems.
    """
    headers = {name: release.header for name, release in releases.items()}
    found = {
        name: TrainingProblem(header.model, header.config.intercept, header.config.lambda_theta)
        for name, header in headers.items()
    }
    if not found:
        raise InputError("no releases: the pool is empty")
    first, problem = next(iter(found.items()))
    for name, other in found.items():
        if other != problem:
            raise InputError(
                f"{name}: made for {other}, but {first} for {problem}; clients must agree"
            )
    return problem


def pool_and_train(
    releases: Mapping[str, Release], schema: Schema, *, model: LinearModel | None = None
) -> TrainedModel:
    """Trains an ordinary model on the pooled synthetic rows, Wu et al. (2024) eq. (15).

    With N pooled rows and n parameters,

        theta = argmin (1/N) sum_i loss(theta; a_i, y_i) + lambda_theta / (2 n^2) ||theta||^2.

    Nothing here depends on fairness: that came with the rows.

    Args:
        releases: by name.
        schema: the clients'.
        model: that the clients distilled for, where it is not the linear model with logistic loss.
            Its params must be a vector [n] and its scores those of :class:`LinearModel`, as a
            trained model scores a'theta.

    Returns:
        The model, with how well it was trained; its ``scores`` are positive for the decision +1.

    Raises:
        InputError: no release, or they were made for different models, or another than ``model``;
            or that is not linear.

    Example:
        The files of all clients, the model, and its decisions on a table::

            releases = sf.read_releases(paths, schema)
            model = sf.pool_and_train(releases, schema)
            evaluation = sf.evaluate(model, {"test": table})
    """
    problem = training_problem(releases)
    model = model or LinearModel()
    if name_of(model) != problem.model:
        raise InputError(
            f"{next(iter(releases))}: made for the model {problem.model!r}, not {name_of(model)!r};"
            " pass that model to pool_and_train in Python"
        )
    rows = make_rows(pool(releases), n_groups=len(schema.groups), intercept=problem.intercept)
    _require_linear(model, rows.a.shape[1])
    solution = train(rows, problem.lambda_theta, model=model)
    return TrainedModel(
        schema=schema,
        version=synthfair.__version__,
        loss=problem.model,
        intercept=problem.intercept,
        inputs=input_names(schema, intercept=problem.intercept),
        theta=tuple(np.asarray(solution.params, dtype=float).tolist()),
        gradient_norm=float(solution.gradient_norm),
        converged=bool(solution.converged),
    )


def _require_linear(model: Model, n_inputs: int) -> None:
    """Refuses a model that a trained model, which scores a'theta, would not be."""
    params = model.init(n_inputs)
    if not hasattr(params, "shape") or params.shape != (n_inputs,):
        raise InputError(
            f"{name_of(model)}: its params must be a vector of {n_inputs} numbers, one an input:"
            " only linear models are trained on pooled releases"
        )
    if getattr(type(model), "scores", None) is not LinearModel.scores:
        raise InputError(
            f"{name_of(model)}: has scores of its own, but the trained model scores a'theta, as"
            " LinearModel does; another loss or Hessian is allowed"
        )
