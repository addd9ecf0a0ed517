"""Bugs that the tests must catch, each planted alone in a copy of the project.

``python -m tests.mutants`` runs them all; the lists stand in the modules beside this one.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One bug.

    Attributes:
        bug: what is wrong then, in a few words.
        file: the file that is changed, from the package's folder, such as ``privacy/fit.py``.
        old: text that stands in it exactly once.
        new: what replaces it.
        tests: the test file, or files separated by spaces, of which one must fail.
    """

    bug: str
    file: str
    old: str
    new: str
    tests: str
