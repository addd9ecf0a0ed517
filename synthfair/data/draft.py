"""A first draft of a schema, for a person to review."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synthfair.data import schema as schemas
from synthfair.data.encode import as_numbers, find_categories, tidied
from synthfair.data.schema import Schema, Value, parse_schema, repeated, shown
from synthfair.errors import InputError

WARNING = (
    "bounds and categories were read off the rows, which no epsilon covers; a schema is published:"
    " take them from a codebook, a law or a scale"
)

MAX_CATEGORIES, MIN_SHARE = 30, 0.01
"""Above so many distinct values, a column lists only those of at least this share of the rows."""

MAX_CODES = 10
"""Whole numbers with no more distinct values than this are drafted as codes, not as quantities."""

N_PIECES = 5
"""The number of pieces of a drafted spline."""

MAX_ODD_TEXTS = 5
"""The most texts among numbers that a draft names: more may be people's own numbers."""

_MARKS = ("", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "null")
"""Texts, in small letters and without blanks around, that are taken for a missing value."""

DECLARED = "as its type or an argument says"
"""Why a column is drafted so of which no bound or category is read off the rows."""

_TIME = r"\d{1,4}([-/.])\d\d?\1\d{2,4}(?!\d).*|\d\d?:\d\d.*|-?\d+ days.*"
"""A date, perhaps with a time of day, a time of day, or a duration."""

_LIKE_NUMBER = r"\W*(?:[A-Z]{3})?[\W\d]*\d\W*(?:[A-Z]{3})?"
"""Digits with signs and separators, perhaps of a currency."""

