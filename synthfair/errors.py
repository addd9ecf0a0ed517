"""The one exception for input that synthfair refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


MOST_LINES = 20
"""Of a message: more problems than this are counted."""


class InputError(ValueError):
    """Input from outside is not what it must be.

    The message names the file, the column or key, the value and what is allowed.
    """


def reason(error: BaseException) -> str:
    """The first line of the message of a library's error."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return said.splitlines()[0]


def refusal(source: str, error: ValidationError, *, whole: str = "(whole file)") -> InputError:
    """An error of pydantic as one of ours, one line for each offending key, the first of many.

    A problem of several keys together is one of the ``whole``; if that is "", the sentence, which
    names the keys, is enough.
    """
    lines, problems = [], error.errors(include_url=False)
    for problem in problems[:MOST_LINES]:
        key = ".".join(str(part) for part in problem["loc"]) or whole
        if not key:
            lines.append(f"{source}: {_sentence(problem)}")
            continue
        shown = (
            "" if problem["type"] in ("missing", "extra_forbidden") else _shown(problem["input"])
        )
        lines.append(f"{source}: {key}: {_sentence(problem)}{shown}")
    if len(problems) > MOST_LINES:
        lines.append(f"{source}: and {len(problems) - MOST_LINES} more")
    return InputError("\n".join(lines))


def _sentence(problem) -> str:  # noqa: ANN001 - pydantic's ErrorDetails, not importable cheaply
    if problem["type"] == "extra_forbidden":
        return "unknown key"
    if problem["type"] == "missing":
        return "missing"
    return problem["msg"].removeprefix("Value error, ")


def _shown(value: object) -> str:
    text = repr(value)
    return f"; got {text if len(text) <= 60 else text[:57] + '...'}"
