"""Settings from TOML files and flags, where an unknown key is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from synthfair.config.client_settings import DistillConfig, ReleaseSettings, SurrogateConfig
from synthfair.config.rules import Settings
from synthfair.errors import InputError, refusal
from synthfair.files import read_bytes

_Config = TypeVar("_Config", bound=Settings)


MAX_BYTES = 2**20
"""The largest size of a file of settings."""

RELEASES: dict[str, type[DistillConfig] | type[SurrogateConfig]] = {
    "fair": DistillConfig,
    "surrogate": SurrogateConfig,
}
"""Settings of each kind of release."""

WITHOUT_EPSILON = "without_epsilon"
"""Key of a file by which a client decides against an epsilon. It is no setting, as releases with
and without that key are the same."""


def load_release_config(
    path: Path | None = None,
    *,
    release: str | None = None,
    without_epsilon: bool = False,
    **overrides: Any,
) -> tuple[DistillConfig | SurrogateConfig, bool]:
    """Return the settings of a release of either kind, and whether it is to have no epsilon.

    The kind is ``release``, or that key of the file, or fair. The decision is ``without_epsilon``,
    or that key of the file, unless the overrides have an epsilon.

    Raises:
        InputError: as :func:`load_settings`; or a setting of the other kind, or both an epsilon and
            the decision against one.
    """
    settings = {} if path is None else read_toml(path)
    key, in_file = settings.pop(WITHOUT_EPSILON, False), settings.pop("release", "fair")
    kind = release or in_file
    if not isinstance(kind, str) or kind not in RELEASES:
        raise InputError(
            f"{path or 'settings'}: release: {kind!r} is not allowed; must be"
            f" {' or '.join(RELEASES)}"
        )
    given = {key: value for key, value in overrides.items() if value is not None}
    if wrong := sorted(given.keys() - RELEASES[kind].model_fields.keys()):
        raise InputError(
            f"flags: {', '.join(wrong)}: not read for a {kind} release"
            + ("; fairness is chosen at the server" if kind == "surrogate" else "")
        )
    config = _over(settings, RELEASES[kind], path, given)
    if kind == "fair" and config.epsilon is None and "k_min" in given:
        raise InputError("flags: k_min: not read for a fair release without epsilon")
    if not isinstance(key, bool):
        raise InputError(f"{path}: {WITHOUT_EPSILON}: must be true or false; got {key!r}")
    is_decided = without_epsilon or (key and "epsilon" not in given)
    if is_decided and config.epsilon is not None:
        places = "flags" if path is None else f"flags and {path}"
        raise InputError(
            f"{places}: {WITHOUT_EPSILON} and epsilon = {config.epsilon:g} exclude each other; give"
            " one"
        )
    return config, is_decided


def load_settings(kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]) -> _Config:
    """Return a TOML file's settings (or the defaults), with overrides that are not None on top.

    Args:
        kind: of the settings; those of a release's file may decide against an epsilon.
        path: of the file.
        overrides: settings by their names.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    settings = {} if path is None else read_toml(path)
    if issubclass(kind, ReleaseSettings):
        settings.pop(WITHOUT_EPSILON, None)
    return _over(settings, kind, path, overrides)


def _over(
    settings: dict[str, Any], kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]
) -> _Config:
    """Return the settings that a file holds, with overrides that are not None on top."""
    flags = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind.model_validate(kind.named(settings) | kind.named(flags))
    except ValidationError as error:
        from_flags = path is None or all(
            problem["loc"][:1] and problem["loc"][0] in flags for problem in error.errors()
        )
        raise refusal("flags" if from_flags else str(path), error) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as they are. Raises InputError: unreadable, or not TOML."""
    try:
        return tomllib.loads(read_bytes(path, MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: not settings: values are nested too deeply") from error
