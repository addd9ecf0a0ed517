"""A first draft of a schema, for a person to complete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 30
"""A text column with more distinct values than this is left for a person to list or to ignore."""

WARNING = (
    "DRAFT, made from a private table. A schema is published: what it says of the table, everybody"
    " learns. Complete the keys under 'to_complete' with public knowledge: a codebook, a law, a"
    " scale. Check those under 'read_off_private_rows' against it: list what can occur, not what"
    " occurs. Then delete this 'draft' block; until then no client accepts the schema."
)


def draft_schema(
    table: pd.DataFrame, *, name: str, label: str, sensitive: str, positive: str | None = None
) -> str:
    """A draft as JSON text, from column names and types.

    Bounds of numbers stay empty. Only categories, and whether values are missing, are read off the
    rows; the draft lists every key that was.

    Args:
        table: with column types as read.
        name: of the table.
        label: a column of it with two values.
        sensitive: a column of it.
        positive: the label's value that is y = +1; left to complete if not given.

    Raises:
        InputError: label or sensitive is not a column, or both are the same, or positive is not a
            value of the label.
    """
    for role, column in (("label", label), ("sensitive", sensitive)):
        if column not in table.columns:
            raise InputError(f"{role} {column!r}: must be one of {', '.join(table.columns)}")
    if label == sensitive:
        raise InputError(f"sensitive {sensitive!r}: is the label; choose another column")
    columns, read_off, to_complete = {}, [], []
    for column in table.columns:
        entry = _draft_column(table[column], categorical=column in (label, sensitive))
        columns[column] = entry
        read_off += [f"columns.{column}.{k}" for k in ("categories", "missing") if entry.get(k)]
        to_complete += [f"columns.{column}.{k}" for k, v in entry.items() if v is None]
    document = {
        "name": name,
        "description": "",
        "label": label,
        "positive": _positive(columns[label]["categories"], label, positive),
        "sensitive": sensitive,
        "columns": columns,
    }
    to_complete += [key for key in ("description", "positive") if document[key] in (None, "")]
    draft = {"warning": WARNING, "to_complete": to_complete, "read_off_private_rows": read_off}
    return json.dumps({"draft": draft, **document}, indent=2, default=str) + "\n"


def _draft_column(values: pd.Series, *, categorical: bool) -> dict[str, Any]:
    import pandas as pd

    missing = {"missing": "category"} if values.isna().any() and not categorical else {}
    if pd.api.types.is_numeric_dtype(values) and not categorical:
        return {"kind": "numeric", "lower": None, "upper": None, "out_of_range": "clip", **missing}
    found = sorted(values.dropna().unique().tolist(), key=str)
    listed = found if len(found) <= MOST_CATEGORIES else None
    return {"kind": "categorical", "categories": listed, **missing}


def _positive(categories: list[Any] | None, label: str, positive: str | None) -> Any:
    if positive is None:
        return None
    matching = [value for value in categories or [] if _same(value, positive)]
    if not matching:
        raise InputError(f"positive {positive!r}: {label!r} holds {categories}")
    return matching[0]


def _same(value: object, text: str) -> bool:
    """Whether a text names a value: numbers by value, so that 1 names 1.0."""
    if isinstance(value, str):
        return value == text
    try:
        return float(text) == value
    except ValueError:
        return False
