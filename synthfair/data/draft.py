"""A first draft of a schema, for a person to review: what each column may be, and why."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synthfair.data.encode import as_numbers
from synthfair.data.schema import (
    LEAST_WIDTH,
    MISSING_VALUES,
    MOST_WIDTH,
    Schema,
    Value,
    blanks_hint,
    parse_schema,
    shown,
)
from synthfair.errors import InputError

WARNING = (
    "DRAFT: bounds and categories were read off a private table, and a schema is published. Go"
    " through 'to_review' with a codebook, a law or a scale: list what can occur, not what occurs."
    " Then delete this 'draft' block; no client accepts the schema before."
)

MOST_CATEGORIES, FREQUENT = 30, 0.01
"""Above so many distinct values, a column lists only those of at least this share of the rows."""

MOST_CODES = 10
"""Whole numbers with no more distinct values than this are drafted as codes, not as quantities."""

KNOTS = 6
"""Pieces of a drafted spline, about."""

SKEWED = 0.8
"""Share of values in the lowest tenth of a range from 0, from which on steps are drafted."""

_POSITIVE = ("1", "1.0", "true", "yes")
"""Texts, in small letters, of values that are taken for the positive label."""

_MARKS = ("", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "null")
"""Texts, in small letters and without blanks around, that are taken for a missing value."""

_NAMED_AS_CODE = (
    r"(?:^|[^A-Za-z])(?i:id|nr|nbr|no|key|code|uuid|guid|zip|zipcode|postcode|postal)$"
    r"|(?:^|[^A-Za-z])(?i:id|uuid|guid)[^A-Za-z]|^id[A-Z]|[a-z](?:ID|Id)$"
)
_UNIT = r"\s?(?:[$€£%]|[A-Z]{3})?\s?"
_LIKE_NUMBERS = {
    r"\d{4}-\d\d-\d\d.*|\d\d?[./]\d\d?[./]\d{2,4}.*": "dates: make numbers of them in the file",
    rf"\(?[-+]?{_UNIT}[-+]?\d+(?:[.,'\s]\d{{3}})*(?:[.,]\d+)?{_UNIT}\)?": "numbers that are not"
    " plain: write 63606.07 for € 63.606,07 or (63 606,07), and 63.6 for 63.6 % in the file",
}


class ColumnDraft(NamedTuple):
    """The possible entries of one column in a schema.

    Attributes:
        entries: for the schema, by use: "numeric"; "categories", all listed; "grouped", frequent
            ones and one for all others; "ignore", an empty entry.
        use: that is proposed, a key of ``entries``.
        why: what speaks for that use, and what a person must decide.
    """

    entries: dict[str, dict[str, Any]]
    use: str
    why: str


@dataclass
class Draft:
    """A schema in the making, with the attributes of one; ``positive`` is None while it is open."""

    name: str
    label: str
    sensitive: str | Sequence[str]
    columns: dict[str, ColumnDraft]
    missing_values: Sequence[str]
    positive: Value | tuple[Value, ...] | None = None
    description: str = ""

    @property
    def label_values(self) -> list[Value]:
        """The values of the label."""
        return self.columns[self.label].entries["categories"]["categories"]

    @property
    def likely_positive(self) -> list[str]:
        """The values of the label that say yes by themselves, as texts."""
        return [str(one) for one in self.label_values if str(one).lower() in _POSITIVE]

    def choose_positive(self, texts: Sequence[str]) -> None:
        """Sets ``positive`` to the values of the label that these texts name.

        Raises:
            InputError: one is not a value of the label, or all values are named.
        """
        values = {str(value): value for value in self.label_values}
        if not texts or not set(texts) <= set(values) or len(set(texts)) == len(values) > 1:
            some = f"must be some, but not all, values of {self.label!r}: {shown([*values])}"
            raise InputError(f"positive {shown(texts)}: {some}")
        positive = [values[text] for text in dict.fromkeys(texts)]
        self.positive = positive[0] if len(positive) == 1 else tuple(positive)

    def to_json(self, *, reviewed: bool = False) -> str:
        """The schema, with a ``draft`` block of what to review unless a person has done it."""
        to_review = {
            "description": "say what the rows are, and where bounds and categories come from",
            "positive": "which values of the label are y = +1?",
            "missing_values": "does each of them mean that a value is missing?",
            **{f"columns.{name}": column.why for name, column in self.columns.items()},
        }
        entries = {name: column.entries[column.use] for name, column in self.columns.items()}
        schema = vars(self) | {
            "columns": {name: entry for name, entry in entries.items() if entry},
            "ignored": [name for name, entry in entries.items() if not entry],
        }
        block = {} if reviewed else {"draft": {"warning": WARNING, "to_review": to_review}}
        return _laid_out(block | schema) + "\n"


def _laid_out(value: Any, begin: str = "\n") -> str:
    """JSON in which each column takes a line, so that it is easily edited."""
    if not isinstance(value, dict) or "kind" in value:
        return json.dumps(value, ensure_ascii=False)
    inside = begin + "  "
    lines = (f"{inside}{_laid_out(key)}: {_laid_out(one, inside)}" for key, one in value.items())
    return "{" + ",".join(lines) + begin + "}"


def draft_table(
    table: pd.DataFrame,
    name: str,
    label: str,
    sensitive: str | Sequence[str],
    *,
    missing: Sequence[str],
    additive: bool = False,
) -> Draft:
    """A draft from the rows of a table: a proposal for each column, and why.

    Bounds are round numbers around the values. Columns that say nothing, or too much (constants,
    identifiers), are proposed to be ignored; whole numbers with few values to be codes; of texts
    with many values the frequent ones to be listed.

    Args:
        table: text as :func:`read_raw_table` reads CSV files, or typed.
        name: of the table.
        label: a column of it.
        sensitive: another one, or several.
        missing: texts that stand for a missing value.
        additive: whether numbers get basis functions, with round knots or edges.

    Raises:
        InputError: label or sensitive is not a column, has no value or too many, or both are one.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.draft import draft_table
        >>> table, _ = sf.load_dataset("loanapp")
        >>> draft = draft_table(table, "loans", "approve", "white", missing=["", "NA"])
        >>> draft.columns["loanamt"].entries["numeric"]
        {'kind': 'numeric', 'lower': 0, 'upper': 1000, 'out_of_range': 'clip'}
    """
    attributes = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if label in attributes:
        raise InputError(f"sensitive {label!r}: is the label; choose another column")
    if len(set(attributes)) < len(attributes):
        raise InputError(f"sensitive: {shown(attributes)}: give each column once")
    columns = {
        column: draft_column(table[column], missing, additive=additive) for column in table.columns
    }
    for role, column in (("label", label), *(("sensitive", name) for name in attributes)):
        require_column(column, table, what=f"{role} ")
        entries, _, cause = columns[column]
        if not (entry := entries.get("categories")):
            remedy = f"choose a column of 2 to {MOST_CATEGORIES} values, or add one to the file"
            raise InputError(f"{role} {column!r}: {cause}; {remedy}")
        if len(entry["categories"]) > 1:
            cause = f"{len(entry['categories'])} values"
        if entry.pop("missing", None):
            cause = "rows without a label are refused; leave them out of the file"
            if role == "sensitive":
                # As text, since a number and a word cannot be categories of one column.
                groups = set(table[column].dropna().astype("string")).difference(missing)
                entry = _listing(groups, "unknown") | {"missing": "unlisted"}
                cause = "rows without a group become the group 'unknown'"
        columns[column] = ColumnDraft({"categories": entry}, "categories", cause)
    one_or_more = attributes[0] if len(attributes) == 1 else attributes
    return Draft(name, label, one_or_more, columns, missing)


def draft_schema(
    table: pd.DataFrame,
    *,
    label: str,
    sensitive: str | Sequence[str],
    positive: Value | Sequence[Value] | None = None,
) -> Schema:
    """A schema from the rows of one table, to try things out.

    Bounds and categories are read off the rows, which no epsilon covers; a UserWarning says so. A
    schema is published, and the same for all clients: before a release is sent, write one from a
    codebook, laws or scales, with ``python -m synthfair schema``.

    Args:
        table: one row a person.
        label: a column of two or more values.
        sensitive: another one, or several.
        positive: the value of the label, or several, that is the favourable decision; 1, True or
            "yes" where it is not given.

    Raises:
        InputError: label or sensitive is no column, or has too many values; or it is not clear
            which value of the label is positive.

    Example:
        >>> import warnings
        >>> import synthfair as sf
        >>> table, _ = sf.load_dataset("loanapp")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", UserWarning)
        ...     schema = sf.draft_schema(table, label="approve", sensitive="white")
        >>> schema
        Schema(table: 29 features, label approve = 1, sensitive white)
    """
    require_rows_and_header(table, source="table")
    if odd := [name for name in table.columns if not isinstance(name, str)]:
        raise InputError(f"table: column {odd[0]!r}: its name must be a text")
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise InputError(f"table: column {twice!r}: there are two of that name")
    draft = draft_table(table, "table", label, sensitive, missing=find_missing(table))
    if positive is None:
        named = draft.likely_positive
        if len(named) != 1:
            raise InputError(
                f"positive: say which values of {label!r} are the favourable decision; there are"
                f" {shown(draft.label_values)}"
            )
    else:  # by value, as the label 1.0 is drafted as 1
        given = np.atleast_1d(np.array(positive, object)).tolist()
        named = [next((str(v) for v in draft.label_values if v == one), str(one)) for one in given]
    draft.choose_positive(named)
    warnings.warn(
        "draft_schema: bounds and categories were read off the rows, which no epsilon covers. A"
        " schema is published: before you send a release, write one from a codebook",
        stacklevel=2,
    )
    return parse_schema(draft.to_json(reviewed=True), source="the drafted schema")


def require_rows_and_header(table: pd.DataFrame, *, source: str) -> None:
    """Refuses a table whose first row was taken for its header: a draft would publish that row.

    Raises InputError where there is no row; or where at least half of the names are numbers, or
    values of their own column. Names that count up, such as 0, 1, 2 or years, are a header.
    """
    if len(table) == 0:
        raise InputError(f"{source}: the table has no rows")
    names = [str(name) for name in table.columns]
    if names[0].isdecimal() and names == [str(int(names[0]) + i) for i in range(len(names))]:
        return
    like_values = np.isfinite(as_numbers(pd.Series(names, dtype="string")))
    for i, name in enumerate(names):
        values = table.iloc[:, i].astype("string").str.strip()
        like_values[i] |= bool((values == name.strip()).any())
    if 2 * (n := like_values.sum()) >= len(names):
        raise InputError(
            f"{source}: the first line looks like a row, not a header; add a header ({n} of its"
            f" {len(names)} names are numbers, or values of their own column)"
        )


def require_column(name: str, table: pd.DataFrame, *, what: str = "") -> None:
    """Refuses what is no column, and calls it ``what`` and its name. Raises InputError."""
    if name not in table.columns:
        which = shown(list(table.columns), 100) + blanks_hint(name, table.columns)
        raise InputError(f"{what}{name!r}: must be one of {which}")


def find_missing(table: pd.DataFrame, given: Collection[str] = ()) -> list[str]:
    """Texts that stand for a missing value: those of every schema, those given, those found."""
    texts = set(given)
    for name in table.columns:
        if not pd.api.types.is_any_real_numeric_dtype(values := table[name]):
            short = (text for text in values.dropna().astype("string").unique() if len(text) < 10)
            texts |= {text for text in short if text.strip().lower() in _MARKS}
    return [*MISSING_VALUES, *sorted(texts - set(MISSING_VALUES))]


def draft_column(
    values: pd.Series, missing: Collection[str] = (), *, additive: bool = False
) -> ColumnDraft:
    """A proposal for one feature: text as in a CSV file, or typed; with ``additive``, a basis.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.draft import draft_column
        >>> draft_column(pd.Series(["17", "39", "?", "90"] * 20), ["?"])[1:]
        ('categories', '3 whole numbers: codes, or a quantity?')
    """
    # Its distinct values, the missing ones aside, the most frequent first.
    present = values[~(values.isna() | values.isin(list(missing)))]
    rows, counts = len(present), present.astype("string").value_counts()
    numbers = as_numbers(counts.index.to_series())
    finite = rows > 0 and bool(np.isfinite(numbers).all())
    whole = finite and bool(np.all((numbers % 1 == 0) & (np.abs(numbers) <= 2**53)))
    if whole:  # 1 and 1.0 are one
        counts = counts.groupby(numbers.astype(int)).sum().sort_values(ascending=False)
    n, frequent = len(counts), counts.index[counts >= FREQUENT * len(values)][:MOST_CATEGORIES]

    # What a schema can say of it, by use.
    entries: dict[str, dict[str, Any]] = {}
    if finite:
        lower, upper = round_bounds(float(numbers.min()), float(numbers.max()))
        entries["numeric"] = {"kind": "numeric", "lower": lower, "upper": upper}
        entries["numeric"]["out_of_range"] = "clip"
        if additive and n > 2:
            small = counts[np.asarray(counts.index, float) <= upper / 10].sum()
            skewed = lower == 0 and small >= SKEWED * rows
            entries["numeric"]["basis"] = round_basis(lower, upper, skewed=skewed)
    if (whole or not finite) and 0 < n <= MOST_CATEGORIES:
        entries["categories"] = _listing(counts.index)
    if (whole or not finite) and 0 < len(frequent) < n:
        entries["grouped"] = _listing(
            frequent, int(min(numbers.min(), 0)) - 1 if whole else "other"
        )
    if rows < len(values):
        entries = {use: entry | {"missing": "category"} for use, entry in entries.items()}
    entries["ignore"] = {}

    # The first rule that holds says which of them is proposed.
    size, only = f"{n} values in {rows} rows", f"only {counts.index[0]!r}" if n else "no value"
    like_code = bool(re.search(_NAMED_AS_CODE, str(values.name)))
    rules = [(n < 2, "ignore", f"holds {only}; list all that can occur")]
    if finite:
        unique = n >= 0.8 * rows and rows > MOST_CATEGORIES
        # Of numbers that are spread evenly, some ten pairs of rows would have one in common.
        different = unique and n == rows and np.ptp(numbers) < rows**2 / 20
        identifier = different or (like_code and 2 * n > rows > MOST_CATEGORIES)
        codes = n <= MOST_CODES or (like_code and n <= MOST_CATEGORIES)
        rules += [
            (bool((numbers % 1).any()), "numeric", "numbers"),
            (not whole, "ignore", f"{size}, some above 2^53: an identifier?"),
            (identifier, "ignore", f"{size}: an identifier?"),
            (unique, "numeric", f"{size}: a quantity, or an identifier?"),
            (n == 2, "categories", "2 whole numbers"),
            (codes, "categories", f"{n} whole numbers: codes, or a quantity?"),
            (not like_code, "numeric", f"{n} whole numbers"),
        ]
    elif n:
        share = {one: counts[counts.index.str.fullmatch(one)].sum() / rows for one in _LIKE_NUMBERS}
        words = counts[~np.isfinite(numbers)]
        rare = len(words) <= 5 and 2 * words.sum() <= rows
        but_for = f"numbers, but for {shown([repr(word) for word in sorted(words.index)])}"
        rules += [
            (n <= MOST_CATEGORIES, "categories", f"{n} values"),
            (rare, "ignore", f"{but_for}: does that mean missing? Draft anew with --missing"),
            *((share[one] >= 0.9, "ignore", f"{n} {what}") for one, what in _LIKE_NUMBERS.items()),
        ]
    frequent = (
        f"{n} values; those of at least {FREQUENT:.0%} of the rows are listed, others are one"
    )
    rules += [
        ("grouped" in entries and 2 * n <= rows, "grouped", frequent),
        (True, "ignore", f"{size}: identifiers, or free text?"),
    ]
    return ColumnDraft(entries, *next((use, cause) for holds, use, cause in rules if holds))


def _listing(values: Iterable[Value], rest: Value | None = None) -> dict[str, Any]:
    """Values as categories, of which one stands for all that are not listed."""
    entry: dict[str, Any] = {"kind": "categorical", "categories": sorted(values)}
    if rest is None:
        return entry
    return entry | {"categories": [*sorted({*values} - {rest}), rest], "unlisted": rest}


def round_basis(lower: float, upper: float, *, skewed: bool) -> dict[str, Any]:
    """Basis functions of a number between bounds: a spline with some six round knots.

    Of a skewed one, most of whose values are small, steps at 1, 2 and 5 times powers of ten.

    Example:
        >>> from synthfair.data.draft import round_basis
        >>> round_basis(17, 90, skewed=False)["knots"]
        [17, 20, 40, 60, 80, 90]
        >>> round_basis(0, 5000, skewed=True)["edges"]
        [50, 100, 200, 500, 1000, 2000, 5000]
    """
    if skewed:
        powers = 10.0 ** (math.floor(math.log10(upper)) + np.arange(-2, 1))
        places = np.outer(powers, [1, 2, 5]).ravel()
        edges = places[(places >= upper / 100) & (places <= upper)]
        return {"kind": "steps", "edges": _plain(edges)}
    power = 10.0 ** math.floor(math.log10((upper - lower) / KNOTS))
    step = next(power * k for k in (1, 2, 5, 10) if (upper - lower) / (power * k) <= KNOTS)
    inner = step * np.arange(math.floor(lower / step) + 1, math.ceil(upper / step))
    return {"kind": "spline", "knots": _plain([lower, *inner, upper])}


def _plain(places: Iterable[float]) -> list[float]:
    """As people write them."""
    return [int(place) if place == int(place) else round(float(place), 12) for place in places]


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """The ends of a range, rounded outwards to the power of ten below its width, or to 0 near it.

    Example:
        >>> from synthfair.data.draft import round_bounds
        >>> round_bounds(17, 95), round_bounds(-0.3, 8.1), round_bounds(1987, 2021)
        ((0, 100), (-1, 9), (1980, 2030))
    """
    if not LEAST_WIDTH <= high - low <= MOST_WIDTH / 10:  # no schema has such bounds
        return low, high
    digits = -math.floor(math.log10(high - low))
    near = 0 <= low < high - low
    lower = 0.0 if near else round(math.floor(low * 10.0**digits) / 10.0**digits, digits)
    upper = round(math.ceil(high * 10.0**digits) / 10.0**digits, digits)
    ends = min(lower, low), max(upper, high)
    lower, upper = (int(end) if end.is_integer() and abs(end) < 2**53 else end for end in ends)
    return lower, upper
