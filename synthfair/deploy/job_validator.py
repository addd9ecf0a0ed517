"""The check of an arriving job, which the engine makes at all parties before the job runs.

A hardened kit names it. The engine makes it at its start, and calls it for every app that arrives,
before a process of the job reads the app's files. The engine's own look at them comes first, so
that formats which include other files must be gone by then: it would read some whose files can
include others by path and by URL, and it replaces names in braces by its own variables and by the
environment's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory

from synthfair.deploy.kit import description, differences
from synthfair.files import parse_json, read_bytes

SERVER, CLIENT = "config/config_fed_server.json", "config/config_fed_client.json"
"""The files of an app, which holds nothing else but signatures."""

SIGNATURES = frozenset({".__nvfl_sig.json", ".__nvfl_submitter.crt"})
"""Files that the engine writes when a job is submitted."""

MAX_APP_FILE_BYTES = 200_000_000
"""The largest size of such a file; a job may hold a model."""


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
            content = parse_json(read_bytes(app / name, MAX_APP_FILE_BYTES), name)
        except (OSError, ValueError, RecursionError) as error:
            return f"{SERVER} and {CLIENT}: must be files of JSON: {type(error).__name__}"
        for where, difference in differences(content, must):
            return f"{name}: {where[:200]!r}{difference}"
        if has_braces(content):
            return f"{name}: has a brace in a text, which the engine would replace by a variable"
    return ""


def has_braces(content: Any) -> bool:
    """Return whether a text in a document has a brace; in the braces, the engine reads a name."""
    if isinstance(content, dict):
        content = [*content, *content.values()]
    if isinstance(content, list):
        return any(map(has_braces, content))
    return isinstance(content, str) and "{" in content


class JobValidator(AppValidator):
    """A validator of the engine, which refuses jobs that are not as synthfair writes them."""

    def __init__(self) -> None:
        """Have this process read files of any ending as JSON, which includes no others."""
        super().__init__()
        loaders: dict[ConfigFormat, Any] = ConfigFactory._fmt2Loader
        loaders.update(dict.fromkeys(ConfigFormat, loaders[ConfigFormat.JSON]))

    def validate(self, app_folder: str) -> tuple[str, dict]:
        """Return what is wrong, and nothing that the engine need know besides."""
        return problem(Path(app_folder)), {}
