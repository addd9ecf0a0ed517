"""Encoding of a table by its schema: DataFrame + Schema -> Encoded."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from synthfair.data.schema import Categorical, Numeric, Schema, Value, encoded_as, repeated, shown
from synthfair.errors import InputError

_DECIMAL_COMMA = r"^(?:([+-]?0),(\d+)|([+-]?\d+),(\d\d?|\d{4,}))$"
"""A number with a decimal comma. Three digits behind a comma may be thousands, but for 0,125."""


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


class ClippedColumn(NamedTuple):
    """A column that is clipped to its bounds.

    Attributes:
        lower: its lower bound.
        upper: its upper bound.
        below: share of the rows whose value lies below.
        above: share of the rows whose value lies above.
    """

    lower: float
    upper: float
    below: float
    above: float

    @property
    def share(self) -> float:
        """The share of the rows whose value is clipped."""
        return self.below + self.above


MAX_CLIPPED_SHARE = 0.05
"""Share of a column's values that may be clipped without a warning."""

SCHEMA_REMEDY = "Correct the schema for all clients, from public knowledge, not from these rows"
"""What is to be done about a schema whose bounds clip much."""


class Clipping:
    """A count of what encoding changes, over a table's parts: clipped, unknown, left out.

    Private: computed from the real rows without noise.

    Attributes:
        rows: number of rows so far.
        unlabelled: number of rows without a label, which are left out and not among ``rows``.
        unknown: numbers of values that are none of a column's categories, where there are any.

    Example:
        >>> import pandas as pd
        >>> import synthfair as sf
        >>> from synthfair.data.encode import Clipping
        >>> table, schema = sf.load_dataset("loanapp")
        >>> seen = Clipping()
        >>> encoded = sf.encode(table.assign(loanamt=1e9), schema, clipping=seen)
        >>> seen.clipped()["loanamt"]
        ClippedColumn(lower=0.0, upper=500.0, below=0.0, above=1.0)
    """

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.rows = self.unlabelled = 0
        self._counts: dict[str, tuple[Numeric, np.ndarray]] = {}
        self.unknown: Counter[str] = Counter()

    def add(self, name: str, column: Numeric, numbers: np.ndarray) -> None:
        """Count a column of a part of the table; not-a-number where a value is missing."""
        beyond = np.array([np.sum(numbers < column.lower), np.sum(numbers > column.upper)])
        self._counts[name] = column, beyond + (self._counts[name][1] if name in self._counts else 0)

    def clipped(self, *, above: float = 0.0) -> dict[str, ClippedColumn]:
        """Return the columns of which a larger share was clipped, the most clipped first."""
        columns = {
            name: ClippedColumn(column.lower, column.upper, *map(float, counts / self.rows))
            for name, (column, counts) in self._counts.items()
        }
        ordered = sorted(columns.items(), key=lambda item: -item[1].share)
        return {name: column for name, column in ordered if column.share > above}

    def warnings(self, remedy: str = SCHEMA_REMEDY) -> list[str]:
        """Return a sentence for rows left out, and for each column much clipped or unknown."""
        left_out = [f"{self.unlabelled:,} rows have no label, and are left out"]
        unknown = [
            f"column {name!r}: {n:,} of {self.rows:,} values are none of its categories, and count"
            " as missing"
            for name, n in self.unknown.items()
        ]
        clipped = [
            f"column {name!r}: {column.share:.1%} of the values lie outside the schema's bounds,"
            f" {column.lower:g} to {column.upper:g} ({column.below:.1%} below, {column.above:.1%}"
            f" above), and were clipped to them. Are unit and bounds right? {remedy}"
            for name, column in self.clipped(above=MAX_CLIPPED_SHARE).items()
        ]
        return left_out * (self.unlabelled > 0) + unknown + clipped

    def warn(self, source: str) -> None:
        """Give a UserWarning of each of :meth:`warnings`, to the owner of the table ``source``."""
        for sentence in self.warnings():
            warnings.warn(f"{source}: {sentence}", UserWarning, stacklevel=3)


