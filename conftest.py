"""Examples of README.md and docs/ are tests.

A ``python`` block runs, after those before it on its page, and a ``text`` block that follows is what
it prints: words must be the same, numbers nearly. Blocks of ``py`` and ``console`` are only shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator

import pytest
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

TOLERANCE = 0.011
"""Of printed numbers: between machines a few of some hundred decisions differ."""

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

PRINTED = re.compile(r"\s*^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)

run = PythonEvaluator()


def examples(document: Document) -> Iterator[Region]:
    """The ``python`` blocks of a page, each with the ``text`` block that follows it, if any."""
    for region in CodeBlockParser("python", evaluate)(document):
        printed = PRINTED.match(document.text, region.end)
        region.lexemes["printed"] = printed[1] if printed else None
        yield region


def evaluate(example: Example) -> str | None:
    """Runs a block. Returns what is wrong with the output on the page."""
    claimed, printed = example.region.lexemes["printed"], io.StringIO()
    with contextlib.redirect_stdout(printed):
        run(example)
    if claimed is None or same_output(claimed, printed.getvalue()):
        return None
    return f"the page says\n{claimed}\nbut the example prints\n{printed.getvalue()}"


def same_output(claimed: str, printed: str) -> bool:
    """Whether words are the same, and numbers up to TOLERANCE."""
    texts = (" ".join(text.split()) for text in (claimed, printed))
    words, numbers = zip(*((NUMBER.split(t), NUMBER.findall(t)) for t in texts), strict=True)
    expected = [pytest.approx(float(number), abs=TOLERANCE, rel=0) for number in numbers[0]]
    return words[0] == words[1] and expected == [float(number) for number in numbers[1]]


def own_folder(namespace: dict) -> None:
    """A page runs in a folder of its own, and in JAX's own precision, single."""
    import jax

    stack = namespace["stack"] = contextlib.ExitStack()
    stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
    stack.enter_context(jax.enable_x64(False))


def leave(namespace: dict) -> None:
    """Undoes that."""
    namespace["stack"].close()


pages = Sybil(
    parsers=[examples],
    patterns=["README.md", "docs/*.md"],
    setup=own_folder,
    teardown=leave,
)
pytest_collect_file = pages.pytest()
