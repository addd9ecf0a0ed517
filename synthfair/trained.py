"""A trained model, which is written, read, validated, used for rows without labels; without JAX."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from synthfair.data.bases import Steps
from synthfair.data.encode import Clipping, encode_inputs, expand, in_pandas, tidied
from synthfair.data.schema import INTERCEPT, Categorical, Numeric, Schema, encoded_as, shown
from synthfair.data.tables import take_names, with_starts
from synthfair.errors import InputError, require
from synthfair.files import parse_as, parse_object, read_bytes, write_json
from synthfair.postprocess.histogram import GroupDecision, ScoreHistogram
from synthfair.settings import STRICT

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline

COEFFICIENTS = "coefficients"
"""Key of a model file, not of the model: they follow from it, and are in no checksum."""

MAX_MODEL_BYTES = 100_000_000
"""The largest size of a model file: two thousand units after 2,000 inputs take less."""

MAX_SCORE = 1e12
"""The largest score of a model from a file: beyond, single precision loses all digits."""

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
        >>> inputs = (*schema.encoded_names, "(intercept)")
        >>> model = sf.TrainedModel(
        ...     schema=schema, version="0", loss="logistic", intercept=True, inputs=inputs,
        ...     theta=(0.0,) * 37 + (1.0,), gradient_norm=None, converged=None,
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
    group_input: bool = False
    hidden: tuple[Layer, ...] = Field(default=(), strict=False, max_length=20)
    theta: tuple[float, ...] = Field(strict=False)
    gradient_norm: float | None
    converged: bool | None
    decision: GroupDecision | None = None

    def scores(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return [N] scores of encoded rows x [N, d], s [N]."""
        return self.rows(x, s) @ np.asarray(self.theta)

    def decide(
        self, scores: np.ndarray, s: np.ndarray, ids: Iterable[str] | None = None
    ) -> np.ndarray:
        """Return [N] whether the decision is +1, of scores [N] and groups s [N].

        Raises as :meth:`synthfair.postprocess.GroupDecision.decide`, which explains the ids.
        """
        if self.decision is None:
            return scores > 0
        return self.decision.decide(scores, s, ids)

    def probabilities(self, scores: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return [N] probability of the decision +1: 0 or 1, unless decisions are randomised."""
        if self.decision is None:
            return (scores > 0).astype(float)
        return self.decision.probabilities(scores, s)

    def with_cutoff(self, cutoff: float) -> TrainedModel:
        """Return the model that decides +1 above this probability, in place of above 1/2.

        Its scores are lower by log(cutoff / (1 - cutoff)), by its intercept.

        Raises:
            InputError: the cutoff is not between 0 and 1, or the model decides by group.
        """
        if not 0 < cutoff < 1:
            raise InputError(f"cutoff {cutoff:g}: must be above 0 and below 1")
        if self.decision is not None:
            raise InputError("cutoff: the model decides by group, by cutoffs of its own")
        theta, inputs = self.theta, self.inputs
        if not self.intercept:
            theta = (*theta, 0.0)
            inputs = inputs if self.hidden else (*inputs, INTERCEPT)
        theta = (*theta[:-1], theta[-1] - float(np.log(cutoff / (1 - cutoff))))
        return self.model_copy(update={"theta": theta, "inputs": inputs, "intercept": True})

    def predict(self, table: pd.DataFrame) -> np.ndarray:
        """Return the decision [N] for each row, a label's value; see :func:`synthfair.predict`.

        No column of groups is needed, unless the model reads it or decides by group.

        Raises:
            InputError: the table does not fit the schema; or decisions are drawn by coins, which
                need the ids of :func:`synthfair.predict`.
        """
        x, s = self.encode(table)
        negative, positive = self.schema_.decided
        return np.where(self.decide(self.scores(x, s), s), positive, negative)

    def __repr__(self) -> str:
        """Return its schema's name, size and loss, in a line."""
        layers = f", {len(self.hidden)} hidden layers" if self.hidden else ""
        reads = f", reads {self.schema_.sensitive_name}" if self.group_input else ""
        by_group = ", decides by group" if self.decision else ""
        name, n, solved = self.schema_.name, len(self.inputs), f"converged={self.converged}"
        return f"TrainedModel({name}, {n} inputs{reads}{layers}, {self.loss}{by_group}, {solved})"

    def __str__(self) -> str:
        """Return the same: pydantic's own is of all fields."""
        return repr(self)

    def require_counted(self, histogram: ScoreHistogram) -> None:
        """Refuse a histogram of another schema or another model's scores. Raises InputError."""
        groups = tuple(map(str, self.schema_.groups))
        needed = {"schema_hash": self.schema_.hash, "model": self.sha256, "groups": groups}
        for key, value in needed.items():
            if (counted := getattr(histogram, key)) != value:
                raise InputError(f"histogram: {key} {counted}: is another model's, not {value}")

    @property
    def needs_groups(self) -> bool:
        """Return whether a decision takes the group: the model reads it, or decides by group."""
        return self.group_input or self.decision is not None

    def encode(
        self,
        table: pd.DataFrame,
        *,
        source: str = "table",
        rows_before: int | None = None,
        clipping: Clipping | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return X [N, d] and s [N] of a table's rows, labelled or not, as decisions take them.

        Unless decisions take groups, their columns may be absent, and s is 0. Arguments as of
        :func:`synthfair.encode`; without ``clipping``, a warning names what is clipped much.

        Raises:
            InputError: the table does not fit the schema, or has no column of groups.
        """
        table, seen = in_pandas(table), clipping or Clipping()
        names = {str(name).strip() for name in table.columns}
        lacking = [name for name in self.schema_.attributes if name not in names]
        if self.needs_groups and lacking:
            why = "reads it to decide" if self.group_input else "decides by group"
            raise InputError(f"{source}: column {lacking[0]!r} is missing; the model {why}")
        given = {"source": source, "rows_before": rows_before, "groups": self.needs_groups}
        x, s = encode_inputs(table, self.schema_, clipping=seen, **given)
        if clipping is None:
            seen.warn(source)
        return x, s

    @property
    def sha256(self) -> str:
        """Return the checksum of all that the model is, as in its file."""
        return _checksum(self.body())

    def body(self) -> dict[str, Any]:
        """Return the content of its file without the checksum, and without a missing decision."""
        left_out = {"decision"} if self.decision is None else None
        return self.model_dump(mode="json", by_alias=True, exclude=left_out)

    def rows(self, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return [N, n] what theta is multiplied by, of encoded rows."""
        groups = s[:, None] == np.arange(1, len(self.schema_.groups))
        h = np.hstack([x, groups]) if self.group_input else x
        for layer in self.hidden:
            h = np.maximum(h @ np.asarray(layer.weight).T + np.asarray(layer.bias), 0.0)
        return np.hstack([h, *([np.ones((len(x), 1))] if self.intercept else [])])

    @property
    def logistic(self) -> bool:
        """Return whether it was trained with the logistic loss: sigmoid(score) is P(y = +1)."""
        return self.loss.startswith(("linear, logistic loss", "logistic"))

    @property
    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of a linear model, by input in the units of the table.

            score = (intercept) + sum of coefficient * value

        over numbers, at the bound where they are clipped and 0 where they are missing; over
        indicators, such as ``home=rent`` and ``age is missing``, that are 0 or 1; and over basis
        functions and products of encoded columns, as they are.

        Raises:
            InputError: there are hidden layers.
        """
        theta = iter(self._linear("coefficients"))
        constant, values = 0.0, {}
        for name, column in self.schema_.features.items():
            names = encoded_as(name, column)
            of_column = dict(zip(names, islice(theta, len(names)), strict=True))
            # theta (value - lower) / (upper - lower)
            if isinstance(column, Numeric) and not column.basis:
                of_column[name] /= column.upper - column.lower
                constant -= of_column[name] * column.lower
                if column.missing == "category":
                    of_column[names[1]] += of_column[name] * column.lower
            values |= of_column
        values |= dict(zip(self.inputs[len(values) :], theta, strict=True))
        return values | {INTERCEPT: values.get(INTERCEPT, 0.0) + constant}

    @property
    def middle(self) -> np.ndarray:
        """Return [n] the inputs that scores are explained against, unless others are named.

        Numbers are in the middle of their bounds, or where they enter by steps below all, as these
        suit amounts that are mostly small; of the categories of a column, and of the groups,
        each counts equally; nothing is missing.
        """
        blocks = []
        for column in self.schema_.features.values():
            n = len(column.categories) if isinstance(column, Categorical) else 2
            below = isinstance(column, Numeric) and isinstance(column.basis, Steps)
            blocks += [0.0 if below else 1 / n] * (n if n > 2 else 1)
            blocks += [0.0] * (column.missing == "category")
        blocks = expand(np.array([blocks]), self.schema_)[0].tolist()
        if self.group_input:
            blocks += [1 / len(self.schema_.groups)] * (len(self.schema_.groups) - 1)
        return np.array(blocks + [1.0] * self.intercept)

    def contributions(
        self, x: np.ndarray, s: np.ndarray, reference: np.ndarray | None = None
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Return the contribution of each column of the table to each score of a linear model.

            score(a) = score(r) + sum over columns of sum over its inputs j of theta_j (a_j - r_j)

        for a reference r: exact, and of a linear model and independent columns the Shapley values,
        Lundberg and Lee (2017), corollary 1, where r is the mean of rows.

        Args:
            x: [N, d] encoded rows.
            s: [N] their groups.
            reference: [n] inputs; :attr:`middle` if None. For the mean of other rows:
                ``model.rows(x, s).mean(axis=0)``.

        Returns:
            The reference's score, and by column, or pair of columns that interact, [N] what it
            adds; the group only where it is read.

        Raises:
            InputError: there are hidden layers.
        """
        theta = self._linear("contributions")
        reference = self.middle if reference is None else reference
        widths = {name: len(names) for name, names in self.schema_.encoded_blocks.items()}
        if self.group_input:
            widths[self.schema_.sensitive_name] = len(self.schema_.groups) - 1
        terms = (self.rows(x, s) - reference) * theta
        blocks = np.split(terms, np.cumsum(list(widths.values())), axis=1)  # and the intercept
        parts = {name: block.sum(axis=1) for name, block in zip(widths, blocks, strict=False)}
        return float(reference @ theta), parts

    def _linear(self, feature: str) -> np.ndarray:
        if self.hidden:
            raise InputError(f"{feature}: only linear models have them, without hidden layers")
        return np.asarray(self.theta)

    def to_sklearn(self) -> Pipeline:
        """Return a fitted pipeline that predicts from raw columns as ``predict`` does.

        Its steps are ``encode``, a FunctionTransformer by the schema, and ``model``, a
        LogisticRegression, whose classes are in order: where the positive label is the first, its
        decision function is -score, and a score of exactly 0 the positive label. Needs the extra
        ``sklearn``.

        Raises:
            InputError: it is no logistic regression, or decides by group, or scikit-learn is not
                there; later, rows that do not fit the schema.
        """
        require("sklearn", "to_sklearn", "sklearn")
        from synthfair.export.pipeline import to_pipeline

        return to_pipeline(self)


def input_names(schema: Schema, *, intercept: bool, group_input: bool = False) -> tuple[str, ...]:
    """Return the names of the inputs, in the order that a problem has them in."""
    groups = (
        [f"{schema.sensitive_name}={value}" for value in schema.groups[1:]] if group_input else []
    )
    return (*schema.encoded_names, *groups, *([INTERCEPT] if intercept else []))


def write_model(model: TrainedModel, path: str | PathLike[str]) -> None:
    """Write a model as JSON with a checksum, whole or not at all.

    Of a linear model, its :attr:`TrainedModel.coefficients` stand there for readers.

    Args:
        model: what is written.
        path: of the file; one that exists is overwritten.

    Raises:
        InputError: it cannot be written.
    """
    extra = {} if model.hidden else {COEFFICIENTS: model.coefficients}
    write_json(Path(path), {"sha256": model.sha256, **model.body(), **extra})


def read_model(path: str | PathLike[str]) -> TrainedModel:
    """Read a model file; nothing in it is executed.

    The checksum shows damage and careless edits. It is no signature: who edits the file can
    renew it.

    Args:
        path: of a file that :func:`write_model` wrote, or a server.

    Returns:
        The model, validated.

    Raises:
        InputError: unreadable, not a model file, altered since it was written, or inconsistent.
    """
    return parse_model(read_bytes(Path(path), MAX_MODEL_BYTES), str(path))


def parse_model(text: bytes | str, source: str) -> TrainedModel:
    """Return the model in a file's content, which came from ``source``; see :func:`read_model`."""
    if len(text) > MAX_MODEL_BYTES:
        raise InputError(f"{source}: {len(text):,} bytes; a model has at most {MAX_MODEL_BYTES:,}")
    body = parse_object(text, source)
    coefficients = body.pop(COEFFICIENTS, None)
    if body.pop("sha256", None) != _checksum(body):
        raise InputError(f"{source}: not a model file, or altered since (sha256 differs)")
    model = parse_as(json.dumps(body), TrainedModel, source)
    _check_shapes(model, source)

    # Scores must not become too large, for inputs in [0, 1].
    largest = np.ones(len(model.inputs))
    with np.errstate(over="ignore"):
        for layer in model.hidden:
            largest = np.abs(layer.weight) @ largest + np.abs(layer.bias)
        theta = np.abs(model.theta)
        score = float(theta[: len(largest)] @ largest + theta[len(largest) :].sum())
    if not score <= MAX_SCORE:
        raise InputError(f"{source}: theta: scores could be {score:.3g}, above {MAX_SCORE:g}")
    if coefficients is not None and (model.hidden or coefficients != model.coefficients):
        raise InputError(f"{source}: coefficients: are not those of theta; leave them out")
    return model


def _check_shapes(model: TrainedModel, source: str) -> None:
    own_intercept = model.intercept and not model.hidden  # that of a network is no input
    names = input_names(model.schema_, intercept=own_intercept, group_input=model.group_input)
    if model.inputs != names:
        raise InputError(f"{source}: inputs must be the {len(names)} that the schema encodes")
    width = len(names) - own_intercept
    for i, layer in enumerate(model.hidden, 1):
        if len(layer.weight) != len(layer.bias) or {len(w) for w in layer.weight} != {width}:
            raise InputError(f"{source}: hidden layer {i}: must be of {width} inputs")
        width = len(layer.bias)
    if len(model.theta) != width + model.intercept:
        raise InputError(f"{source}: theta must have {width + model.intercept} entries")
    n_groups = len(model.schema_.groups)
    if model.decision and len(model.decision.steps) != n_groups:
        raise InputError(f"{source}: decision: steps must be those of {n_groups} groups")


def _checksum(body: dict[str, object]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def predict(
    model: TrainedModel,
    table: pd.DataFrame,
    *,
    source: str = "table",
    rows_before: int | None = None,
    id_column: str | None = None,
    keep: Sequence[str] = (),
    reference: np.ndarray | None = None,
    cutoff: float | None = None,
    clipping: Clipping | None = None,
) -> pd.DataFrame:
    """Return score, probability and decision of each row; labels may be absent from the table.

    Columns that the schema does not know are left alone; so are those of groups, which may be
    absent, unless the model reads them or decides by group. A UserWarning names each column of
    which more than a twentieth lies outside the schema's bounds, and is clipped.

    Args:
        model: its schema encodes the table.
        table: N rows.
        source: its file, for errors.
        rows_before: if the table is a part of one, the number of rows before it, for errors.
        id_column: by which rows are known, as text; needed where the model's decisions are drawn by
            coins, so that the same id gets the same coin. No column of the schema.
        keep: columns of the table that come first in what is returned, as they are.
        reference: [n] inputs, such as ``model.middle``, against which scores are explained, see
            :meth:`synthfair.TrainedModel.contributions`; no explanation if None.
        cutoff: probability above which the decision is positive, 0 to 1; the model's own, 1/2, if
            None. The model was not trained for another: see :func:`synthfair.evaluation.at_cutoff`.
        clipping: counts the values that are clipped, in place of the warning.

    Returns:
        Columns ``score``; ``probability`` of the positive label, the logistic function of the
        score; and ``decision``: the label's value, or ``positive`` or ``negative`` where it has
        several of these. With a reference also ``reference``, its score, and ``contribution of
        COLUMN`` for each column that the model reads: they and the reference's score sum to the
        score.

    Raises:
        InputError: the table does not fit the model's schema, or has no column to keep of that
            name; or ids are needed, and are missing; or a network is to be explained.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> inputs = (*schema.encoded_names, "(intercept)")
        >>> model = sf.TrainedModel(
        ...     schema=schema, version="0", loss="logistic", intercept=True, inputs=inputs,
        ...     theta=(1.0,) + (0.0,) * 36 + (-0.5,), gradient_norm=None, converged=None,
        ... )
        >>> scored = sf.predict(model, table, reference=model.middle)
        >>> scored.columns[:4].tolist()
        ['score', 'probability', 'decision', 'reference']
        >>> bool(abs(scored.iloc[:, 3:].sum(axis=1) - scored["score"]).max() < 1e-12)
        True
    """
    import pandas as pd

    schema, ids = model.schema_, None
    table = tidied(table, schema.missing_values)
    if unknown := [name for name in keep if name not in table.columns]:
        raise InputError(f"{source}: column to keep {unknown[0]!r}: the table has no such column")
    kept = {name: table[name].to_numpy() for name in keep}
    if id_column is not None:
        before = rows_before or 0
        ids, table = take_ids(table, id_column, schema, source=source, rows_before=before)
    x, s = model.encode(table, source=source, rows_before=rows_before, clipping=clipping)
    score = model.scores(x, s)
    decides = model if cutoff is None else model.with_cutoff(cutoff)
    selected = decides.decide(decides.scores(x, s), s, ids)
    negative, positive = schema.decided
    decision = np.where(selected, positive, negative)
    chance = (1 + np.tanh(score / 2)) / 2
    columns = {"score": score, "probability": chance, "decision": decision}
    if taken := [name for name in keep if name in columns]:
        raise InputError(f"{source}: column to keep {taken[0]!r}: is written already; rename it")
    if reference is not None:
        start, terms = model.contributions(x, s, reference)
        columns["reference"] = np.full(len(score), start)
        columns |= {f"contribution of {name}": term for name, term in terms.items()}
    return pd.DataFrame(kept | columns)


def take_ids(
    table: pd.DataFrame, column: str, schema: Schema, *, source: str, rows_before: int = 0
) -> tuple[np.ndarray, pd.DataFrame]:
    """Return the id of each row [N], as text, and the table without them.

    Raises:
        InputError: no such column, one of the schema, or a row without an id.
    """
    source = f"{source}: id column"
    if column in schema.columns:
        raise InputError(f"{source} {column!r}: is a column of the schema; ids say whose a row is")
    return take_names(table, column, source=source, rows_before=rows_before)


def predict_parts(
    model: TrainedModel,
    parts: Iterable[pd.DataFrame],
    *,
    source: str,
    id_column: str | None = None,
    keep: Sequence[str] = (),
    **options: Any,
) -> Iterator[pd.DataFrame]:
    """Yield what :func:`predict` returns of the parts of a table, one after the other.

    Arguments are as there. Warnings come at the end, of all parts together; of columns that are
    left alone at the start.

    Raises:
        InputError: as there, at the part; also where there are no rows.
    """
    clipping, known = Clipping(), {*model.schema_.columns, *model.schema_.ignored, id_column, *keep}
    for rows_before, chunk in with_starts(parts, source):
        extra = [name for name in chunk.columns if name.strip() not in known]
        if extra and not rows_before:
            warnings.warn(
                f"{source}: columns that the schema does not know are left alone: {shown(extra)}",
                UserWarning,
                stacklevel=2,
            )
        options |= {"source": source, "rows_before": rows_before, "clipping": clipping}
        yield predict(model, chunk, id_column=id_column, keep=keep, **options)
    clipping.warn(source)


def mean_inputs(model: TrainedModel, parts: Iterable[pd.DataFrame], *, source: str) -> np.ndarray:
    """Return [n] the mean of the model's inputs over the parts of a table.

    Raises:
        InputError: a part does not fit the model's schema, or there are no rows.
    """
    total, rows = np.zeros(len(model.theta)), 0
    for rows_before, chunk in with_starts(parts, source):
        encoded = model.encode(chunk, source=source, rows_before=rows_before, clipping=Clipping())
        total += model.rows(*encoded).sum(axis=0)
        rows += len(chunk)
    return total / rows
