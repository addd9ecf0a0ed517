"""The table of which no number and no title is cut, at any width of a terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text, TextType

LONG = 32
"""Letters of a word of text, such as a path, that may go over two lines."""

_UNLIMITED = 1_000_000


class ResultTable(Table):
    """Columns next to each other where they fit; else rows below each other.

    Text and titles are broken between words to fit; a number, and what belongs to it, never is.
    Nothing in a cell, title or caption is taken for markup.

    Args:
        titles: of the columns; the first holds text, the others numbers.
        text: titles of others that hold text.
        title: of the table.
        looks: as of rich's table.

    Example:
        >>> from synthfair.report.terminal import ResultTable, plain_text
        >>> table = ResultTable("model", "accuracy", "SPD")
        >>> table.add_row("fair releases", "0.90 [0.88, 0.92]", "0.10 [0.05, 0.18]")
        >>> print(plain_text(table, width=40), end="")
        model: fair releases
          accuracy: 0.90 [0.88, 0.92]
          SPD: 0.10 [0.05, 0.18]
    """

    caption: TextType | None

    def __init__(
        self, *titles: str, text: Collection[str] = (), title: str = "", **looks: Any
    ) -> None:
        """See the class."""
        super().__init__(title=Text(title, "table.title") if title else None, **looks)
        for i, name in enumerate(titles):
            words = i == 0 or name in text
            self.add_column(Text(name), justify="left" if words else "right", overflow="fold")

    @classmethod
    def of_facts(cls) -> ResultTable:
        """Without lines: a name in bold, and what it is."""
        table = cls("", " ", text=" ", show_header=False, box=None)
        table.columns[0].style = "bold"
        return table

    def add_row(self, *cells: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Adds a row of text."""
        super().add_row(*map(Text, cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich prints it."""
        if isinstance(self.caption, str):
            self.caption = Text(self.caption, "table.caption")
        if self._fits(console, options):
            yield from super().__rich_console__(console, options)
        else:
            yield from self._rows_below_each_other()

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether all columns do; their widths are set, those of the widest reduced first."""
        wide = options.update(max_width=_UNLIMITED)
        least, widths = [], []
        for column in self.columns:
            column.width = None
            title = Measurement.get(console, wide, column.header)
            cells = [Measurement.get(console, wide, cell) for cell in column.cells]
            most = max([cell.maximum for cell in cells], default=0)
            word = max([min(cell.minimum, LONG) for cell in cells], default=0)
            least.append(max(title.minimum, word if column.justify == "left" else most))
            widths.append(max(title.maximum, most))
        lines = self.__rich_measure__(console, wide).maximum - sum(widths)
        room = options.max_width - lines
        if sum(least) > room:
            return False
        while sum(widths) > room:
            _, i = max((width, i) for i, width in enumerate(widths) if width > least[i])
            widths[i] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        return True

    def _rows_below_each_other(self) -> RenderResult:
        """A line for each title and cell, but for empty cells."""
        if self.title:
            yield self.title
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for i, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
                title = f"{column.header}: " if str(column.header).strip() else ""
                if cell:
                    line = Text(f"{title}{cell}", "" if i else "bold")
                    yield Padding(line, (0, 0, 0, 2 * bool(i)), expand=False)
        if self.caption:
            yield self.caption
