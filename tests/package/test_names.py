"""A name has one meaning, and a module one subject."""

import ast
import re
from collections import Counter
from pathlib import Path

import synthfair

MODULES = {path: ast.parse(path.read_text()) for path in Path(synthfair.__path__[0]).rglob("*.py")}


def test_no_two_classes_or_constants_share_a_name():
    names = Counter()
    for node in (node for tree in MODULES.values() for node in tree.body):
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


def test_the_first_line_of_a_module_names_one_thing():
    lines = {
        str(path): (ast.get_docstring(tree) or "").split("\n")[0] for path, tree in MODULES.items()
    }
    assert {path: line for path, line in lines.items() if re.search(r"\band\b", line)} == {}
