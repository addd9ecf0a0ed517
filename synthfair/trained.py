"""A trained model on disk: written, read, validated, and used without JAX."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthfair.data.schema import Schema
from synthfair.errors import InputError, reason, refusal
from synthfair.files import write_json


class TrainedModel(BaseModel):
    """A linear model with all that is needed to use it.

    Attributes:
        schema: how tables are encoded for it (``schema_`` in Python).
        version: of synthfair that trained it.
        loss: that it was trained with.
        intercept: whether the last entry of theta is an intercept.
        inputs: names of the entries of theta.
        theta: the parameters.
        gradient_norm: of the training problem at theta.
        converged: whether training met its tolerance.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True
    )

    format: Literal["synthfair-model/1"] = "synthfair-model/1"
    schema_: Schema = Field(alias="schema")
    version: str
    loss: str
    intercept: bool
    inputs: tuple[str, ...] = Field(strict=False)
    theta: tuple[float, ...] = Field(strict=False)
    gradient_norm: float
    converged: bool

    def scores(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N] scores of encoded rows x [N, d], s [N]; the decision is +1 where positive."""
        return self.rows(x, s) @ np.asarray(self.theta)

    def rows(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N, n] its inputs, of encoded rows."""
        groups = s[:, None] == np.arange(1, len(self.schema_.groups))
        parts = [x, groups, *([np.ones((len(x), 1))] if self.intercept else [])]
        return np.hstack(parts)


def input_names(schema: Schema, *, intercept: bool) -> tuple[str, ...]:
    """Names of the model inputs, in the order of :func:`synthfair.model.model_inputs`."""
    groups = [f"{schema.sensitive}={value}" for value in schema.groups[1:]]
    return (*schema.encoded_names, *groups, *(["(intercept)"] if intercept else []))


def write_model(model: TrainedModel, path: Path) -> None:
    """Writes a model as JSON with a checksum, whole or not at all."""
    body = model.model_dump(mode="json", by_alias=True)
    write_json(path, {"sha256": _checksum(body), **body})


def read_model(path: Path) -> TrainedModel:
    """Reads a model file; nothing in it is executed.

    The checksum shows damage and careless edits. It is no signature: who edits the file can
    renew it.

    Raises:
        InputError: unreadable, not a model file, altered since it was written, or inconsistent.
    """
    try:
        body = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a model file: {error}") from error
    if not isinstance(body, dict) or body.pop("sha256", None) != _checksum(body):
        raise InputError(
            f"{path}: not a model file, or altered since it was written (sha256 differs)"
        )
    try:
        model = TrainedModel.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise refusal(str(path), error) from error
    names = input_names(model.schema_, intercept=model.intercept)
    if model.inputs != names or len(model.theta) != len(names):
        raise InputError(
            f"{path}: inputs and theta must be the {len(names)} that the schema encodes"
        )
    return model


def _checksum(body: dict[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
