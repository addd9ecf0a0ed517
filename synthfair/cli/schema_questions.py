"""Goes through the draft of a schema with a person, who knows what is public."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console
from rich.prompt import Confirm, Prompt
from rich.text import Text

from synthfair.data.draft import ColumnDraft, Draft, draft_table, find_missing, require_column
from synthfair.data.encode import as_numbers
from synthfair.data.schema import MISSING_VALUES, parse_schema, shown
from synthfair.errors import InputError

_Answer = TypeVar("_Answer")

_CONSOLE = Console(stderr=True, highlight=False, markup=False)

_HOW = """\
Enter takes what stands in round brackets. Texts are separated by semicolons. The answer ignore
leaves a column out; numeric, categories or grouped (rare values become one category) treat it
otherwise, where they are offered. Ctrl-C leaves; nothing is written before the end.
"""

_PUBLIC = "Do a codebook, laws or scales say all of this? If not, it is written as a draft"


def ask_for_draft(
    table: pd.DataFrame,
    name: str,
    *,
    label: str | None,
    sensitive: Sequence[str],
    missing: Sequence[str],
    positive: Sequence[str],
    additive: bool = False,
) -> Draft:
    """A draft with the answers of a person, who is asked for what is not among the arguments.

    Raises InputError as :func:`draft_table`, and EOFError where the answers end too early.
    """
    # The columns with a role.
    _CONSOLE.print(_HOW)

    def columns(answer: str) -> list[str]:
        names = [name.strip() for name in answer.split(";")]
        for one in names:
            require_column(one, table)
        return names

    of = f"of {shown([*map(str, table)], 100)}?"
    label = label or _ask_until(
        f"Which column is the label, {of}", lambda name: require_column(name, table) or name
    )
    question = f"Which column is the sensitive attribute, or which are, {of}"
    sensitive = sensitive or _ask_until(question, columns)

    # What means missing, with one question for texts that differ in blanks around them alone.
    words, sure = find_missing(table, missing), {*MISSING_VALUES, *missing}
    for mark in dict.fromkeys(word.strip() for word in words if word not in sure):
        question = Text(f"Does {mark!r} mean that a value is missing?")
        if not Confirm.ask(question, console=_CONSOLE, default=True):
            words = [word for word in words if word in sure or word.strip() != mark]

    # Each column, and then what they mean.
    draft = draft_table(table, name, label, sensitive, missing=words, additive=additive)
    for column, proposal in draft.columns.items():
        draft.columns[column] = _ask_about(column, proposal)
    if positive:
        draft.choose_positive(positive)
    else:
        values = [str(value) for value in draft.label_values]
        _ask_until(
            f"Which values of {draft.label!r} are positive, of {shown(values)}?",
            lambda answer: draft.choose_positive([text.strip() for text in answer.split(";")]),
            "; ".join(draft.likely_positive),
        )
    draft.description = _ask_until("What are the rows, and where do the bounds come from?", str)
    return draft


def ask_if_public(draft: Draft) -> bool:
    """Whether a person says so of a schema that has no other fault."""
    try:
        parse_schema(draft.to_json(reviewed=True), source="the schema")
    except InputError as error:
        _CONSOLE.print(str(error))
        return False
    return Confirm.ask(Text(_PUBLIC), console=_CONSOLE, default=False)


def _ask_about(name: str, column: ColumnDraft) -> ColumnDraft:
    """A column as a person takes it: otherwise, with public bounds, or with further values."""
    _CONSOLE.print(f"{name!r}: {column.why}")
    while True:
        entry, question, default = column.entries[column.use], "left out", "ignore"
        if "lower" in entry:
            question, default = "public bounds", f"{entry['lower']} {entry['upper']}"
        elif entry:
            question = f"{shown(entry['categories'])}; further values that can occur"
            default = "none"
        others = "".join(f", or {use}" for use in column.entries if use != column.use)
        change = _ask_until(f"{name!r}: {question}{others}", partial(_changes, column), default)
        if isinstance(change, dict):
            return column._replace(entries=column.entries | {column.use: entry | change})
        column = column._replace(use=change)
        if change == "ignore":
            return column


def _changes(column: ColumnDraft, answer: str) -> dict[str, Any] | str:
    """The changes of a column's entry by an answer; or another use, by its name."""
    if answer in column.entries:
        return answer
    entry, uses = column.entries[column.use], " or ".join(column.entries)
    if not entry or answer == "ignore":
        raise InputError(f"{answer!r}: must be {uses}; write '{answer};' for a value of that name")
    if "lower" in entry:
        ends = as_numbers(pd.Series(answer.split(), dtype="string")).tolist()
        if len(ends) != 2 or not 0 < ends[1] - ends[0] < math.inf:
            raise InputError(f"{answer!r}: must be two numbers, the second above the first")
        return {"lower": ends[0], "upper": ends[1]}
    values, texts = entry["categories"], answer.split(";") if answer != "none" else []
    try:
        further = [type(values[0])(text.strip()) for text in texts if text.strip()]
    except ValueError as error:
        raise InputError(f"{answer!r}: must be whole numbers, as the others are") from error
    return {"categories": list(dict.fromkeys([*values, *further]))}


def _ask_until(question: str, understand: Callable[[str], _Answer], default: str = "") -> _Answer:
    """Asks until an answer can be understood, and returns its meaning."""
    while True:
        options = {"default": default, "show_default": bool(default)}
        answer = Prompt.ask(Text(question), console=_CONSOLE, **options)
        try:
            return understand(answer.strip())
        except InputError as error:
            _CONSOLE.print(f"  {error}")
