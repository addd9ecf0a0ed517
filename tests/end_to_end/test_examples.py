"""The Python on README.md and the pages of docs/ runs, and prints what the page says.

A ``python`` block runs after those before it on its page. A ``text`` block that follows is what it
prints: words must be the same, numbers nearly. Blocks of ``py`` and ``console`` are only shown.
"""

import contextlib
import io
import re
import warnings

import jax
import pytest
from comparison import EXAMPLE, same_text
from page_texts import PAGES
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

PRINTED = re.compile(r"\s*^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)

run = PythonEvaluator()


def examples(document):
    """The ``python`` blocks of a page, each with the ``text`` block that follows it, if any."""
    for region in CodeBlockParser("python", evaluate)(document):
        printed = PRINTED.match(document.text, region.end)
        region.lexemes["printed"] = printed[1] if printed else None
        yield region


def evaluate(example):
    """Runs a block. Returns what is wrong with the output on the page."""
    claimed, printed = example.region.lexemes["printed"], io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other packages; readers see none
        run(example)
    if claimed is None or same_text(claimed, printed.getvalue(), tolerance=EXAMPLE):
        return None
    return f"the page says\n{claimed}\nbut the example prints\n{printed.getvalue()}"


sybil = Sybil(parsers=[examples], filenames=["README.md"], patterns=["*.md"])


LONG = ("any-learner.md", "python.md", "scikit-learn.md", "which-release.md")
"""Pages whose examples take long to compile."""


def with_examples():
    for path in PAGES:
        if document := list(sybil.parse(path).examples()):
            marks = [pytest.mark.slow] if path.name in LONG else []
            yield pytest.param(document, id=path.name, marks=marks)


@pytest.mark.parametrize("page", list(with_examples()))
def test_examples_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    """In a folder of its own, and in JAX's own precision, single."""
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        for example in page:
            example.evaluate()
