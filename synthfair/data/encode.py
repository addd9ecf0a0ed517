"""A table by its schema as numbers, and back: DataFrame + Schema -> Encoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from synthfair.data.schema import Categorical, Numeric, Schema, encoded_as
from synthfair.errors import InputError


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
        x: [N, d] features in [0, 1]; numbers scaled by the schema's bounds, categories one-hot, a
            column of its own where a value may be missing.
        s: [N] group index, 0, 1, ...
        y: [N] label, -1.0 or +1.0.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = sf.Encoded(np.array([[0.5], [1.0]]), np.array([0, 1]), np.array([1.0, -1.0]))
        >>> x.shape
        (2, 1)
    """

    x: np.ndarray
    s: np.ndarray
    y: np.ndarray


class _Source(NamedTuple):
    """What to call a table in errors, and, of a part of one, how many of its rows came before."""

    name: str
    rows_before: int | None = None

    def __str__(self) -> str:
        return self.name


def encode(
    table: pd.DataFrame, schema: Schema, *, source: str = "table", rows_before: int | None = None
) -> Encoded:
    """Encodes a table by its public schema; no statistic of the rows enters.

    A number is (value - lower) / (upper - lower), clipped to [0, 1] where the schema says so, and 0
    where it is missing. A category is one-hot; of two categories only the second has a column.

    Args:
        table: one column for each of the schema's, in any order; ignored columns may be there.
        schema: public; reviewed.
        source: what to call the table in errors.
        rows_before: if the table is a part of one, the number of rows before it, for errors.

    Raises:
        InputError: a column is missing or unknown, the table is empty, or a value is not one that
            the schema allows; the message names the column, the value and the row, of which 1 is
            the first after the header.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> encoded = sf.encode(table, schema)
        >>> encoded.x.shape, len(schema.encoded_names)
        ((1989, 37), 37)
        >>> float(encoded.x.min()), float(encoded.x.max())
        (0.0, 1.0)
    """
    _check_columns(table, schema, source=source, need_label=True)
    where = _Source(source, rows_before)
    x, s = _inputs(table, schema, where)
    position = _positions(table[schema.label], schema.label_values, where)
    y = np.where(position == schema.label_values.index(schema.positive), 1.0, -1.0)
    return Encoded(x, s, y)


def encode_chunks(
    tables: Iterable[pd.DataFrame], schema: Schema, *, source: str
) -> Iterator[Encoded]:
    """Encodes the parts of a table one after the other. Raises as :func:`encode`."""
    rows_before = 0
    for table in tables:
        if len(table):
            yield encode(table, schema, source=source, rows_before=rows_before)
            rows_before += len(table)