def encode(
    table: pd.DataFrame,
    schema: Schema,
    *,
    source: str = "table",
    rows_before: int | None = None,
    clipping: Clipping | None = None,
) -> Encoded:
    """Encode a table by its public schema; no statistic of the rows enters.

    A number is (value - lower) / (upper - lower), clipped to [0, 1] where the schema says so, and 0
    where it is missing. A category is one-hot; of two categories only the second has a column.

    A value that is not listed stands for ``unlisted``, where the schema names it. Rows without a
    label are left out.

    Args:
        table: one column for each of the schema's, in any order; ignored columns may be there. It
            is read as a file of it would be, see :func:`tidied`.
        schema: public; reviewed.
        source: what to call the table in errors.
        rows_before: if the table is a part of one, the number of rows before it, for errors.
        clipping: counts the values that are clipped.

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
    table = _tidied_rows(table, schema, source)
    rows = table[table[schema.label].notna()]
    if rows.empty and rows_before is None:
        raise InputError(f"{source}: no row has a label")
    refuse = partial(_refuse, source, rows_before)
    x, s = _inputs(rows, schema, refuse, clipping)
    position = _positions(rows[schema.label], schema.categorical(schema.label), refuse)
    y = np.where(np.isin(schema.label_values, schema.positives)[position], 1.0, -1.0)
    if clipping is not None:
        clipping.unlabelled += len(table) - len(rows)
    return Encoded(x, s, y)


def encode_own(table: Any, schema: Schema, *, source: str) -> Encoded:
    """Encode a table as :func:`encode`, with a warning of the columns that are clipped much.

    For whoever trains on, or releases, a table of their own: the shares have no noise, and are for
    its owner alone.
    """
    clipping = Clipping()
    encoded = encode(table, schema, source=source, clipping=clipping)
    clipping.warn(source)
    return encoded


def content_order(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Return an order [N] of rows, given by column, that depends on their content alone.

    What leaves a site is computed from rows in this order, by a hash of each: so it cannot tell the
    order that they have in the site's table, not even by how floating-point sums are rounded.
    """
    return np.argsort(content_digests(columns), kind="stable")


