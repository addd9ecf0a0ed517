"""A name has one meaning."""

import ast
import re
from collections import Counter
from pathlib import Path

import synthfair

MODULES = [ast.parse(path.read_text()) for path in Path(synthfair.__path__[0]).rglob("*.py")]


def test_names_of_classes_and_constants_stand_once():
    names = Counter()
    for node in (node for tree in MODULES for node in tree.body):
        targets = getattr(node, "targets", [getattr(node, "target", node)])
        flat = [e for target in targets for e in getattr(target, "elts", [target])]
        named = {
            getattr(target, "id", "")
            for target in flat
            if isinstance(node, ast.Assign | ast.AnnAssign)
        }
        names.update(
            {node.name}
            if isinstance(node, ast.ClassDef)
            else filter(re.compile(r"_?[A-Z0-9_]{2,}$").match, named)
        )
    assert {name for name, times in names.items() if times > 1} == set()
