"""A trained model's scores and decisions for rows without labels, some at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from synthfair.data.encode import Clipping, tidied
from synthfair.data.schema import Schema, shown
from synthfair.data.tables import take_names, with_starts
from synthfair.errors import InputError
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd


def predict(
    model: TrainedModel,
    table: pd.DataFrame,
    *,
    source: str = "table",
    rows_before: int | None = None,
    id_column: str | None = None,
    keep: Sequence[str] = (),
    reference: np.ndarray | None = None,
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
        ids, table = take_ids(table, id_column, schema, source=source, rows_before=rows_before or 0)
    x, s = model.encode(table, source=source, rows_before=rows_before, clipping=clipping)
    score = model.scores(x, s)
    selected = model.decide(score, s, ids)
    negative, positive = schema.decided
    decision = np.where(selected, positive, negative)
    chance = (1 + np.tanh(score / 2)) / 2
    columns = {"score": score, "probability": chance, "decision": decision}
    if taken := [name for name in keep if name in columns]:
        raise InputError(f"{source}: column to keep {taken[0]!r}: is written already; rename it")
    if reference is not None:
        start, parts = model.contributions(x, s, reference)
        columns["reference"] = np.full(len(score), start)
        columns |= {f"contribution of {name}": part for name, part in parts.items()}
    return pd.DataFrame(kept | columns)


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
    for rows_before, part in with_starts(parts, source):
        extra = [name for name in part.columns if name.strip() not in known]
        if extra and not rows_before:
            warnings.warn(
                f"{source}: columns that the schema does not know are left alone: {shown(extra)}",
                UserWarning,
                stacklevel=2,
            )
        options |= {"source": source, "rows_before": rows_before, "clipping": clipping}
        yield predict(model, part, id_column=id_column, keep=keep, **options)
    clipping.warn(source)


def mean_inputs(model: TrainedModel, parts: Iterable[pd.DataFrame], *, source: str) -> np.ndarray:
    """Return [n] the mean of the model's inputs over the parts of a table.

    Raises:
        InputError: a part does not fit the model's schema, or there are no rows.
    """
    total, rows = np.zeros(len(model.theta)), 0
    for rows_before, part in with_starts(parts, source):
        encoded = model.encode(part, source=source, rows_before=rows_before, clipping=Clipping())
        total += model.rows(*encoded).sum(axis=0)
        rows += len(part)
    return total / rows


def take_ids(
    table: pd.DataFrame, column: str, schema: Schema, *, source: str, rows_before: int = 0
) -> tuple[list[str], pd.DataFrame]:
    """Return [N] the id of each row, as text, and the table without them.

    Raises:
        InputError: no such column, one of the schema, or a row without an id.
    """
    if column in schema.columns:
        raise InputError(
            f"id column {column!r}: is a column of the schema; ids must say whose a row is"
        )
    names, rest = take_names(table, column, source=f"{source}: id column", rows_before=rows_before)
    return names.tolist(), rest
