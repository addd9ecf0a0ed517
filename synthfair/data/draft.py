"""A first draft of a schema, for a person to complete."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from synthfair.data.column_draft import MOST_CATEGORIES, ColumnDraft, Role, draft_column
from synthfair.data.schema import MISSING_VALUES, Value, blanks_hint, shown
from synthfair.errors import InputError

MARKS = ("", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "null")
"""Texts, in small letters and without blanks around, that are taken for a missing value."""

NAMES: dict[Role, str] = {
    "label": "label|target|class|outcome|approved?|defaulted|y",
    "sensitive": "sex|gender|race|ethnicity|religion|nationality|disability",
}
"""Words of a column's name that are a reason to propose it for a role."""

WARNING = (
    "DRAFT, made from a private table. A schema is published: what it says of the table, everybody"
    " learns. Decide what 'to_complete' asks, with public knowledge: a codebook, a law, a scale."
    " Check against it what 'read_off_private_rows' names: list what can occur, not what occurs."
    " 'alternatives' are entries of 'columns' to take instead. Then delete this 'draft' block; no"
    " client accepts the schema before."
)

OF_RELEASES = ("s", "y")
"""Columns of fair releases that no number may be named as."""

_LINE = 100
"""Characters of a line, beyond which an object is spread over several."""


@dataclass
class Draft:
    """A schema in the making; :func:`draft_table` makes it.

    Attributes:
        name: of the table.
        label: a column; None: open.
        sensitive: a column; None: open.
        columns: by name.
        missing_values: texts that stand for a missing value.
        proposed: label and sensitive, where they were chosen by their names.
        found_missing: missing values that were found in the rows, and nobody has confirmed.
        positive: the label's value that is y = +1, or several; None: open.
        description: for people; where the bounds come from.
    """

    name: str
    label: str | None
    sensitive: str | None
    columns: dict[str, ColumnDraft]
    missing_values: tuple[str, ...] = MISSING_VALUES
    proposed: tuple[str, ...] = ()
    found_missing: tuple[str, ...] = ()
    positive: Value | tuple[Value, ...] | None = None
    description: str = ""

    @property
    def ignored(self) -> list[str]:
        """Columns that are not used."""
        return [name for name, column in self.columns.items() if column.entry is None]

    @property
    def to_complete(self) -> dict[str, str]:
        """What a person must decide, by the key of the schema that it is about."""
        found = {}
        if not self.description:
            found["description"] = (
                "say what the rows are, and where bounds and categories come from"
            )
        for role, column in (("label", self.label), ("sensitive", self.sensitive)):
            if column is None:
                which = shown(self.with_few_values)
                found[role] = (
                    f"which column is it? Draft anew with --{role}; few values have {which}"
                )
            elif column in self.proposed:
                found[role] = (
                    f"is it {column!r}, as its name says? If not, draft anew with --{role}"
                )
        if self.positive is None and self.label:
            values = self.label_values
            found["positive"] = f"which values of {self.label!r} are positive: {shown(values)}?"
        if self.found_missing:
            marks = ", ".join(map(repr, self.found_missing))
            found["missing_values"] = f"means that a value is missing: {marks}?"
        for name, column in self.columns.items():
            taken = name in OF_RELEASES and column.use == "numeric"
            notes = [column.question, "releases have a column of this name; rename it" * taken]
            if any(notes):
                where = "ignored" if column.entry is None else "columns"
                found[f"{where}.{name}"] = "; ".join(filter(None, notes))
        return found

    @property
    def read_off(self) -> dict[str, list[str]]:
        """Keys whose values were read off the rows, by column."""
        keys = ("lower", "upper", "categories", "missing")
        entries = {name: column.entry for name, column in self.columns.items() if column.entry}
        return {name: [key for key in keys if key in entry] for name, entry in entries.items()}

    @property
    def with_few_values(self) -> list[str]:
        """The columns that may be label or sensitive attribute."""
        return [name for name, column in self.columns.items() if "categories" in column.entries]

    @property
    def label_values(self) -> list[Value]:
        """The categories of the label; none where that is open."""
        return (self.columns[self.label].entry or {})["categories"] if self.label else []

    def choose_positive(self, texts: Sequence[str]) -> None:
        """Sets ``positive`` to the values that these texts name; numbers are named by value.

        Raises:
            InputError: one is not a value of the label, or all values are named.
        """
        if self.label is None:
            raise InputError(f"positive {shown(texts)}: of which label? Give --label")
        values = self.label_values
        chosen = []
        for text in texts:
            matching = [value for value in values if _same(value, text)]
            if not matching:
                raise InputError(f"positive {text!r}: {self.label!r} holds {shown(values)}")
            chosen += [value for value in matching if value not in chosen]
        if len(chosen) == len(values) > 1:
            raise InputError(f"positive {shown(chosen)}: these are all values of {self.label!r}")
        self.positive = chosen[0] if len(chosen) == 1 else tuple(chosen)

    def to_json(self, *, reviewed: bool = False) -> str:
        """The schema; with a ``draft`` block of what is open, unless a person has reviewed it."""
        notes: dict[str, Any] = {
            "warning": WARNING,
            "to_complete": self.to_complete,
            "read_off_private_rows": self.read_off,
            "alternatives": {
                name: list(column.others.values())
                for name, column in self.columns.items()
                if column.question and column.others
            },
        }
        document = {
            "name": self.name,
            "description": self.description,
            "label": self.label,
            "positive": self.positive,
            "sensitive": self.sensitive,
            "columns": {name: c.entry for name, c in self.columns.items() if c.entry},
            "ignored": self.ignored,
            "missing_values": self.missing_values,
        }
        return _laid_out(document if reviewed else {"draft": notes, **document}, depth=0) + "\n"


