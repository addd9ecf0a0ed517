"""What a schema may say of one column, proposed from its rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from synthfair.data.encode import as_numbers
from synthfair.data.schema import LEAST_WIDTH, MOST_WIDTH, Value, shown
from synthfair.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection

Role = Literal["feature", "label", "sensitive"]

MOST_CATEGORIES = 30
"""Of a column with more distinct values only the frequent ones are listed."""

MOST_CODES = 10
"""Whole numbers with no more distinct values than this are drafted as codes, not as quantities."""

FREQUENT = 0.01
"""Share of the rows that a value needs to be listed where not all are."""

NEAR_UNIQUE = 0.8
"""Share of distinct values from which whole numbers may be identifiers."""

MANY_ROWS = 10_000
"""Rows of which hardly two agree in an identifier, but many in an amount, such as 0 or 1000."""

MOSTLY = 0.9
"""Share of the rows with numbers or dates to be rewritten that makes a column one of them."""

EXACT = 2**53
"""Up to this size, whole numbers are exact as floating-point numbers."""

_NAMED_AS_CODE = re.compile(
    r"(?:^|[^A-Za-z])(?i:id|nr|nbr|no|key|code|uuid|guid|zip|zipcode|postcode|postal)$"
    r"|(?:^|[^A-Za-z])(?i:id|uuid|guid)[^A-Za-z]|^id[A-Z]|[a-z](?:ID|Id)$"
)
_DATE = r"\d{4}-\d{2}-\d{2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*"
_MONTH = "(?i:jan|fe[bv]|m[aä]r|apr|avr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])"
_SHORT_DATE = rf"\d{{1,2}}[-. ]+{_MONTH}\.?|{_MONTH}[-. ]+\d{{1,4}}|{_DATE}"
_RANGE = r"[<>]?\d[\d.,]*\s*%?(?:\s*(?:-|\u2013|to)\s*\d[\d.,]*\s*%?|\+)?"
_MONEY = r"(?:[$€£]|EUR|USD|GBP|CHF|CAD|AUD)?"
_BEFORE, _AFTER = rf"\(?[-+]?{_MONEY}\s?[-+]?", rf"\s?{_MONEY}\)?"
_TO_REWRITE = {
    rf"{_BEFORE}(?!0,)(?:\d{{1,3}}(?:[,'\s]\d{{3}})*|\d+)(?:\.\d+)?{_AFTER}": "numbers with"
    " thousands separators, brackets or a currency; write 63606.07 for 63,606.07 in the file",
    rf"{_BEFORE}(?:\d{{1,3}}(?:[.'\s]\d{{3}})+|\d+)(?:,\d+)?{_AFTER}": "numbers with a decimal"
    " comma; write 1.5 for 1,5 in the file",
    r"[-+]?\d+(?:[.,]\d+)?\s?%?": "numbers with a percent sign; write 63.6 for 63.6 % in the file",
    _DATE: "dates; make numbers of them in the file, such as years",
}
"""What no schema reads as numbers, and what is to be done about it."""


@dataclass(frozen=True)
class ColumnDraft:
    """What a schema may say of one column.

    Attributes:
        role: of the column.
        entries: for the schema, by use: "numeric"; "categories", all listed; "grouped", the
            frequent ones listed, and one for all others.
        use: that is proposed, a key of ``entries``; or "ignored".
        question: what a person must decide about it; empty if nothing.
    """

    role: Role
    entries: dict[str, dict[str, Any]]
    use: str
    question: str = ""

    @property
    def entry(self) -> dict[str, Any] | None:
        """What the schema says of it; None where it is ignored."""
        return self.entries.get(self.use)

    @property
    def others(self) -> dict[str, dict[str, Any]]:
        """The entries that are not proposed."""
        return {use: entry for use, entry in self.entries.items() if use != self.use}


class _Values(NamedTuple):
    """The values of a column, each once.

    Attributes:
        name: of the column.
        texts: [K] as text.
        rows: [K] that hold each.
        numbers: [K] as numbers; not-a-number where a text is none.
        missing: number of rows without a value.
    """

    name: str
    texts: np.ndarray
    rows: np.ndarray
    numbers: np.ndarray
    missing: int

    @property
    def n_rows(self) -> int:
        return int(self.rows.sum())

    @property
    def finite(self) -> bool:
        """Whether all are finite numbers."""
        return len(self.numbers) > 0 and bool(np.isfinite(self.numbers).all())

    @property
    def whole(self) -> bool:
        """Whether they are whole numbers, which categories may be."""
        numbers = self.numbers
        return self.finite and bool(np.all((numbers % 1 == 0) & (abs(numbers) <= EXACT)))

    @property
    def inexact(self) -> bool:
        """Whether they are whole numbers of which some are too large to be told apart."""
        large = self.finite and np.abs(self.numbers).max() > EXACT
        return bool(large) and bool(self.matching(r"[-+]?\d+(\.0*)?").all())

    @property
    def n_distinct(self) -> int:
        return len(np.unique(self.numbers) if self.finite and not self.inexact else self.texts)

    def matching(self, pattern: str) -> np.ndarray:
        """[K] whether each text matches a regular expression."""
        return np.array([bool(re.fullmatch(pattern, text)) for text in self.texts])

    def but_for(self, which: np.ndarray) -> str:
        """Names some of the texts as exceptions."""
        named = shown([repr(text) for text in self.texts[which]])
        return f"but for {named}; if that means missing, draft anew with --missing"


def draft_column(
    values: pd.Series, *, role: Role = "feature", missing_values: Collection[str] = ()
) -> ColumnDraft:
    """A proposal for one column.

    Args:
        values: [N], text as in a CSV file, or typed.
        role: of the column.
        missing_values: texts that stand for a missing value.

    Raises:
        InputError: a label or sensitive attribute without a value, or with too many.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.column_draft import draft_column
        >>> draft_column(pd.Series(["17", "39", "?", "90"] * 20), missing_values=["?"]).question
        '3 whole numbers: are they codes, or a quantity?'
        >>> draft_column(pd.Series([17.5, 39.0, 90.2] * 20)).entry
        {'kind': 'numeric', 'lower': 0, 'upper': 100, 'out_of_range': 'clip'}
    """
    found = _distinct(values, missing_values)
    if role != "feature":
        return _role(found, role)
    if found.n_distinct < 2:
        held = f"one value, {found.texts[0]!r}" if found.n_distinct else "no value"
        return ColumnDraft(role, {}, "ignored", f"holds {held}; list all, if others can occur")
    return _number(found) if found.finite else _text(found)


def _distinct(values: pd.Series, missing_values: Collection[str]) -> _Values:
    if not pd.api.types.is_any_real_numeric_dtype(values):
        values = values.astype("string")
    counts = values.value_counts()
    texts = counts.index.astype("string").to_numpy(object)
    present = ~np.isin(texts, list(missing_values)) if len(texts) else np.ones(0, bool)
    numbers = as_numbers(counts.index.to_series())[present]
    rows = counts.to_numpy(int)[present]
    missing = len(values) - int(rows.sum())
    return _Values(str(values.name), texts[present], rows, numbers, missing)


def _role(found: _Values, role: Role) -> ColumnDraft:
    """Of the label, or of the sensitive attribute."""
    n, name = found.n_distinct, found.name
    if n == 0 or n > MOST_CATEGORIES:
        raise InputError(
            f"{role} {name!r}: holds {n} values, and needs from 2 to {MOST_CATEGORIES}; choose"
            " another column, or add one with few values to the file"
        )
    entry, question = _listed(found, missing=False), _dates_among_ranges(found)
    if n == 1:
        question = f"holds only {found.texts[0]!r}; list all values that can occur"
    if found.missing and role == "label":
        question = (
            f"{found.missing} rows have no label, and are refused; leave them out of the file"
        )
    elif found.missing:
        # As text, since a number and a word cannot be categories of one column.
        words = sorted(found.texts.tolist())
        entry = _with_rest(words, "unknown") | {"missing": "unlisted"}
        question = f"{found.missing} rows have no group; they become the group 'unknown'"
    return ColumnDraft(role, {"categories": entry}, "categories", question)


def _number(found: _Values) -> ColumnDraft:
    n, rows, entries = found.n_distinct, found.n_rows, {"numeric": _numeric(found)}
    named = bool(_NAMED_AS_CODE.search(found.name))
    values = f"{n} whole numbers in {rows} rows, {n / rows:.0%} distinct"
    if found.inexact:
        question = f"{values}, some above {EXACT}, which are not exact: an identifier?"
        return ColumnDraft("feature", entries, "ignored", question)
    if not found.whole:
        return ColumnDraft("feature", entries, "numeric")
    entries |= _lists(found)
    use, question = "numeric", ""
    near = n >= NEAR_UNIQUE * rows and rows > MOST_CATEGORIES
    # Of numbers that are spread evenly, some ten pairs of rows would have one in common.
    unlike = n == rows and np.ptp(found.numbers) < rows**2 / 20
    unlike = unlike or (rows >= MANY_ROWS and found.rows.max() <= rows / 1000)
    if (named and 2 * n > rows > MOST_CATEGORIES) or (near and unlike):
        use, question = "ignored", f"{values}: an identifier?"
    elif near:
        question = f"{values}: a quantity, or an identifier?"
    elif n == 2:
        use = "categories"
    elif n <= MOST_CODES or (named and n <= MOST_CATEGORIES):
        use, question = "categories", f"{n} whole numbers: are they codes, or a quantity?"
    elif named:
        use = "grouped" if "grouped" in entries else "ignored"
        question = _of_many(found, use)
    return ColumnDraft("feature", entries, use, question)


def _text(found: _Values) -> ColumnDraft:
    n, entries = found.n_distinct, _lists(found)
    few, often = "categories" in entries, "grouped" in entries and 2 * n <= found.n_rows
    use = "categories" if few else "grouped" if often else "ignored"
    for pattern, what in _TO_REWRITE.items():
        fits = found.matching(pattern)
        # Plain numbers fit, too; alone they need not be rewritten.
        if found.rows[fits].sum() >= MOSTLY * found.n_rows and np.isnan(found.numbers[fits]).any():
            question = f"{n} {what}" if fits.all() else f"{n} {what}, {found.but_for(~fits)}"
            return ColumnDraft("feature", entries, use if few else "ignored", question)
    question = _dates_among_ranges(found) or _words(found) or ("" if few else _of_many(found, use))
    return ColumnDraft("feature", entries, use, question)


def _dates_among_ranges(found: _Values) -> str:
    """A question about texts such as 20-Oct among others such as 0-10 and 20-30."""
    dates = [repr(text) for text in found.texts if re.fullmatch(_SHORT_DATE, text)]
    if not 0 < len(dates) < sum(bool(re.fullmatch(_RANGE, text)) for text in found.texts):
        return ""
    return (
        f"{shown(dates)} among ranges: has a spreadsheet made a date of a range, 20-Oct of 10-20?"
        " If so, write the range in the file"
    )


def _words(found: _Values) -> str:
    """A question about a few words between numbers; empty if it is not that."""
    words = np.isnan(found.numbers)
    if not 0 < words.sum() <= 5 or 2 * found.rows[words].sum() > found.n_rows:
        return ""
    return f"numbers, {found.but_for(words)}"


def _of_many(found: _Values, use: str) -> str:
    if use == "ignored":
        return f"{found.n_distinct} values in {found.n_rows} rows: identifiers, or free text?"
    return (
        f"{found.n_distinct} values; those of at least {FREQUENT:.0%} of the rows are listed, all"
        " others are one category"
    )


def _numeric(found: _Values) -> dict[str, Any]:
    lower, upper = round_bounds(float(found.numbers.min()), float(found.numbers.max()))
    entry = {"kind": "numeric", "lower": lower, "upper": upper, "out_of_range": "clip"}
    return entry | ({"missing": "category"} if found.missing else {})


def _listed(found: _Values, *, missing: bool = True) -> dict[str, Any]:
    """All values."""
    entry = {"kind": "categorical", "categories": _sorted(found, np.arange(len(found.texts)))}
    return entry | ({"missing": "category"} if found.missing and missing else {})


def _sorted(found: _Values, at: np.ndarray) -> list[Any]:
    """Some values as categories."""
    return sorted({*(found.numbers.astype(int) if found.whole else found.texts)[at].tolist()})


def _lists(found: _Values) -> dict[str, dict[str, Any]]:
    """All values, where they are few; and the frequent ones, where some are rare."""
    few, grouped = found.n_distinct <= MOST_CATEGORIES, _grouped(found)
    rare = not few or bool((found.rows < FREQUENT * (found.n_rows + found.missing)).any())
    entries = {"categories": _listed(found)} if few else {}
    return entries | ({"grouped": grouped} if rare and grouped else {})


def _grouped(found: _Values) -> dict[str, Any] | None:
    """The frequent values, and one for the rest; None if no value is frequent."""
    frequent = found.rows >= FREQUENT * (found.n_rows + found.missing)
    at = np.flatnonzero(frequent)[:MOST_CATEGORIES]  # the most frequent come first
    if not len(at):
        return None
    rest = int(min(found.numbers.min(), 0)) - 1 if found.whole else "other"
    return _with_rest(_sorted(found, at), rest) | ({"missing": "category"} if found.missing else {})


def _with_rest(categories: list[Any], rest: Value) -> dict[str, Any]:
    """Categories of which one stands for values that are not listed."""
    categories = categories if rest in categories else [*categories, rest]
    return {"kind": "categorical", "categories": categories, "unlisted": rest}


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """Round numbers around a range: of 1, 2 or 5 times a power of ten where it begins near 0.

    Where 0 lies in the range, or nearer to it than its width, 0 is a bound, or each end is rounded
    away from 0. Else both ends are rounded to the power of ten below the width.

    Example:
        >>> from synthfair.data.column_draft import round_bounds
        >>> round_bounds(17, 90), round_bounds(-0.3, 8.1), round_bounds(1987, 2021)
        ((0, 100), (-0.5, 10), (1980, 2030))
    """
    width = high - low
    if not LEAST_WIDTH <= width <= MOST_WIDTH / 10:  # no schema has such bounds, rounded or not
        return low, high
    if -high < width and low < width:
        return _plain(-_above(-low)), _plain(_above(high))
    digits = -math.floor(math.log10(width))
    step = 10.0**-digits
    lower, upper = (
        round(f(end / step) * step, digits) for f, end in ((math.floor, low), (math.ceil, high))
    )
    return _plain(min(lower, low)), _plain(max(upper, high))


def _above(end: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... and of 0.5, 0.2, 0.1, ...; 0 if it is not above 0."""
    if end <= 0:
        return 0.0
    power = math.floor(math.log10(end))
    steps = (float(f"{times}e{power}") for times in (1, 2, 5, 10, 20))  # for rounded logarithms
    return next(step for step in steps if step >= end)


def _plain(number: float) -> float:
    """A whole number as one, which is shorter to read."""
    return int(number) if number == int(number) and abs(number) < 2**53 else number