def content_digests(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Return a hash of each row [N], given by column."""
    digest = np.uint64(0)
    for column in columns:
        digest = digest * np.uint64(0x9E3779B97F4A7C15) + pd.util.hash_array(np.asarray(column))
    return np.asarray(digest)


def in_content_order(rows: Encoded) -> Encoded:
    """Sort the rows in their :func:`content_order`."""
    order = content_order([*rows.x.T, rows.s, rows.y])
    return Encoded(*(field[order] for field in rows))


def content_sums(rows: Encoded) -> np.ndarray:
    """Return uint64 [3] that add up: a fingerprint of rows in any order, for whoever has them."""
    digests = content_digests([*rows.x.T, rows.s, rows.y])
    return np.array([len(digests), digests.sum(), (digests * digests).sum()], dtype=np.uint64)


def content_sha256(batches: Iterable[Encoded]) -> str:
    """Return a fingerprint of rows that come in batches: of their content, in whatever order."""
    content = sum(map(content_sums, batches), np.zeros(3, np.uint64))
    return hashlib.sha256(content.tobytes()).hexdigest()


def encode_inputs(
    table: pd.DataFrame,
    schema: Schema,
    *,
    source: str = "table",
    rows_before: int | None = None,
    clipping: Clipping | None = None,
    extra_columns: bool = True,
    groups: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return X [N, d] and s [N] of all rows, labelled or not; raises as :func:`encode`.

    Columns that the schema does not know are left alone, unless ``extra_columns`` is false. Without
    ``groups`` their columns are left alone, too, and s is 0.
    """
    optional = {schema.label, *(() if groups else schema.attributes)}
    table = _tidied_rows(table, schema, source, optional=optional, extra_columns=extra_columns)
    return _inputs(table, schema, partial(_refuse, source, rows_before), clipping, groups=groups)


def encode_records(records: np.ndarray, schema: Schema) -> np.ndarray:
    """Return X [N, d] of records [N, p], as a surrogate holds them: one column for each feature.

    A number is in its own unit, not-a-number where it is missing; a category is its position, and
    a missing one is one more than the last.
    """
    x = np.zeros((len(records), len(schema.plain.encoded_names)))
    for values, (_, column, block) in zip(records.T, _blocks(x, schema.plain), strict=True):
        if isinstance(column, Numeric):
            _fill_scaled(block, values, column)
        else:
            _fill_one_hot(block, values.astype(int), column)
    return expand(x, schema)


def _blocks(
    x: np.ndarray, plain: Schema
) -> Iterator[tuple[str, Numeric | Categorical, np.ndarray]]:
    """Yield the features of a schema without bases, each with its columns of x [N, d], a view."""
    start = 0
    for name, column in plain.features.items():
        end = start + len(encoded_as(name, column))
        yield name, column, x[:, start:end]
        start = end


def expand(x: np.ndarray, schema: Schema) -> np.ndarray:
    """Return a schema's rows [N, d] from those [N, d'] of ``schema.plain``, by bases and products.

    Raises:
        InputError: they are not rows of the plain schema.

    Example:
        >>> import numpy as np
        >>> from synthfair.data.datasets import dataset_schema
        >>> from synthfair.data.encode import expand
        >>> schema = dataset_schema("loanapp_additive")
        >>> x = np.zeros((1, len(schema.plain.encoded_names)))
        >>> expand(x, schema).shape[1] == len(schema.encoded_names)
        True
    """
    plain, blocks = schema.plain, {}
    if plain is schema:
        return x
    if x.shape[1] != len(plain.encoded_names):
        raise InputError(f"{x.shape[1]} columns; the plain schema has {len(plain.encoded_names)}")
    for name, _, block in _blocks(x, plain):
        blocks[name], column = block, schema.columns[name]
        if isinstance(column, Numeric) and column.basis:
            # All are 0 at the lower bound, and so where the number is missing, which is 0 as well.
            functions = column.basis.functions(block[:, 0], column.lower, column.upper)
            blocks[name] = np.hstack([functions, block[:, 1:]])
    products = [
        (blocks[first][:, :, None] * blocks[second][:, None]).reshape(len(x), -1)
        for first, second in schema.interactions or ()
    ]
    return np.hstack([*blocks.values(), *products])


def records_table(
    records: np.ndarray, s: np.ndarray, y: np.ndarray, schema: Schema
) -> pd.DataFrame:
    """Return the table of records [N, p] with groups and labels, in the columns of the schema.

    Of a label with several positive or several negative values, the first. A missing value is NaN.
    """
    features = dict(zip(schema.features, records.T, strict=True))
    out: dict[str, object] = {}
    for name, column in schema.columns.items():
        if name == schema.label:
            out[name] = np.where(y > 0, schema.positives[0], schema.negatives[0])
        elif name in schema.attributes:
            out[name] = np.asarray(schema.groups_of(name))[np.asarray(schema.groupings[name])[s]]
        elif isinstance(column, Numeric):
            out[name] = features[name]
        else:
            values = np.array([*column.categories, np.nan], object)
            out[name] = pd.Series(values[features[name].astype(int)]).infer_objects()
    return pd.DataFrame(out)


_Refuse = Callable[[pd.Series, np.ndarray, str], None]
"""Refuses the first of a column's values that are wrong, and says what is allowed."""


def _inputs(
    table: pd.DataFrame,
    schema: Schema,
    refuse: _Refuse,
    clipping: Clipping | None,
    *,
    groups: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and groups of a tidied table."""
    # Features side by side: numbers scaled to [0, 1], categories one-hot.
    clipping = Clipping() if clipping is None else clipping
    x = np.zeros((len(table), len(schema.plain.encoded_names)))
    for name, _, block in _blocks(x, schema.plain):
        column, values = schema.columns[name], table[name]
        if isinstance(column, Numeric):
            missing, numbers = _missing(values, column, refuse), as_numbers(values)
            refuse(values, ~missing & ~np.isfinite(numbers), "a finite number")
            if column.out_of_range == "refuse":
                outside = (numbers < column.lower) | (numbers > column.upper)
                refuse(values, outside, f"from {column.lower:g} to {column.upper:g}")
            else:
                clipping.add(name, column, numbers)
            _fill_scaled(block, numbers, column)
        else:
            position = _positions(values, column, refuse)
            if column.unknown and (n := int(np.sum(position < 0))):
                clipping.unknown[name] += n
            _fill_one_hot(block, position, column)
    clipping.rows += len(table)

    # The groups; of several attributes, those of the last change first.
    s = np.zeros(len(table), int)
    for name in schema.attributes if groups else ():
        column = schema.categorical(name)
        s = s * len(column.categories) + _positions(table[name], column, refuse)
    return expand(x, schema), s


def in_pandas(table: Any) -> Any:
    """Return a table of polars or Arrow as one of pandas, and anything else as it is."""
    table = table.collect() if hasattr(table, "collect") else table  # of polars, not yet read
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def tidied(table: Any, words: Collection[str], columns: Collection[str] = ()) -> pd.DataFrame:
    """Return a table as a file of it is read: no blanks round names and texts, NA where missing.

    Args:
        table: of pandas, polars or Arrow.
        words: texts that stand for a missing value, without blanks round them.
        columns: whose values are tidied; those of the others stay as they are.

    Raises:
        InputError: two columns have one name.
    """
    table = in_pandas(table)
    names = [name.strip() if isinstance(name, str) else name for name in table.columns]
    if twice := repeated(names):
        raise InputError(f"column {twice[0]!r} appears more than once; rename it")
    table = table.set_axis(names, axis=1).reset_index(drop=True)
    numbers = as_numbers(pd.Series([*words], dtype="string"))
    numbers = numbers[~np.isnan(numbers)]
    for name in set(columns).intersection(names):
        values, marks = table[name], numbers
        if pd.api.types.is_bool_dtype(values):
            continue
        if not pd.api.types.is_any_real_numeric_dtype(values):
            values, marks = values.astype("string").str.strip(), words
        is_missing = values.isin([*marks])
        table[name] = values.mask(is_missing) if is_missing.any() else values
    return table


def labelled(table: Any, schema: Schema) -> pd.DataFrame:
    """Return the rows of a table that have a label, as they are; all where it has no labels."""
    table = in_pandas(table)
    tidy = tidied(table, schema.missing_values, [schema.label])
    return table[tidy[schema.label].notna().to_numpy()] if schema.label in tidy else table


def _tidied_rows(
    table: Any,
    schema: Schema,
    source: str,
    *,
    optional: Collection[str] = (),
    extra_columns: bool = False,
) -> pd.DataFrame:
    """Return a table tidied. Raises InputError: no rows, or other columns than the schema's."""
    table = tidied(table, schema.missing_values, schema.columns)
    if lacking := [n for n in schema.columns if n not in table.columns and n not in optional]:
        raise InputError(f"{source}: column {lacking[0]!r} is missing, which the schema needs")
    names = {*schema.columns, *schema.ignored}
    if not extra_columns and (extra := [name for name in table.columns if name not in names]):
        raise InputError(
            f"{source}: column {extra[0]!r} is not in schema; drop it, or list it under 'ignored'"
        )
    if len(table) == 0:
        raise InputError(f"{source}: has no rows")
    return table


def _fill_scaled(block: np.ndarray, numbers: np.ndarray, column: Numeric) -> None:
    """Write numbers, not-a-number where missing, as 0 to 1; the last column is for missing ones."""
    missing, width = np.isnan(numbers), column.upper - column.lower
    scaled = (np.clip(numbers, column.lower, column.upper) - column.lower) / width
    block[:, 0] = np.where(missing, 0.0, scaled)
    block[:, 1:] = missing[:, None]


def _fill_one_hot(block: np.ndarray, position: np.ndarray, column: Categorical) -> None:
    """Write the one-hot columns into a block of zeros; the last is for missing values.

    A value that is unknown, at -1, is a missing one; else each category by its share, as the
    expected value of the columns is.
    """
    n, first = len(column.categories), int(len(column.categories) == 2)
    column_index = np.where((position < 0) & (column.missing == "category"), n, position) - first
    rows = np.flatnonzero(column_index >= 0)
    block[rows, column_index[rows]] = 1.0
    if column.missing != "category":
        block[position < 0] = (column.shares or np.full(n, 1 / n))[first:]


def _positions(values: pd.Series, column: Categorical, refuse: _Refuse) -> np.ndarray:
    """Return the category's index of each value [N]; missing is one more, where it has a column."""
    categories, missing = column.categories, _missing(values, column, refuse)
    position = np.where(missing, -1, find_categories(values, categories))
    if column.bins is not None:  # a name of a bin, as in records, stands for itself
        position = np.where(position < 0, _bin_index(as_numbers(values), column.bins), position)
    if column.unlisted is not None:
        position = np.where(position < 0, categories.index(column.unlisted), position)
    if column.unknown is None:
        refuse(values, (position < 0) & ~missing, f"one of {shown(categories)}")
    if column.missing == "category":
        position = np.where(missing, len(categories), position)
    return position


def _bin_index(numbers: np.ndarray, bins: Sequence[float | None]) -> np.ndarray:
    """Return the index of the bin of each number [N], -1 where it is in none."""
    first, *inner, last = bins
    lower, upper = -np.inf if first is None else first, np.inf if last is None else last
    is_inside = (numbers >= lower) & (numbers <= upper)
    return np.where(is_inside, np.searchsorted(np.array(inner, float), numbers, side="right"), -1)


def find_categories(values: pd.Series, categories: Sequence[Value]) -> np.ndarray:
    """Return the index [N] of each value among the categories, -1 where it is none of them.

    Numbers are equal by value. Where two categories are True and False, or 1 and 0, all spellings
    of each are one: True, TRUE, true and 1.
    """
    listed, kind = pd.Series(categories), as_numbers
    if len(listed) == 2 and set(_truths(listed)) == {0.0, 1.0}:
        kind = _truths
    elif isinstance(categories[0], str):
        # To a column of numbers, texts such as 01003 are numbers, where these differ.
        is_number = pd.api.types.is_any_real_numeric_dtype(values)
        is_number = is_number and pd.Index(as_numbers(listed)).is_unique
        kind = as_numbers if is_number else lambda texts: texts.astype("string").astype(object)
    return pd.Index(kind(listed)).get_indexer(pd.Index(kind(values)))


def _truths(values: pd.Series) -> np.ndarray:
    """Return 1 for true, 0 for false, and other numbers as they are."""
    texts = values.astype("string").str.lower()
    return as_numbers(texts.replace({"true": "1", "false": "0"}))


def as_numbers(values: pd.Series) -> np.ndarray:
    """Return the values [N] as numbers, not-a-number where they are none. A date is text here.

    Booleans are 0 and 1; texts may have a decimal comma.
    """
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf":
        return values.to_numpy(float)
    if pd.api.types.is_bool_dtype(values):
        values = values.astype("boolean").astype("Float64")
    if not pd.api.types.is_any_real_numeric_dtype(values):
        values = values.astype("string")
        try:  # four times faster, but all or nothing, and stricter: no blanks around a number
            return pa.array(values, pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = values.str.strip().str.replace(_DECIMAL_COMMA, r"\1\3.\2\4", regex=True)
    numbers = pd.Series(pd.to_numeric(values, errors="coerce")).astype("Float64")
    return numbers.to_numpy(float, na_value=np.nan)


def _missing(values: pd.Series, column: Numeric | Categorical, refuse: _Refuse) -> np.ndarray:
    missing = values.isna().to_numpy()
    if column.missing == "refuse":
        refuse(values, missing, "present (the schema forbids missing values here)")
    return missing


def _refuse(
    source: str, rows_before: int | None, values: pd.Series, wrong: np.ndarray, allowed: str
) -> None:
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    row, value = int(values.index[first]), values.iloc[first : first + 1].tolist()[0]
    value_text = "a missing value" if pd.isna(value) else repr(value)
    at_least = "" if rows_before is None else "at least "
    more = f" (and {at_least}{wrong.sum() - 1} more rows)" if wrong.sum() > 1 else ""
    raise InputError(
        f"{source}: column {values.name!r}, row {(rows_before or 0) + row + 1}: {value_text} is not"
        f" allowed{more}; it must be {allowed}"
    )