def draft_table(
    table: pd.DataFrame,
    *,
    name: str,
    label: str | None = None,
    sensitive: str | None = None,
    positive: Sequence[str] = (),
    missing_values: Sequence[str] | None = None,
    confirmed: Sequence[str] = (),
) -> Draft:
    """A draft from the rows of a table: proposals, and what is open.

    Of bounds and categories that the rows suggest, a draft says that they were read off the rows.
    Bounds are round numbers around the values. Columns that say nothing, or too much (constants,
    identifiers), are proposed to be ignored; whole numbers with few values to be codes; of texts
    with many values the frequent ones to be listed.

    Args:
        table: text as :func:`read_raw_table` reads CSV files, or typed.
        name: of the table.
        label: a column of it. If None, the only one of few values that is named as a label, such as
            ``outcome``, is proposed; else it is left open.
        sensitive: another one; the same, such as ``sex``.
        positive: the label's values that are y = +1; open if there are none.
        missing_values: texts that stand for a missing value; None: what :func:`find_missing` finds.
        confirmed: those that a person has named; the others are to be confirmed.

    Raises:
        InputError: the table has no rows, or no header; label or sensitive is not a column, or
            both are the same, or has too many values; or positive is not a value of the label.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.draft import draft_table
        >>> table, _ = sf.load_dataset("loanapp")
        >>> draft = draft_table(table, name="loans", label="approve", sensitive="white")
        >>> draft.columns["loanamt"].entry
        {'kind': 'numeric', 'lower': 0, 'upper': 1000, 'out_of_range': 'clip'}
        >>> draft.to_complete["positive"]
        "which values of 'approve' are positive: 0, 1?"
    """
    require_rows_and_header(table, source=name)
    for role, column in (("label", label), ("sensitive", sensitive)):
        if column is not None:
            require_column(column, list(table.columns), what=f"{role} ")
    if label is not None and label == sensitive:
        raise InputError(f"sensitive {sensitive!r}: is the label; choose another column")
    words = find_missing(table) if missing_values is None else tuple(missing_values)
    found_missing = tuple(word for word in words if word not in (*MISSING_VALUES, *confirmed))
    proposed = []
    others = table.drop(columns=[role for role in (label, sensitive) if role is not None])
    if label is None and (label := propose(others, "label", missing=words)):
        proposed.append(label)
        others = others.drop(columns=label)
    if sensitive is None and (sensitive := propose(others, "sensitive", missing=words)):
        proposed.append(sensitive)
    roles: dict[str | None, Role] = {label: "label", sensitive: "sensitive"}
    columns = {
        column: draft_column(table[column], role=roles.get(column, "feature"), missing_values=words)
        for column in table.columns
    }
    _draft_alike(columns, table, words)
    draft = Draft(name, label, sensitive, columns, words, tuple(proposed), found_missing)
    if positive:
        draft.choose_positive(positive)
    return draft


def _draft_alike(
    columns: dict[str, ColumnDraft], table: pd.DataFrame, missing_values: Sequence[str]
) -> None:
    """Drafts columns of one scale as their values together would be.

    That are those whose names differ in digits alone, such as PAY_0 and PAY_5, and whose bounds are
    alike: which single values one of them happens to hold is no difference.
    """
    stems: dict[str, list[list[str]]] = {}
    for name, column in columns.items():
        if column.role == "feature" and "numeric" in column.entries:
            scales = stems.setdefault(re.sub(r"\d+", "0", name), [])
            scale = next((one for one in scales if _alike(columns[one[0]], column)), [])
            scale.append(name)
            scales += [scale] * (len(scale) == 1)
    for names in (scale for scales in stems.values() for scale in scales):
        if len({columns[name].use for name in names}) > 1:
            values = pd.concat([table[name] for name in names]).rename(names[0])
            columns |= dict.fromkeys(names, draft_column(values, missing_values=missing_values))


