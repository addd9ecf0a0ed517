"""Hardens kits, and compares them: ``hardened_kit.yml`` says what a hardened kit is.

No function here knows a file of a kit; whatever the description does not name is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document, write_json

MOST_BYTES = 2**20
"""The largest size of a file of a kit."""

Role = Literal["server", "client", "admin"]
"""The engine's name of a party's role; a client is a site, an admin a submitter."""

PROGRESS = "synthfair.progress"
"""The command by which a submitter asks a running job for its progress."""


def role_of(kit: Path) -> Role:
    """The role whose kit a folder is.

    Raises:
        InputError: it is none.
    """
    roles: tuple[Role, ...] = ("server", "client", "admin")
    present: list[Role] = [role for role in roles if startup_file(kit, role).is_file()]
    if len(present) != 1:
        raise InputError(
            f"{kit}: not a kit: must have one of startup/fed_server.json, fed_client.json and"
            " fed_admin.json"
        )
    return present[0]


def startup_file(kit: Path, role: Role) -> Path:
    """The engine's own settings of where to connect to."""
    return kit / "startup" / f"fed_{role}.json"


class Placeholder(NamedTuple):
    """A value that differs from kit to kit."""

    words: str
    fits: Callable[[Any], bool]

    def __repr__(self) -> str:
        """The text with which messages show what is allowed."""
        return self.words


PLACEHOLDERS = {
    "NAME": Placeholder(
        "(a name, or a host and its port)",
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w@.:-]{1,300}", value)),
    ),
    "PORT": Placeholder("(a whole number)", lambda value: type(value) is int),
    "ANYTHING": Placeholder("(anything)", lambda _: True),
}
"""Placeholders, by the words that ``hardened_kit.yml`` has for them."""


def description(part: str, kit: Path = Path()) -> Any:
    """A new copy of a part of ``hardened_kit.yml``, with placeholders filled in.

    Args:
        part: a role; or ``classes``, ``provisioning`` or ``job``.
        kit: the kit's folder, absolute, for KIT.
    """

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        if isinstance(value, str) and value.startswith("KIT/"):
            return str(kit / value.removeprefix("KIT/"))
        return PLACEHOLDERS.get(value, value) if isinstance(value, str) else value

    return filled(_yaml(Path(__file__).with_name("hardened_kit.yml"))[part])


@cache
def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _template(name: str) -> str:
    import nvflare

    folder = Path(nvflare.__file__).parent / "lighter" / "templates"
    return _yaml(folder / "master_template.yml")[name]


def harden(kit: Path) -> None:
    """Replaces the engine's defaults in a kit; of a server's moved to another place, its stores.

    Raises:
        InputError: the folder is no kit.
    """
    kit, role = kit.resolve(), role_of(kit)
    kit.chmod(0o700)
    tree = description(role, kit)
    for name, must in tree["local/"].items():
        document = isinstance(must, dict) and (must.get("settings") or must.get("rights"))
        if document:
            write_json(kit / "local" / name, document)
    for name in tree["removals"]:
        (kit / name).unlink(missing_ok=True)


def folder_problems(folder: Path, tree: dict[str, Any]) -> Iterator[str]:
    """Lists where a folder is not what it must be, one line each.

    Args:
        folder: of a kit, such as ``local``.
        tree: what :func:`description` says of it.
    """
    if not folder.is_dir():
        yield f"{folder}: must be a folder, and there is none"
        return
    # Nothing else lies in it, and nothing behind a link.
    for path in sorted(folder.iterdir()):
        name = f"{path.name}/" if path.is_dir() else path.name
        is_known = any(fnmatchcase(name, pattern) for pattern in tree)
        if path.is_symlink():
            yield f"{path}: is a link; put the file itself here"
        elif not is_known or not (path.is_dir() or path.is_file()):
            yield f"{path}: not part of a hardened kit; remove it"
    # Each file is what it must be.
    for name, must in tree.items():
        if not name.endswith("/"):
            yield from problem_lines(_file_problems(folder / name, must))
        elif (folder / name).is_dir():
            yield from folder_problems(folder / name, must)