_RULE = re.compile(r"([<>=]+)\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
"""A rule by which a label of numbers is positive, as it is typed; of the signs two are allowed."""

CODES_QUESTION = "codes, or a quantity?"
"""The question that comes first in the list to review."""


def draft_schema(
    table: pd.DataFrame,
    *,
    label: str,
    positive: Value | Sequence[Value],
    sensitive: str | Sequence[str],
) -> Schema:
    """Return a schema drafted from the rows of one table, to try things out.

    Bounds and categories are read off the rows, which no epsilon covers; a UserWarning says so. A
    schema is published, and the same for all clients: before a release is sent, write one from a
    codebook, laws or scales, with ``python -m synthfair schema``.

    Args:
        table: one row a person.
        label: a column of two or more values.
        positive: the value of the label, or several, that is the favourable decision.
        sensitive: another column, or several.

    Raises:
        InputError: as :func:`draft_document`.

    Example:
        >>> import warnings
        >>> import synthfair as sf
        >>> table, _ = sf.load_dataset("loanapp")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", UserWarning)
        ...     schema = sf.draft_schema(table, label="approve", positive=1, sensitive="white")
        >>> schema
        Schema(table: 29 features, label approve = 1, sensitive white)
    """
    document = draft_document(table, "table", label=label, positive=positive, sensitive=sensitive)
    del document["draft"]
    warnings.warn(f"draft_schema: {WARNING}", stacklevel=2)
    return parse_schema(json.dumps(document), source="the drafted schema")


def draft_document(
    table: pd.DataFrame,
    name: str,
    *,
    label: str,
    positive: Value | Sequence[Value],
    sensitive: str | Sequence[str],
    missing: Sequence[str] = (),
    additive: bool = False,
) -> dict[str, Any]:
    """Return a schema as a JSON document, with a block ``draft`` that lists what to review.

    Args:
        table: text as :func:`read_raw_table` reads CSV files, or typed.
        name: of the table.
        label: a column of it.
        positive: the value of the label, or several, that are y = +1; or of a label of numbers a
            rule, ">= 10" or "< 10".
        sensitive: another column, or several.
        missing: texts that stand for a missing value, beside those that are found.
        additive: whether numbers get splines.

    Raises:
        InputError: the table has no rows or no header; label or sensitive is not a column, has no
            value or too many, or both are one; or positive is no value of the label, or all are.
    """
    table = tidied(table, ())
    _require_header(table, name)
    attributes = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    if twice := repeated([label, *attributes]):
        raise InputError(f"label, sensitive: {twice[0]!r} is given twice; name different columns")
    names, roles = list(table.columns), {label: "label", **dict.fromkeys(attributes, "sensitive")}
    for column, role in roles.items():
        if column not in names:
            raise InputError(f"{role} {column!r}: must be one of {shown(names, 100)}")
    plain = [column for column in names if not _is_nested(table[column])]
    words = find_missing(table[plain], missing)
    table = tidied(table, words, plain)
    drafts = {column: draft_column(table[column], additive=additive) for column in names}
    given = np.atleast_1d(np.array(positive, object)).tolist()
    typed = str(given[0]).strip() if len(given) == 1 else ""
    # What looks like a rule may be a value, as "<30" of days until a readmission.
    is_value = typed in table[label].astype("string").array
    rule = None if is_value else _RULE.fullmatch(typed)
    if rule:
        drafts[label] = _draft_ruled(table[label], rule)
    drafts |= {
        column: _draft_role(role, table[column])
        for column, role in roles.items()
        if not (rule and column == label)
    }
    columns = {column: entry for column, (entry, _) in drafts.items() if entry}
    questions = {
        f"columns.{column}": cause if column in columns else f"ignored: {cause}"
        for column, (_, cause) in drafts.items()
    }

    if rule:
        chosen = [{"at_least" if rule[1] == ">=" else "below": float(rule[2])}]
    else:
        values = columns[label]["categories"]
        position = find_categories(pd.Series(given, dtype="string").str.strip(), values)
        chosen = [values[i] for i in dict.fromkeys(position.tolist())]
        if not chosen or -1 in position or len(chosen) == len(values):
            allowed = f"must be some, but not all, values of {label!r}: {shown(values)}"
            raise InputError(f"positive {shown(given)}: {allowed}")
    to_review = {
        **dict(sorted(questions.items(), key=lambda question: CODES_QUESTION not in question[1])),
        "description": "say what the rows are, and where bounds and categories come from",
        "missing_values": "does each of them mean that a value is missing?",
    }
    return {
        "draft": {"warning": WARNING, "to_review": to_review},
        "name": name,
        "description": "",
        "label": label,
        "positive": chosen[0] if len(chosen) == 1 else chosen,
        "sensitive": attributes[0] if len(attributes) == 1 else attributes,
        "columns": columns,
        "ignored": [column for column in drafts if column not in columns],
        "missing_values": words,
    }


def laid_out(value: Any, begin: str = "\n") -> str:
    """Return a document as JSON in which each column takes a line, so that it is easily edited."""
    if not isinstance(value, dict) or "kind" in value:
        return json.dumps(value, ensure_ascii=False)
    inside = begin + "  "
    lines = (f"{inside}{laid_out(key)}: {laid_out(entry, inside)}" for key, entry in value.items())
    return "{" + ",".join(lines) + begin + "}"


def _require_header(table: pd.DataFrame, name: str) -> None:
    """Refuse a table whose first row was taken for its header: a draft would publish that row.

    Raises InputError where there is no row; where names are no texts or not different; or where at
    least half of the names are numbers, or values of their own column. Names that count up, such as
    0, 1, 2 or years, are a header.
    """
    names = list(table.columns)
    if len(table) == 0:
        raise InputError(f"{name}: the table has no rows")
    if odd := [column for column in names if not isinstance(column, str)] or repeated(names):
        raise InputError(f"{name}: column {odd[0]!r}: names must be texts that differ")
    if names[0].isdecimal() and names == [str(int(names[0]) + i) for i in range(len(names))]:
        return
    texts = {column: values.astype("string").str.strip() for column, values in table.items()}
    like_values = np.isfinite(as_numbers(pd.Series(names, dtype="string")))
    like_values |= [bool((texts[column] == column.strip()).any()) for column in names]
    if 2 * (n := like_values.sum()) >= len(names):
        raise InputError(
            f"{name}: the first line looks like a row, not a header; add a header ({n} of its"
            f" {len(names)} names are numbers, or values of their own column)"
        )


def find_missing(table: pd.DataFrame, given: Collection[str] = ()) -> list[str]:
    """Return the texts that mean missing: those of every schema, those given, those found."""
    texts = set(given)
    for name in table.columns:
        if not pd.api.types.is_any_real_numeric_dtype(values := table[name]):
            occurring = values.dropna().astype("string").str.strip().unique()
            texts |= {text for text in occurring if text.lower() in _MARKS}
    default = schemas.MISSING_VALUES
    return [*default, *sorted(texts - set(default))]


def draft_column(
    values: pd.Series,
    *,
    additive: bool = False,
    categories: Any = None,
    bounds: tuple[float, float] | None = None,
    quantities: bool = False,
) -> tuple[dict[str, Any] | None, str]:
    """Return the proposed entry of a feature, None to ignore it; and why, and what to decide.

    Why is DECLARED where nothing is read off the values but whether some are missing.

    Args:
        values: text as in a CSV file, or typed; NA where missing.
        additive: whether a number gets a spline.
        categories: what a categorical column may hold; if None, what its dtype lists, if any.
        bounds: lower and upper of a column of numbers, where they are known.
        quantities: whether a dtype of numbers says that they are no codes and no identifiers.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.draft import draft_column
        >>> draft_column(pd.Series(["17", "39", None, "90"] * 20))[1]
        '3 whole numbers: codes, or a quantity?'
    """
    if _is_nested(values):
        return None, "holds lists, and no number or text"
    known = tidied(values.to_frame("x"), (), ["x"])["x"].dropna()
    if categories is None:
        is_bool = pd.api.types.is_bool_dtype(values)
        categories = [False, True] if is_bool else getattr(values.dtype, "categories", None)
    if categories is not None:
        listed = pd.Index(np.atleast_1d(categories))
        if not pd.api.types.is_any_real_numeric_dtype(listed):
            listed = listed.astype("string").str.strip()
        entry, cause = {"kind": "categorical", "categories": listed.tolist()}, DECLARED
    elif bounds or (quantities and pd.api.types.is_any_real_numeric_dtype(values)):
        numbers = as_numbers(known)
        numbers = numbers[np.isfinite(numbers)]  # encoding refuses the others
        if not len(numbers):
            return None, "holds no number"
        entry = _numeric(numbers, bounds, additive=additive)
        cause = DECLARED if bounds else "numbers"
    else:
        entry, cause = _first_rule(len(values), known, additive=additive)
    return entry and entry | ({"missing": "category"} if len(known) < len(values) else {}), cause


def _first_rule(
    n_rows: int, known: pd.Series, *, additive: bool
) -> tuple[dict[str, Any] | None, str]:
    """Return the entry of the first rule that holds, and why, for a column without a type."""
    texts, rows = _counts(known), len(known)
    # Digits behind a zero, as in postcodes: no quantity is written so.
    codes = bool(texts.index.str.isdecimal().all() and texts.index.str.match(r"0\d").any())
    counts = texts if codes else _by_number(texts)
    n, size, listed = len(counts), f"{len(counts)} values in {rows} rows", _listing(counts.index)
    only = f"only {counts.index.tolist()[0]!r}" if n else "no value"
    dates = texts[texts.index.str.fullmatch(_TIME)].sum() >= 0.9 * rows
    rules = [
        (n < 2, None, f"holds {only}; list all that can occur"),
        (dates, None, f"{n} dates, times or durations"),
    ]
    if n > 1 and pd.api.types.is_numeric_dtype(counts.index):
        numbers = counts.index.to_numpy(float)
        number = _numeric(numbers, additive=additive)
        whole = f"{n} whole numbers" + (f": {CODES_QUESTION}" if n > 2 else "")
        # Of numbers that are spread evenly, some ten pairs of rows would have one in common.
        different = n == rows > MAX_CODES and np.ptp(numbers) < max(n, rows**2 / 20)
        rules += [
            ((numbers % 1).any(), number, "numbers"),
            (np.abs(numbers).max() > 2**53, None, "numbers above 2^53: an identifier?"),
            (different, None, f"{size}: an identifier?"),
            (n <= MAX_CODES, listed, whole),
            (True, number, whole),
        ]
    question = f": {CODES_QUESTION}" if codes else ""
    odd = texts[~np.isfinite(as_numbers(texts.index.to_series()))]
    is_few = len(odd) <= MAX_ODD_TEXTS
    named = shown(sorted(map(repr, odd.index))) if is_few else f"{len(odd)} texts"
    is_rare = is_few and 2 * odd.sum() <= rows
    alike = texts[texts.index.str.fullmatch(_LIKE_NUMBER)].sum() >= 0.9 * rows
    remedy = "name what means missing, and write 63606.07 for € 63.606,07"
    is_short = n <= MAX_CODES or (n <= MAX_CATEGORIES and 2 * n <= rows)
    frequent = counts[counts >= MIN_SHARE * n_rows].nlargest(MAX_CATEGORIES).index
    often = f"{n} values; those of at least {MIN_SHARE:.0%} of the rows are listed, others are one"
    rules += [
        (is_short, listed, f"{n} values{question}"),
        (len(odd) > 0 and (is_rare or alike), None, f"numbers, but for {named}: {remedy}"),
        (len(frequent) > 0 and 2 * n <= rows, _listing(frequent, "other"), often + question),
        (True, None, f"{size}: identifiers, or free text?"),
    ]
    return next((entry, cause) for holds, entry, cause in rules if holds)


def _numeric(
    numbers: np.ndarray, bounds: tuple[float, float] | None = None, *, additive: bool
) -> dict[str, Any]:
    """Return the entry of numbers [N], which are clipped to bounds, by default round ones."""
    low, high = float(numbers.min()), float(numbers.max())
    lower, upper = bounds or round_bounds(low, high if high > low else low + max(1.0, abs(low)))
    entry = {"kind": "numeric", "lower": lower, "upper": upper, "out_of_range": "clip"}
    if additive and len(np.unique(numbers)) > 2:
        inner = [float(f"{knot:.12g}") for knot in np.linspace(lower, upper, N_PIECES + 1)[1:-1]]
        entry["basis"] = {"kind": "spline", "knots": [lower, *inner, upper]}
    return entry


def _is_nested(values: pd.Series) -> bool:
    """Return whether a column holds lists, or other things that are no number or text."""
    return values.dtype == object and any(map(pd.api.types.is_list_like, values.dropna()))


def _draft_ruled(values: pd.Series, rule: re.Match[str]) -> tuple[dict[str, Any], str]:
    """Return the entry of a label of numbers, and why. Raises InputError: another rule."""
    numbers = as_numbers(values.dropna())
    above = numbers >= float(rule[2])
    is_divided = np.isfinite(numbers).all() and above.any() and not above.all()
    if rule[1] not in (">=", "<") or not is_divided:
        allowed = f"like >= 10 or < 10, and divide the numbers of label {values.name!r} in two"
        raise InputError(f"positive {rule[0]}: must be {allowed}")
    return _numeric(numbers, additive=False), "numbers, divided by the rule of positive"


def _draft_role(role: str, values: pd.Series) -> tuple[dict[str, Any], str]:
    """Return the entry of a label or a sensitive attribute, and why. Raises InputError: of none."""
    texts, source = _counts(values), f"{role} {values.name!r}"
    listed = _listing(_by_number(texts).index)
    n, without = len(listed["categories"]), len(values) - texts.sum()
    if not (2 if role == "label" else 1) <= n <= MAX_CATEGORIES:
        remedy = f"choose a column of 2 to {MAX_CATEGORIES} values, or add one to the file"
        if n and np.isfinite(as_numbers(texts.index.to_series())).all():
            edit = "draft with another attribute, then make this one sensitive, with bins, by hand"
            remedy += (
                f"; for numbers, {edit if role == 'sensitive' else 'a rule, as >= 10 or < 10'}"
            )
        raise InputError(f"{source}: holds {n} values; {remedy}")
    folded: Any = texts.index.str.casefold().str.replace(r"\s+", "", regex=True)
    names = texts.index.to_series().groupby(folded).agg(sorted)
    if same := [spelled for spelled in names if len(spelled) > 1]:
        raise InputError(
            f"{source}: {' and '.join(map(repr, same[0]))} differ by case or blanks alone; write"
            " them alike in the file"
        )
    if role == "sensitive" and without:
        # As text, since a number and a word cannot be categories of one column.
        entry = _listing(texts.index, "unknown") | {"missing": "unlisted"}
        return entry, "rows without a group become the group 'unknown'"
    cause = f"{n} values" + ": can others occur?" * (n > 2 or role == "sensitive")
    return listed, cause + f"; {without} rows without a label are left out" * bool(without)


def _counts(values: pd.Series) -> pd.Series:
    """Return how often each text occurs, the most frequent first; all spellings of True are one."""
    texts = values.dropna().astype("string").value_counts()
    lower = texts.index.str.lower()
    if lower.isin(["true", "false"]).any() and lower.isin(["true", "false", "1", "0"]).all():
        spelled = {"true": "True", "1": "True", "false": "False", "0": "False"}
        texts = texts.groupby(lower.map(spelled)).sum()
    return texts


def _by_number(counts: pd.Series) -> pd.Series:
    """Return the counts by number where all texts are numbers, so that 1 and 1.0 are one."""
    numbers = as_numbers(counts.index.to_series())
    if not np.isfinite(numbers).all():
        return counts
    whole = np.all((numbers % 1 == 0) & (np.abs(numbers) <= 2**53))
    return counts.groupby(numbers.astype(int) if whole else numbers).sum()


def _listing(values: Iterable[Value], rest: Value | None = None) -> dict[str, Any]:
    """Return values as categories, of which ``rest`` stands for all that are not listed."""
    categories = sorted(set(values) - {rest})
    if rest is None:
        return {"kind": "categorical", "categories": categories}
    return {"kind": "categorical", "categories": [*categories, rest], "unlisted": rest}


def round_bounds(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a range, rounded outwards to a power of ten, or to 0 near it.

    The power is that below its width.

    Example:
        >>> from synthfair.data.draft import round_bounds
        >>> round_bounds(17, 95), round_bounds(-0.3, 8.1), round_bounds(1987, 2021)
        ((0.0, 100.0), (-1.0, 9.0), (1980.0, 2030.0))
    """
    if not schemas.MIN_WIDTH <= high - low <= schemas.MAX_WIDTH / 10:  # no schema has such
        return low, high
    digits = -math.floor(math.log10(high - low))
    lower, upper = math.floor(low * 10.0**digits), math.ceil(high * 10.0**digits)
    lower = 0 if 0 <= low < high - low else lower
    ends = round(lower / 10.0**digits, digits), round(upper / 10.0**digits, digits)
    return min(ends[0], low), max(ends[1], high)