def encode_inputs(
    table: pd.DataFrame, schema: Schema, *, source: str = "table", rows_before: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """X [N, d] and s [N] of a table whose labels may be unknown. Raises as :func:`encode`."""
    _check_columns(table, schema, source=source, need_label=False)
    return _inputs(table, schema, _Source(source, rows_before))


def decode(encoded: Encoded, schema: Schema) -> pd.DataFrame:
    """The table that encodes to ``encoded``, up to rounding; for synthetic rows, the nearest one.

    A number is scaled back and may lie outside its bounds; a category is the one with the largest
    entry; missing where the entry for missing is above one half, or the largest.
    """
    out: dict[str, object] = {}
    start = 0
    for name, column in schema.columns.items():
        if name == schema.label:
            values = np.where(encoded.y > 0, schema.positive, schema.negative)
        elif name == schema.sensitive:
            values = np.asarray(schema.groups)[encoded.s]
        else:
            width = len(encoded_as(name, column))
            values = _decode_feature(encoded.x[:, start : start + width], column)
            start += width
        out[name] = values
    return pd.DataFrame(out)


def _decode_feature(block: np.ndarray, column: Numeric | Categorical) -> np.ndarray:
    if isinstance(column, Numeric):
        values = column.lower + block[:, 0] * (column.upper - column.lower)
        return np.where(block[:, 1] > 0.5, np.nan, values) if block.shape[1] > 1 else values
    if len(column.categories) == 2:
        block = np.hstack([1 - block.sum(axis=1, keepdims=True), block])
    choices = np.asarray([*column.categories, None], dtype=object)
    return choices[np.argmax(block, axis=1)]


def _check_columns(table: pd.DataFrame, schema: Schema, *, source: str, need_label: bool) -> None:
    needed = set(schema.columns) - (set() if need_label else {schema.label})
    missing = [name for name in schema.columns if name in needed and name not in table.columns]
    if missing:
        blank = [name for name in table.columns if str(name).strip() == missing[0]]
        hint = f"; blanks count: the table has {blank[0]!r}" if blank else ""
        raise InputError(
            f"{source}: column {missing[0]!r} is missing; schema {schema.name!r} needs it{hint}"
        )
    known = set(schema.columns) | set(schema.ignored)
    extra = [name for name in table.columns if name not in known]
    if extra:
        raise InputError(
            f"{source}: column {extra[0]!r} is not in schema {schema.name!r};"
            " drop it, or list it under 'ignored'"
        )
    if len(table) == 0:
        raise InputError(f"{source}: has no rows")


def _inputs(table: pd.DataFrame, schema: Schema, source: _Source) -> tuple[np.ndarray, np.ndarray]:
    blocks = [
        _encode_numeric(table[name], column, source)
        if isinstance(column, Numeric)
        else _encode_categorical(table[name], column, source)
        for name, column in schema.features.items()
    ]
    return np.hstack(blocks), _positions(table[schema.sensitive], schema.groups, source)


def _encode_numeric(values: pd.Series, column: Numeric, source: _Source) -> np.ndarray:
    missing = _missing(values, column.missing, source)
    numbers = _numbers(values)
    _refuse(values, ~missing & ~np.isfinite(numbers), "a finite number", source)
    outside = (numbers < column.lower) | (numbers > column.upper)
    if column.out_of_range == "refuse":
        _refuse(values, outside, f"from {column.lower:g} to {column.upper:g}", source)
    scaled = (np.clip(numbers, column.lower, column.upper) - column.lower) / (
        column.upper - column.lower
    )
    scaled = np.where(missing, 0.0, scaled)[:, None]
    return np.hstack([scaled, missing[:, None]]) if column.missing == "category" else scaled


def _encode_categorical(values: pd.Series, column: Categorical, source: _Source) -> np.ndarray:
    missing = _missing(values, column.missing, source)
    position = _positions(values, column.categories, source, skip=missing)
    first = 1 if len(column.categories) == 2 else 0
    one_hot = (position[:, None] == np.arange(first, len(column.categories))).astype(float)
    return np.hstack([one_hot, missing[:, None]]) if column.missing == "category" else one_hot


def _positions(
    values: pd.Series,
    categories: tuple[int | float | str, ...],
    source: _Source,
    skip: np.ndarray | None = None,
) -> np.ndarray:
    """[N] index of each value among the categories; -1 where skipped."""
    if skip is None:
        skip = _missing(values, "refuse", source)
    if isinstance(categories[0], str):
        plain = values.astype("string").astype(object)
    else:
        plain = _numbers(values)
    position = pd.Index(categories).get_indexer(pd.Index(plain))
    allowed = "one of " + ", ".join(map(str, categories))
    _refuse(values, (position < 0) & ~skip, allowed, source)
    return np.where(skip, -1, position)


def _numbers(values: pd.Series) -> np.ndarray:
    """[N] the values as numbers; not-a-number where they are none. A date is text here."""
    if not pd.api.types.is_any_real_numeric_dtype(values):
        values = values.astype("string")
        try:  # four times faster, but all or nothing, and stricter: no blanks around a number
            return pa.array(values, pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
    numbers = pd.Series(pd.to_numeric(values, errors="coerce")).astype("Float64")
    return numbers.to_numpy(float, na_value=np.nan)


def _missing(values: pd.Series, policy: str, source: _Source) -> np.ndarray:
    missing = values.isna().to_numpy()
    if policy == "refuse":
        _refuse(values, missing, "present (the schema forbids missing values here)", source)
    return missing


def _refuse(values: pd.Series, wrong: np.ndarray, allowed: str, source: _Source) -> None:
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    value = values.iloc[row]
    shown = "a missing value" if pd.isna(value) else repr(value)
    number = (source.rows_before or 0) + row + 1
    at_least = "" if source.rows_before is None else "at least "
    more = f" (and {at_least}{wrong.sum() - 1} more rows)" if wrong.sum() > 1 else ""
    raise InputError(
        f"{source}: column {values.name!r}, row {number}: {shown} is not"
        f" allowed{more}; it must be {allowed}"
    )
