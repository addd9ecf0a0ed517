"""A trained model on disk: written, read, validated, and used without JAX."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthfair.config.rules import STRICT
from synthfair.data.schema import Schema
from synthfair.errors import InputError, reason, refusal
from synthfair.files import write_json
from synthfair.postprocess.decision import GroupDecision
from synthfair.postprocess.histogram import ScoreHistogram

_Vector = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


class Layer(BaseModel):
    """A hidden layer: max(0, W h + b) of the h before it.

    Attributes:
        weight: W, row by row; as many rows as units.
        bias: b.
    """

    model_config = STRICT

    weight: tuple[_Vector, ...] = Field(strict=False, min_length=1)
    bias: _Vector


class TrainedModel(BaseModel):
    """A linear model, or a fully connected network, with all that is needed to use it.

    Attributes:
        schema: how tables are encoded for it (``schema_`` in Python).
        version: of synthfair that trained it.
        loss: that it was trained with.
        intercept: whether the last entry of theta is an intercept.
        inputs: names of what enters: one for each entry of theta, unless there are hidden layers.
        group_input: whether the sensitive attribute is among them.
        hidden: layers between the inputs, without the intercept, and theta.
        theta: the parameters, or those of the last layer.
        gradient_norm: of the training problem at theta; None where training has no such measure.
        converged: whether training met its tolerance; in rounds, its constraint; None where there
            is no test, as of a fixed number of noisy rounds.
        decision: by group and score; if None, the decision is +1 where the score is positive.

    Example:
        A model that says yes to everybody, by its intercept:

        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> inputs = (*schema.encoded_names, "white=1", "(intercept)")
        >>> model = sf.TrainedModel(
        ...     schema=schema, version="0", loss="logistic", intercept=True, inputs=inputs,
        ...     theta=(0.0,) * 38 + (1.0,), gradient_norm=None, converged=None,
        ... )
        >>> x, s, y = sf.encode(table, schema)
        >>> float(model.scores(x, s).min())
        1.0
    """

    model_config = STRICT | ConfigDict(populate_by_name=True)

    format: Literal["synthfair-model/1"] = "synthfair-model/1"
    schema_: Schema = Field(alias="schema")
    version: str
    loss: str
    intercept: bool
    inputs: tuple[str, ...] = Field(strict=False)
    group_input: bool = True
    hidden: tuple[Layer, ...] = Field(default=(), strict=False, max_length=20)
    theta: tuple[float, ...] = Field(strict=False)
    gradient_norm: float | None
    converged: bool | None
    decision: GroupDecision | None = None

    def scores(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N] scores of encoded rows x [N, d], s [N]."""
        return self.rows(x, s) @ np.asarray(self.theta)

    def decide(
        self, scores: np.ndarray, s: np.ndarray, ids: Iterable[str] | None = None
    ) -> np.ndarray:
        """[N] whether the decision is +1, of scores [N] and groups s [N].

        Raises as :meth:`synthfair.postprocess.GroupDecision.decide`, which explains the ids.
        """
        if self.decision is None:
            return scores > 0
        return self.decision.decide(scores, s, ids)

    def probabilities(self, scores: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N] probability of the decision +1: 0 or 1, unless decisions are randomised."""
        if self.decision is None:
            return (scores > 0).astype(float)
        return self.decision.probabilities(scores, s)

    def require_counted(self, histogram: ScoreHistogram) -> None:
        """Refuses a histogram of another schema or another model's scores. Raises InputError."""
        if histogram.schema_hash != self.schema_.hash:
            raise InputError(
                f"histogram: schema_hash {histogram.schema_hash}: is of another schema than the"
                f" model's, {self.schema_.hash}"
            )
        if histogram.model != self.sha256:
            raise InputError(
                f"histogram: model {histogram.model}: its scores are another model's; this one is"
                f" {self.sha256}"
            )
        if histogram.groups != tuple(map(str, self.schema_.groups)):
            raise InputError(
                f"histogram: groups {list(histogram.groups)}: must be {list(self.schema_.groups)}"
            )

    @property
    def sha256(self) -> str:
        """Of all that the model is: the checksum in its file."""
        return _checksum(self.body())

    def body(self) -> dict[str, Any]:
        """As in its file, without the checksum; a decision stands there only if there is one."""
        left_out = {"decision"} if self.decision is None else None
        return self.model_dump(mode="json", by_alias=True, exclude=left_out)

    def rows(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """[N, n] what theta is multiplied by, of encoded rows."""
        groups = s[:, None] == np.arange(1, len(self.schema_.groups))
        h = np.hstack([x, groups]) if self.group_input else x
        for layer in self.hidden:
            h = np.maximum(h @ np.asarray(layer.weight).T + np.asarray(layer.bias), 0.0)
        return np.hstack([h, *([np.ones((len(x), 1))] if self.intercept else [])])


def input_names(schema: Schema, *, intercept: bool, group_input: bool = True) -> tuple[str, ...]:
    """Names of the model inputs, in the order of :func:`synthfair.data.real_rows.gather`."""
    groups = [f"{schema.sensitive}={value}" for value in schema.groups[1:]] if group_input else []
    return (*schema.encoded_names, *groups, *(["(intercept)"] if intercept else []))


def write_model(model: TrainedModel, path: Path) -> None:
    """Writes a model as JSON with a checksum, whole or not at all.

    Args:
        model: what is written.
        path: of the file; one that exists is overwritten.

    Raises:
        InputError: it cannot be written.
    """
    write_json(path, {"sha256": model.sha256, **model.body()})


def read_model(path: Path) -> TrainedModel:
    """Reads a model file; nothing in it is executed.

    The checksum shows damage and careless edits. It is no signature: who edits the file can
    renew it.

    Args:
        path: of a file that :func:`write_model` wrote, or a server.

    Returns:
        The model, validated.

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
    _check_shapes(model, path)
    return model


def _check_shapes(model: TrainedModel, path: Path) -> None:
    names = input_names(
        model.schema_,
        intercept=model.intercept and not model.hidden,
        group_input=model.group_input,
    )
    if model.inputs != names or (not model.hidden and len(model.theta) != len(names)):
        raise InputError(
            f"{path}: inputs and theta must be the {len(names)} that the schema encodes"
        )
    width = len(names)
    for i, layer in enumerate(model.hidden, 1):
        if len(layer.weight) != len(layer.bias) or {len(w) for w in layer.weight} != {width}:
            raise InputError(f"{path}: hidden layer {i}: must be of {width} inputs")
        width = len(layer.bias)
    if model.hidden and len(model.theta) != width + model.intercept:
        raise InputError(f"{path}: theta must have {width + model.intercept} entries")
    if model.decision and len(model.decision.steps) != len(model.schema_.groups):
        raise InputError(
            f"{path}: decision: steps must be those of {len(model.schema_.groups)} groups"
        )


def _checksum(body: dict[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
