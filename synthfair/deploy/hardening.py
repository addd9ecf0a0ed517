"""Hardens kits, and compares them: ``hardened_kit.yml`` says what a hardened kit is.

No comparison here knows a file of a kit; whatever the description does not name is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.data.schema import read_schema
from synthfair.deploy.kit import Kit
from synthfair.errors import InputError
from synthfair.files import read_document, write_json, write_text

if TYPE_CHECKING:
    from synthfair.deploy.project import Project

PROGRESS = "synthfair.progress"
"""The command by which a submitter asks a running job for its progress."""


def description(part: str, **values: Any) -> Any:
    """Return a new copy of a part of ``hardened_kit.yml``.

    Args:
        part: a role; or ``classes``, ``proposals`` or ``job``.
        values: what stands for the words in capital letters, by word.
    """
    words = re.compile("|".join(values) or "$^")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        if not isinstance(value, str):
            return value
        return values[value] if value in values else words.sub(lambda w: str(values[w[0]]), value)

    return filled(_yaml(Path(__file__).with_name("hardened_kit.yml"))[part])


@cache
def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def harden(folder: Path, project: Project | None = None) -> Path | None:
    """Replace the engine's defaults in a kit, and propose its party's own file.

    The party's file, once it is there, is kept. A server's kit that has moved is hardened again:
    its stores then lie in it.

    Args:
        folder: the kit that ``nvflare package`` has made.
        project: proposes limits, and brings the schema.

    Returns:
        The party's file, if it was proposed; the party reviews it.

    Raises:
        InputError: the folder is no kit, or has links; or the project's schema is refused, or it
            does not name the kit's party, or the file that it proposes is there already.
    """
    kit = Kit(folder)
    local = kit.own.parent
    for path in (local, *local.rglob("*")):
        if path.is_symlink() or not path.exists():
            raise InputError(f"{path}: is missing, or a link; put the file itself here")
    if project is not None and kit.own.exists():
        raise InputError(f"{kit.own}: exists; harden without a project to keep it, or remove it")
    proposal = {} if kit.own.exists() or kit.role == "admin" else _proposal(kit, project)
    schema = read_schema(project.schema_path).to_json() if proposal and project else ""
    # The engine's defaults are replaced where they are not safe, and what nobody needs is removed.
    tree = description(kit.role, KIT=kit.folder)
    kit.folder.chmod(0o700)
    for name, must in tree["local/"].items():
        if isinstance(must, dict) and "settings" in must:
            write_json(local / name, must["settings"])
    for path in [path for pattern in tree["removals"] for path in kit.folder.glob(pattern)]:
        path.unlink()
    # The party's own: its file, the schema, and folders for public keys.
    if not proposal:
        return None
    for key in {"keys", "aggregators", "clients"} & proposal.keys():
        (local / proposal[key]).mkdir(exist_ok=True)
    if schema:
        write_text(local / "schema.json", schema)
    write_json(kit.own, proposal)
    return kit.own


def _proposal(kit: Kit, project: Project | None) -> dict[str, Any]:
    """Return what is proposed for ``local/synthfair.json``."""
    name, proposals = kit.party.name, description("proposals", PARTY=kit.party.name)
    document = proposals[kit.role] | {"org": kit.party.org}
    if project and kit.role == "client":
        parties = {party.name: party for party in (*project.sites, *project.aggregators)}
        if name not in parties:
            raise InputError(f"project: has no {name!r}; its sites are {', '.join(parties)}")
        if parties[name] in project.aggregators:
            document = proposals["aggregator"]
        limits = parties[name].limits.model_dump(mode="json")
        document |= {"org": parties[name].org, "limits": limits}
    if not (project and project.aggregators):
        document.pop("aggregators", None)
    return document if kit.role == "server" else document | {"server": "{}:{}".format(*kit.address)}


def folder_problems(folder: Path, tree: dict[str, Any]) -> Iterator[str]:
    """List where a folder is not what it must be, one line each.

    Args:
        folder: of a kit, such as ``local``.
        tree: what :func:`description` says of it.
    """
    if folder.is_symlink() or not folder.is_dir():
        yield f"{folder}: must be a folder, and no link to one"
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
        path = folder / name
        if name.endswith("/") and path.is_dir():
            yield from folder_problems(path, must)
        elif must == "private" and (not path.is_file() or path.stat().st_mode & 0o077):
            yield f"{path}: must be a file that its owner alone may read; chmod 600"
        elif isinstance(must, dict) and not name.endswith("/"):
            yield from problem_lines(_file_problems(path, must))


def problem_lines(problems: Iterator[str]) -> Iterator[str]:
    """List problems; where their search cannot go on, what stopped it."""
    try:
        yield from problems
    except InputError as error:
        yield from str(error).splitlines()


def _file_problems(path: Path, must: dict[str, Any]) -> Iterator[str]:
    content, reasons = must.get("absent", {}) | read_document(path), must.get("why", {})
    if template := must.get("template"):
        import nvflare

        templates = Path(nvflare.__file__).parent / "lighter" / "templates" / "master_template.yml"
        required = json.loads(_yaml(templates)[template])
    else:
        required = must.get("settings") or must["connection"]
    for where, problem in differences(content, required):
        reason = next((f" ({reasons[key]})" for key in where.split(".") if key in reasons), "")
        yield f"{path}: {where}{problem}{reason}"


def differences(content: Any, must: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """List where a document is not what it must be: keys, joined by dots, and what is wrong there.

    Args:
        content: of JSON.
        must: the same; ANYTHING in it is whatever it is in the content.
        where: keys of the document in another.
    """
    if isinstance(must, dict) and isinstance(content, dict):
        for key in sorted(must.keys() | content.keys()):
            inner = f"{where}.{key}" if where else key
            if key not in must:
                yield inner, f": {_short(content[key])} does not belong here; remove it"
            elif key not in content:
                yield inner, f" is missing; must be {_short(must[key])}"
            else:
                yield from differences(content[key], must[key], inner)
    elif isinstance(must, list) and isinstance(content, list) and len(content) == len(must):
        for number, (one, required) in enumerate(zip(content, must, strict=True)):
            yield from differences(one, required, f"{where}.{number}")
    elif must != "ANYTHING" and (type(content) is not type(must) or content != must):
        yield where, f" is {_short(content)}; must be {_short(must)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."
