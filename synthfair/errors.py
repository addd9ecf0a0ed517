"""The one exception for input that synthfair refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


MAX_MESSAGE_LINES = 20
"""The most lines of a message: more problems than this are counted."""


class InputError(ValueError):
    """An error of input from outside that is not what it must be.

    The message names the file, the column or key, the value and what is allowed, and what can be
    done in terms of Python; the command line adds the flags of the arguments that it names.

    Attributes:
        arguments: names of arguments or settings that the message speaks of, and that are flags.
    """

    def __init__(self, message: str, *arguments: str) -> None:
        """Take the message, and the arguments that it names."""
        super().__init__(message)
        self.arguments = arguments


def require(package: str, feature: str, extra: str) -> None:
    """Raise InputError: a package is not installed, which an extra of synthfair brings."""
    if not find_spec(package):
        raise InputError(f"{feature}: needs {package}; pip install 'synthfair[{extra}]'")


MAX_NAMED = 5
"""The most names in a message: more are counted."""


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Characters that steer a terminal or a page in place of being shown: control characters, ends of
lines, changes of direction; and codes of no character."""


def printable(text: str) -> str:
    """Return a text in which the characters of CONTROLS are written out, but for ends of lines."""
    return CONTROLS.sub(lambda c: c[0] if c[0] == "\n" else repr(c[0])[1:-1], text)


def reason(error: BaseException) -> str:
    """Return the first line of the message of a library's error."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return message.splitlines()[0]


def refusal(source: str, error: ValidationError) -> InputError:
    """Return an error of pydantic as one of ours, a line for each offending key, the first of many.

    Without a source, which is a file or the like, lines begin with the key.
    """
    lines, problems, source = [], error.errors(include_url=False), source and f"{source}: "
    for problem in problems[:MAX_MESSAGE_LINES]:
        kind, value, key = problem["type"], problem["input"], ".".join(map(str, problem["loc"]))
        said, got = {"extra_forbidden": "unknown key", "missing": "missing"}.get(kind), ""
        # A check of several keys names the values that matter.
        if not said and not (kind == "value_error" and isinstance(value, dict)):
            is_number = type(value).__module__ == "numpy" and value.ndim == 0
            text = repr(value.item() if is_number else value)
            got = f"; got {text if len(text) <= 60 else text[:57] + '...'}"
        said = said or problem["msg"].removeprefix("Value error, ")
        lines.append(f"{source}{key and key + ': '}{said}{got}")
    if len(problems) > MAX_MESSAGE_LINES:
        lines.append(f"{source}and {len(problems) - MAX_MESSAGE_LINES} more")
    return InputError("\n".join(lines))
