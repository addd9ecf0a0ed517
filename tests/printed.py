"""What a terminal shows."""

import io

from rich.console import Console


def plain_text(result, width=100):
    """A table, or several, as text."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(result)
    return file.getvalue()
