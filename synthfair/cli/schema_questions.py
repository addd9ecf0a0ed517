"""Goes through what a draft of a schema leaves open, with a person who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.prompt import Confirm, Prompt
from rich.text import Text

from synthfair.data.column_draft import ColumnDraft, Role
from synthfair.data.draft import Draft, draft_table, find_missing, propose, require_column
from synthfair.data.schema import MISSING_VALUES, Value, parse_schema, shown
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_Answer = TypeVar("_Answer")

_HOW = """\
Enter takes what stands in round brackets. Texts are separated by semicolons.
A column is left out by the answer ignore, and treated otherwise by numeric, categories or grouped
(rare values become one category), where they are offered.
Ctrl-C leaves; nothing is written before the end.
"""

IGNORE = "ignore"
"""The answer that leaves a column out."""

_PUBLIC = (
    "Does a codebook, a law or a scale say all of this, so that it may be published?"
    " If not, it is written as a draft"
)


def ask_for_draft(
    table: pd.DataFrame,
    *,
    name: str,
    label: str | None,
    sensitive: str | None,
    positive: Sequence[str],
    missing: Sequence[str],
) -> tuple[Draft, bool]:
    """A draft with the answers of a person, and whether they confirmed that all of it is public.

    What is None, or empty, is asked for; the other arguments are those of :func:`draft_table`.

    Raises:
        InputError: as of :func:`draft_table`; or the answers end too early.
    """
    ask = _Questions()
    ask.console.print(_HOW, highlight=False)
    try:
        label = label or ask.column("Which column is the label", table, "label")
        others = table.drop(columns=label, errors="ignore")
        sensitive = sensitive or ask.column("Which column holds the groups", others, "sensitive")
        words = ask.which_mean_missing(find_missing(table, missing), missing)
        draft = draft_table(
            table,
            name=name,
            label=label,
            sensitive=sensitive,
            missing_values=words,
            confirmed=words,
        )
        for column, found in draft.columns.items():
            draft.columns[column] = ask.about(column, found)
        if positive:
            draft.choose_positive(positive)
        else:
            ask.for_positive(draft)
        draft.description = ask.until(
            "What are the rows, and where do bounds and categories come from?", str, default=""
        )
        return draft, ask.whether_public(draft)
    except EOFError as error:
        raise InputError("the answers end before the questions; nothing is written") from error


class _Questions:
    """Asks on standard error, reads from standard input, and asks again after a wrong answer."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)

    def until(
        self, question: str, understand: Callable[[str], _Answer], *, default: str
    ) -> _Answer:
        """The first answer that can be understood."""
        while True:
            answer = Prompt.ask(
                Text(question),
                console=self.console,
                default=default,
                show_default=bool(default),
            )
            try:
                return understand(answer)
            except InputError as error:
                self.console.print(f"  {error}", highlight=False, markup=False)

    def column(self, question: str, table: pd.DataFrame, role: Role) -> str:
        """A column of a table; one is proposed only where its name is a reason."""
        names, proposed = list(table.columns), propose(table, role)
        which = "" if proposed else f", of {shown(names, 100)}"
        return self.until(
            f"{question}{which}?",
            lambda answer: require_column(answer, names) or answer,
            default=proposed or "",
        )

    def which_mean_missing(self, found: Sequence[str], given: Sequence[str]) -> list[str]:
        """Those of the texts; one question for texts that differ in blanks around them alone."""
        sure = {*MISSING_VALUES, *given}
        asked = dict.fromkeys(word.strip() for word in found if word not in sure)
        meant = set()
        for word in asked:
            question = Text(f"Does {word!r} mean that a value is missing?")
            if Confirm.ask(question, console=self.console, default=True):
                meant.add(word)
        return [word for word in found if word in sure or word.strip() in meant]

    def about(self, name: str, found: ColumnDraft) -> ColumnDraft:
        """The draft of a column, changed by the answers."""
        if found.question:
            self.console.print(f"{name!r}: {found.question}", highlight=False, markup=False)
        if found.question and found.role == "feature":
            uses = [*found.entries, "ignored"]
            if len(uses) > 1:
                use = Prompt.ask("  as", console=self.console, choices=uses, default=found.use)
                found = replace(found, use=use)
            else:
                self.console.print("  is ignored")
        while (entry := found.entry) is not None:
            others = {IGNORE: "ignored"} | {use: use for use in found.others}
            others = others if found.role == "feature" else {}
            changed = (
                self._bounds(name, entry["lower"], entry["upper"], others)
                if entry["kind"] == "numeric"
                else self._categories(name, entry["categories"], others)
            )
            if isinstance(changed, dict):
                entries = found.entries | {found.use: entry | changed}
                return replace(found, entries=entries, question="")
            found = replace(found, use=changed)
        return replace(found, question="")

    def _bounds(
        self, name: str, lower: float, upper: float, others: Mapping[str, str]
    ) -> dict[str, float] | str:
        """Two numbers; or another use, by its name in ``others``."""

        def understand(answer: str) -> dict[str, float] | str:
            if answer.strip() in others:
                return others[answer.strip()]
            try:
                low, high = map(float, answer.split())
            except ValueError as error:
                raise InputError(f"{answer!r}: must be two numbers, such as 0 100") from error
            if not 0 < high - low < float("inf"):
                raise InputError(f"{answer!r}: the second must be above the first")
            return {"lower": low, "upper": high}

        question = f"{name!r}: public bounds{_or(others)}"
        return self.until(question, understand, default=f"{lower} {upper}")

    def _categories(
        self, name: str, listed: list[Value], others: Mapping[str, str]
    ) -> dict[str, list[Value]] | str:
        """All values; or another use. One that is called so is written with a semicolon."""

        def understand(answer: str) -> dict[str, list[Value]] | str:
            if answer.strip() in others:
                return others[answer.strip()]
            if answer.strip() == IGNORE:
                raise InputError(
                    f"{IGNORE}: label and groups are needed; write '{IGNORE};' for a value of this"
                    " name"
                )
            texts = [text.strip() for text in answer.split(";") if text.strip()]
            further = texts if isinstance(listed[0], str) else [_number(text) for text in texts]
            categories = list(dict.fromkeys([*listed, *further]))
            if len(categories) < 2:
                raise InputError("a category alone says nothing; name at least one more")
            return {"categories": categories}

        question = f"{name!r}: {shown(listed)}; further values that can occur{_or(others)} (none)"
        return self.until(question, understand, default="")

    def for_positive(self, draft: Draft) -> None:
        """Sets which values of the label are positive; of more than two, none is proposed."""
        values = draft.label_values
        self.until(
            f"Which values of {draft.label!r} are positive, of {shown(values)}?",
            lambda answer: draft.choose_positive([text.strip() for text in answer.split(";")]),
            default=str(values[-1]) if len(values) == 2 else "",
        )

    def whether_public(self, draft: Draft) -> bool:
        """Whether a person says so of a schema that has no other fault."""
        try:
            parse_schema(draft.to_json(reviewed=True), source="the schema")
        except InputError as error:
            self.console.print(str(error), highlight=False, markup=False)
            return False
        return Confirm.ask(Text(_PUBLIC), console=self.console, default=False)


def _or(others: Mapping[str, str]) -> str:
    return f", or {' / '.join(others)}" if others else ""


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise InputError(f"{text!r}: must be a number, as the others are") from error
    return int(number) if number.is_integer() else number