def _alike(*columns: ColumnDraft) -> bool:
    """Whether bounds are equal, or those of whole numbers share a quarter of their range."""
    ends = [(one.entries["numeric"]["lower"], one.entries["numeric"]["upper"]) for one in columns]
    lower, upper = zip(*ends, strict=True)
    # Identifiers, which are ignored, would not be unique together.
    whole = all(len(one.entries) > 1 and one.use != "ignored" for one in columns)
    overlap, width = min(upper) - max(lower), max(upper) - min(lower)
    return ends[0] == ends[1] or (whole and 4 * overlap >= width)


def require_rows_and_header(table: pd.DataFrame, *, source: str) -> None:
    """Refuses a table whose first row was taken for its header: a draft would publish that row.

    Raises:
        InputError: no rows; or at least half of the names are numbers, or are values of their own
            column. Names that count up, such as 0, 1, 2 or years, are a header.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.draft import require_rows_and_header
        >>> rows = pd.DataFrame({"39": ["50", "38"], "Male": ["Female", "Male"]})
        >>> require_rows_and_header(rows, source="people.csv")
        Traceback (most recent call last):
        synthfair.errors.InputError: people.csv: the first line looks like a row, not a header; ...
    """
    if len(table) == 0:
        raise InputError(f"{source}: the table has no rows")
    if _count_up([*table.columns]):
        return
    like_values = sum(_is_like_a_value(name, table[name]) for name in table.columns)
    if 2 * like_values >= len(table.columns):
        raise InputError(
            f"{source}: the first line looks like a row, not a header; add a header"
            f" ({like_values} of its {len(table.columns)} names are numbers, or values of their own"
            " column)"
        )


def _count_up(names: Sequence[object]) -> bool:
    """Whether they are whole numbers, each one more than the last."""
    first = str(names[0])
    return first.isdecimal() and [*map(str, names)] == [
        str(int(first) + i) for i in range(len(names))
    ]


def _is_like_a_value(name: object, values: pd.Series) -> bool:
    try:
        return math.isfinite(float(str(name)))
    except ValueError:
        return bool((values.astype("string").str.strip() == str(name).strip()).any())


def require_column(name: str, names: Sequence[str], *, what: str = "") -> None:
    """Refuses what is no column, and calls it ``what`` and its name. Raises InputError."""
    if name not in names:
        hint = blanks_hint(name, names)
        raise InputError(f"{what}{name!r}: must be one of {shown(names, 100)}{hint}")


def propose(table: pd.DataFrame, role: Role, *, missing: Sequence[str] = ()) -> str | None:
    """The only column of few values, missing ones aside, whose name says it has this role; or None.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.draft import propose
        >>> table = pd.DataFrame({"age": [17, 39, 41], "applicant_sex": ["m", "f", "m"]})
        >>> propose(table, "sensitive"), propose(table, "label")
        ('applicant_sex', None)
    """
    named = re.compile(rf"(?:^|[^a-z])(?:{NAMES[role]})(?:$|[^a-z])", re.IGNORECASE)
    found = [
        name
        for name in table.columns
        if named.search(name)
        and 2 <= len(set(table[name].dropna().unique()).difference(missing)) <= MOST_CATEGORIES
    ]
    return found[0] if len(found) == 1 else None


def find_missing(table: pd.DataFrame, given: Sequence[str] = ()) -> tuple[str, ...]:
    """Texts that stand for a missing value: those of every schema, those given, those found.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.draft import find_missing
        >>> find_missing(pd.DataFrame({"age": ["17", " ?"], "home": ["n/a", "own"]}))
        ('', 'NA', 'NaN', ' ?', 'n/a')
    """
    texts = set(given)
    for name in table.columns:
        values = table[name]
        if not pd.api.types.is_any_real_numeric_dtype(values):
            found = values.dropna().astype("string").unique()
            texts |= {text for text in found if len(text) < 10 and text.strip().lower() in MARKS}
    return (*MISSING_VALUES, *sorted(texts - set(MISSING_VALUES)))


def _same(value: Value, text: str) -> bool:
    """Whether a text names a value: numbers by value, so that 1 names 1.0."""
    if isinstance(value, str):
        return value == text
    try:
        return float(text) == value
    except ValueError:
        return False


def _laid_out(value: Any, depth: int) -> str:
    """JSON in which an object that fits into a line is one, so that a column is easily edited."""
    line = json.dumps(value, ensure_ascii=False)
    if (
        not isinstance(value, dict)
        or (depth > 1 and "kind" in value)
        or (depth and len(line) < _LINE - 2 * depth)
    ):
        return line
    inside = "  " * (depth + 1)
    items = [
        f"{inside}{json.dumps(k, ensure_ascii=False)}: {_laid_out(v, depth + 1)}"
        for k, v in value.items()
    ]
    return "{\n" + ",\n".join(items) + "\n" + "  " * depth + "}"
