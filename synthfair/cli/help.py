"""The layout of help."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

MAX_TEXT_WIDTH = 96
"""Columns of text, at most, also on a wider terminal."""

LABEL_WIDTH = 24
"""Columns of what is typed; what is longer has a line of its own."""


class PlainHelp:
    """A formatter of cyclopts. Its own ones draw boxes, which takes longer, or do not wrap."""

    def render_usage(self, console: Console, _options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line."""
        _print(console, _fill(f"Usage: {str(usage).strip()}", console, "", " " * 8) + "\n")

    def render_description(self, console: Console, _options: ConsoleOptions, text: Any) -> None:
        """Print the docstring, whose indented paragraphs are examples."""
        for paragraph in text.primary_renderable.plain.split("\n\n"):
            example = paragraph.startswith("    ")
            _print(console, (paragraph if example else _fill(paragraph, console)) + "\n")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print commands, or parameters with their choices and defaults."""
        if not panel.entries:
            return
        labels = ["  " + " ".join(entry.display_labels_with_metavar) for entry in panel.entries]
        indent = " " * min(LABEL_WIDTH + 2, max(map(len, labels)) + 2)
        lines = [f"{panel.title}:"]
        for label, entry in zip(labels, panel.entries, strict=True):
            parts = [entry.description.primary_renderable.plain]
            parts += [f"[choices: {', '.join(entry.choices)}]"] if entry.choices else []
            parts += [f"[default: {entry.default}]"] if entry.default is not None else []
            parts += ["[required]"] if entry.required else []
            first = label.ljust(len(indent))
            if len(first) > len(indent):
                lines.append(label)
                first = indent
            lines.append(_fill(" ".join(parts), console, first, indent))
        _print(console, "\n".join(lines) + "\n")


def _fill(text: str, console: Console, first: str = "", others: str = "") -> str:
    width = min(console.width, MAX_TEXT_WIDTH)
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