def problem_lines(problems: Iterator[str]) -> Iterator[str]:
    """Problems; where their search cannot go on, what stopped it."""
    try:
        yield from problems
    except InputError as error:
        yield from str(error).splitlines()


def _file_problems(path: Path, must: Any) -> Iterator[str]:
    if isinstance(must, str):
        if must != "free" and (not path.is_file() or path.stat().st_mode & 0o077):
            yield f"{path}: must be a file that its owner alone may read; chmod 600"
        return
    (kind, template), reasons = next(iter(must.items())), must.get("why", {})
    if kind == "script":
        pieces = re.split(r"\{~~\w+~~\}", _template(template).strip())
        pattern = r"[\w@.=-]*".join(map(re.escape, pieces))
        try:
            text = read_bytes(path, MOST_BYTES).decode().strip()
        except ValueError:  # unreadable, or not UTF-8
            text = ""
        if not re.fullmatch(pattern, text):
            yield f"{path}: not the engine's own script"
        return
    content = read_document(path)
    if kind == "template":
        template = json.loads(_template(template))
    problems = _excess if kind == "rights" else differences
    for where, problem in problems(content, template):
        reason = next((f" ({reasons[key]})" for key in where.split(".") if key in reasons), "")
        yield f"{path}: {where}{problem}{reason}"


def _excess(content: dict[str, Any], must: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Lists where a document gives more rights than it may; it may give less."""
    rights, most = content.get("permissions"), must["permissions"]
    if not isinstance(rights, dict) or not rights:
        yield "permissions", " are missing"
        return
    yield from differences(content | {"permissions": most}, must)
    for role, role_rights in rights.items():
        if role not in most or not isinstance(role_rights, dict):
            yield f"permissions.{role}", f" must be rights of one of {sorted(most)}"
            continue
        for right, value in role_rights.items():
            limit = most[role].get(right, "none")
            if value not in ("none", limit):
                yield f"permissions.{role}.{right}", f" is {_short(value)}; must be {limit!r}"


def differences(content: Any, must: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Lists where a document is not what it must be: keys, joined by dots, and what is wrong there.

    Args:
        content: of the document, as JSON holds it.
        must: what it must be, of :func:`description`. Of a list of objects with an ``id`` the order
            means nothing.
        where: it stands in the whole document.
    """
    if isinstance(must, dict) and isinstance(content, dict):
        for key in sorted(content.keys() | must.keys()):
            inner = f"{where}.{key}" if where else key
            if key not in must:
                yield inner, f": {_short(content[key])} does not belong here; remove it"
            elif key not in content:
                yield inner, f" is missing; must be {_short(must[key])}"
            else:
                yield from differences(content[key], must[key], inner)
    elif isinstance(must, list) and must and all(isinstance(m, dict) and "id" in m for m in must):
        for problem in _component_problems(content if isinstance(content, list) else [], must):
            yield where, problem
    elif isinstance(must, list) and isinstance(content, list) and len(content) == len(must):
        for number, (one, required) in enumerate(zip(content, must, strict=True)):
            yield from differences(one, required, f"{where}.{number}")
    elif not _fits(content, must):
        yield where, f" is {_short(content)}; must be {_short(must)}"


def _component_problems(components: list[Any], must: list[Any]) -> Iterator[str]:
    rest, missing = list(components), []
    for required in must:
        fits = [not any(differences(one, required)) for one in rest]
        if any(fits):
            del rest[fits.index(True)]
        else:
            missing.append(required)
    for one in rest:
        yield f": {_short(one)} does not belong here; remove it"
    for one in missing:
        yield f": {_short(one)} is missing"


def _fits(value: Any, must: Any) -> bool:
    if isinstance(must, Placeholder):
        return must.fits(value)
    return type(value) is type(must) and value == must


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."
