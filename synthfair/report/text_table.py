"""The one table of all results, on every surface."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from synthfair.errors import CONTROLS, printable
from synthfair.fairness.metrics import Metric

MAX_WHOLE_LETTERS = 32
"""Letters of a word of text, such as a path, that may go over two lines."""


@dataclass
class Table:
    """A table of values under titles, none of which is cut, however narrow a terminal is.

    Columns stand next to each other where they fit; else the cells of a row below each other. Text
    and titles are broken between words to fit; a number, and what belongs to it, never is. Nothing
    in a cell, title or caption is taken for markup.

    Attributes:
        columns: titles; without any, the rows are facts: names in bold, and what they are.
        rows: a value for each column, see :func:`as_text`; an empty row is a line.
        title: of the table.
        caption: below it.
        form: of numbers that are no integers.
        max_rows: on a terminal; a page has all.

    Example:
        >>> from synthfair.fairness.metrics import Metric
        >>> from rich.console import Console
        >>> from synthfair.report.text_table import Table
        >>> row = ("fair releases", Metric(0.9, 0.88, 0.92), Metric(0.1, 0.05, 0.18))
        >>> table = Table(("model", "accuracy", "SPD"), [row], form=".2f")
        >>> Console(width=40).print(table)
        model: fair releases
          accuracy: 0.90 [0.88, 0.92]
          SPD: 0.10 [0.05, 0.18]
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    caption: str = ""
    form: str = "z.3f"
    max_rows: int | None = None

    @classmethod
    def of(cls, records: Sequence[Mapping[str, object]], **looks: Any) -> Table:
        """Return a row for each record; a column is left out where no record has a value for it."""
        titles = records[0] if records else ()
        columns = [t for t in titles if any(r[t] not in (None, "", ()) for r in records)]
        rows = [[record[title] for title in columns] for record in records]
        return cls([title.replace("_", " ") for title in columns], rows, **looks)

    @classmethod
    def of_facts(cls, facts: Mapping[str, object]) -> Table:
        """Return a line for each fact, of several values a line each, of None no line.

        Names and values may come from a file.

        Example:
            >>> from synthfair.report.text_table import Table
            >>> mechanisms = [{"name": "moments", "noise": 2.5, "grid": None}]
            >>> for row in Table.of_facts({"epsilon": 1.0, "mechanisms": mechanisms}).rows:
            ...     print(row)
            ('epsilon', '1')
            ('mechanisms', 'name moments, noise 2.5')
        """
        rows = [
            (as_text(name.replace("_", " ")), as_text(item, ".4g"))
            for name, value in facts.items()
            for item in (value if isinstance(value, list | tuple) else [value])
            if item is not None
        ]
        return cls((), rows)

    @property
    def cells(self) -> list[list[str]]:
        """Return the rows as text."""
        return [[as_text(value, self.form) for value in row] for row in self.rows]

    def is_text(self, column: int) -> bool:
        """Return whether a column holds words, which may be on several lines; the first does."""
        values = [row[column] for row in self.rows if row]
        letters = "".join(value for value in values if isinstance(value, str))
        lists = [v for v in values if isinstance(v, tuple | list) and not isinstance(v, Metric)]
        return column == 0 or bool(lists) or any(map(str.isalpha, letters))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print it by rich, in the width that there is."""
        facts, columns = not self.columns, tuple(map(as_text, self.columns)) or ("", "")
        words, cells = [self.is_text(i) for i in range(len(columns))], self.cells[: self.max_rows]
        more = f" The first {len(cells)} of {len(self.rows):,}." * (len(cells) < len(self.rows))
        title = Text(printable(self.title), "table.title")
        caption = Text(printable(self.caption + more), "table.caption")
        widths = _widths(columns, [row for row in cells if row], words, options.max_width)
        if widths is None:  # a line for each title and value
            yield from filter(None, [title])
            for row in filter(None, cells):
                for i, (name, cell) in enumerate(zip(columns, row, strict=True)):
                    if cell:
                        line = Text(f"{name}: {cell}" if name else cell, "" if i else "bold")
                        yield Padding(line, (0, 0, 0, 2 * bool(i)), expand=False)
            yield from filter(None, [caption])
            return
        table = RichTable(
            title=title or None,
            caption=caption or None,
            caption_justify="left" if "\n" in self.caption else "center",
            box=None if facts else box.HEAVY_HEAD,
            show_header=not facts,
        )
        for i, (name, width) in enumerate(zip(columns, widths, strict=True)):
            side, style = "left" if words[i] else "right", "bold" if facts and i == 0 else None
            table.add_column(Text(name), width=width, justify=side, overflow="fold", style=style)
        for row in cells:
            if row:
                table.add_row(*map(Text, row))
            else:
                table.add_section()
        yield table


def _widths(
    titles: Sequence[str], cells: Sequence[Sequence[str]], words: Sequence[bool], most: int
) -> list[int] | None:
    """Return widths of the columns, the widest reduced first; None where they do not fit."""

    def longest_word(text: str) -> int:
        return max(map(cell_len, text.split()), default=0)

    least, widths = [], []
    for i, title in enumerate(titles):
        longest = max((cell_len(row[i]) for row in cells), default=0)
        word = max((min(longest_word(row[i]), MAX_WHOLE_LETTERS) for row in cells), default=0)
        least.append(max(longest_word(title), word if words[i] else longest))
        widths.append(max(cell_len(title), longest))
    # A column has a blank on each side; in a table with titles there are lines between, too.
    room = most - (3 * len(widths) + 1 if any(titles) else 2 * len(widths))
    if sum(least) > room:
        return None
    while sum(widths) > room:
        _, i = max((width, i) for i, width in enumerate(widths) if width > least[i])
        widths[i] -= 1
    return widths


def as_text(value: object, form: str = "z.3f") -> str:
    """Return a value in words: an interval in brackets, "undefined" for no number, None as nothing.

    Example:
        >>> from synthfair.fairness.metrics import Metric
        >>> from synthfair.report.text_table import as_text
        >>> [as_text(v) for v in (1234, Metric(0.5, 0.25, 1.0), float("nan"), True, ("a", "b"))]
        ['1,234', '0.500 [0.250, 1.000]', 'undefined', 'yes', 'a, b']
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return format(value, form) if math.isfinite(value) else "undefined"
        case int():
            return f"{value:,}"
        case Metric():
            middle, low, high = (as_text(float(number), form) for number in value)
            return middle if "undefined" in (middle, low) else f"{middle} [{low}, {high}]"
        case Mapping():
            value = tuple(f"{k} {as_text(v, form)}" for k, v in value.items() if v is not None)
    if isinstance(value, tuple | list):
        return ", ".join(as_text(item, form) for item in value)
    text = "" if value is None else str(value)
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
