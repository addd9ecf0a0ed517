"""The first line of a CSV file: what separates its columns."""

from __future__ import annotations

import re
from pathlib import Path

from synthfair.data.schema import MOST

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}

_BYTES = 2**20
"""That a header is searched in: a hundred for each of the most columns that are allowed."""

_QUOTED = re.compile(r'(^|[,;\t|])"[^"]*(?:""[^"]*)*"')
"""A quoted name, which may hold separators and line breaks, with the separator before it."""


def find_separator(path: Path) -> str:
    r"""What separates the columns of a CSV file, by its header.

    Of comma, semicolon, tab and vertical bar it is the one that the header holds most often outside
    quoted names.

    Args:
        path: of the file; unpacked as it is read where its name ends as that of a compressed one.

    Raises:
        ValueError: the header holds none of them, or two of them equally often, or names of more
            columns than allowed; the message says what it holds.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from synthfair.data.header import find_separator
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "loans.csv"
        ...     _ = path.write_text('income;"age, in years";paid\n1,5;20;yes\n')
        ...     find_separator(path)
        ';'
    """
    import pyarrow as pa

    with pa.input_stream(str(path)) as file:
        return separator_of(file.read(_BYTES))


def separator_of(begin: bytes) -> str:
    """The same for a table's first bytes, of which there are fewer only where it ends."""
    header, whole = _unquoted_header(begin)
    counts = {separator: header.count(separator) for separator in SEPARATORS}
    most = max(counts.values())
    found = [separator for separator, count in counts.items() if count == most]
    if not begin.strip():
        raise ValueError("it is empty")
    if most == 0:
        start = header if len(header) <= 60 else header[:57] + "..."
        blanks = ", not blanks; save the table with one of them" if " " in header.strip() else ""
        raise ValueError(
            f"its header {start!r} holds no {', '.join(SEPARATORS.values())}; one of them must"
            f" separate the columns{blanks}"
        )
    if most >= MOST:
        least = "" if whole else "at least "
        raise ValueError(f"its header names {least}{most + 1} columns; at most {MOST} are allowed")
    if not whole:
        raise ValueError(f"its first line is longer than {_BYTES} bytes, which no header is")
    if len(found) > 1:
        named = " and ".join(f"a {SEPARATORS[separator]}" for separator in found)
        raise ValueError(
            f"its header holds {named} {most} times each, and only one of them can separate the"
            " columns; quote the names that hold one"
        )
    return found[0]


def _unquoted_header(begin: bytes) -> tuple[str, bool]:
    """The header without quoted names, and whether its end was found, or that of the file."""
    text = begin.decode("utf-8-sig", errors="replace").lstrip("\r\n")
    header, *rest = re.split(r"[\r\n]", _QUOTED.sub(r"\1", text), maxsplit=1)
    return header, bool(rest) or len(begin) < _BYTES
