"""The files of a job's app: made here, and refused where anything else lies among them.

The engine would also read other formats, whose files can include others by path and by URL, and it
replaces names in braces by its own variables and by the environment's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from synthfair.deploy.hardening import CLASSES
from synthfair.files import parse_json, read_bytes
from synthfair.task.messages import TaskName

SERVER, CLIENT = "config/config_fed_server.json", "config/config_fed_client.json"
"""All that an app holds, but for signatures."""

SIGNATURES = frozenset({".__nvfl_sig.json", ".__nvfl_submitter.crt"})
"""Files that the engine writes when a job is submitted."""

MAX_BYTES = 200_000_000
"""Of such a file; a job may hold a model."""

FETCH = 0.05
"""Seconds between a site's questions for work; by default 2."""

_SHARED = {
    "format_version": 2,
    "components": [],
    "task_data_filters": [],
    "task_result_filters": [],
}


def client_config() -> dict[str, Any]:
    """What a site is told to load; of every job the same."""
    executor = {"path": CLASSES["client"][0], "args": {}}
    return _SHARED | {
        "default_task_fetch_interval": FETCH,
        "executors": [{"tasks": list(get_args(TaskName)), "executor": executor}],
    }


def server_config(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the server is told to load: jobs differ in the controller's arguments alone."""
    controller = {"id": "controller", "path": CLASSES["server"][0], "args": arguments}
    return _SHARED | {"server": {"task_request_interval": FETCH}, "workflows": [controller]}


def problem(app: Path) -> str:
    """What speaks against an app's files; empty where nothing does.

    Args:
        app: its folder.
    """
    found = {path.relative_to(app).as_posix(): path for path in app.rglob("*")}
    if extra := sorted(name for name, path in found.items() if not _is_known(name, path)):
        return f"{extra[0][:200]!r}: a job holds {SERVER} and {CLIENT} alone"
    try:
        server, client = (_read(found[name]) for name in (SERVER, CLIENT))
    except (KeyError, OSError, ValueError, RecursionError) as error:
        return f"{SERVER} and {CLIENT}: must be files of JSON: {type(error).__name__}"
    if client != client_config():
        return f"{CLIENT}: must be as synthfair writes it"
    if server != server_config(_arguments(server)):
        return f"{SERVER}: may differ from what synthfair writes in the controller's args alone"
    if _has_braces(server):
        return f"{SERVER}: has a brace in a text, which the engine would replace by a variable"
    return ""


def _is_known(name: str, path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return name == "config"
    return path.is_file() and (name in (SERVER, CLIENT) or path.name in SIGNATURES)


def _read(path: Path) -> Any:
    return parse_json(read_bytes(path, MAX_BYTES), path.name)


def _arguments(server: Any) -> Any:
    try:
        return server["workflows"][0]["args"]
    except (KeyError, IndexError, TypeError):
        return {}


def _has_braces(found: Any) -> bool:
    if isinstance(found, dict):
        return any(map(_has_braces, (*found, *found.values())))
    if isinstance(found, list):
        return any(map(_has_braces, found))
    return isinstance(found, str) and "{" in found
