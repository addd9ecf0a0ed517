"""The files of a job's app: made here, and refused where anything else lies among them.

The engine would also read other formats, whose files can include others by path and by URL, and it
replaces names in braces by its own variables and by the environment's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthfair.deploy.hardening import description, differences
from synthfair.files import parse_json, read_bytes, write_json

SERVER, CLIENT = "config/config_fed_server.json", "config/config_fed_client.json"
"""The files of an app, which holds nothing else but signatures."""

SIGNATURES = frozenset({".__nvfl_sig.json", ".__nvfl_submitter.crt"})
"""Files that the engine writes when a job is submitted."""

MAX_BYTES = 200_000_000
"""The largest size of such a file; a job may hold a model."""


def write_app(app: Path, arguments: dict[str, Any]) -> None:
    """Write an app's files, in which jobs differ by the arguments of the server's controller."""
    (app / "config").mkdir(parents=True)
    documents = description("job")
    documents[SERVER]["workflows"][0]["args"] = arguments
    for name, document in documents.items():
        write_json(app / name, document)


def problem(app: Path) -> str:
    """Return the problem of an app's files; empty where there is none.

    Args:
        app: its folder.
    """
    for path in sorted(app.rglob("*")):
        name = path.relative_to(app).as_posix()
        is_folder = name == "config" and path.is_dir()
        is_file = (name in (SERVER, CLIENT) or path.name in SIGNATURES) and path.is_file()
        if path.is_symlink() or not (is_folder or is_file):
            return f"{name[:200]!r}: a job holds {SERVER} and {CLIENT} alone"
    for name, must in description("job").items():
        try:
            content = parse_json(read_bytes(app / name, MAX_BYTES), name)
        except (OSError, ValueError, RecursionError) as error:
            return f"{SERVER} and {CLIENT}: must be files of JSON: {type(error).__name__}"
        for where, difference in differences(content, must):
            return f"{name}: {where[:200]!r}{difference}"
        if _has_braces(content):
            return f"{name}: has a brace in a text, which the engine would replace by a variable"
    return ""


def _has_braces(content: Any) -> bool:
    if isinstance(content, dict):
        return any(map(_has_braces, (*content, *content.values())))
    if isinstance(content, list):
        return any(map(_has_braces, content))
    return isinstance(content, str) and "{" in content
