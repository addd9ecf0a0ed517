"""Docstrings as mkdocstrings reads them: those of this package have Sphinx's roles and blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?([\w.]+)`")


class SphinxStyle(griffe.Extension):
    """Roles become code, ``::`` a colon, and "Example" the section whose code is coloured."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute for mkdocstrings."""
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
