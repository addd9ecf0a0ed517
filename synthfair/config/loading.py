"""Settings from TOML files and flags, where an unknown key is an error; and what to type again."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from synthfair.config.client_settings import DistillConfig, SurrogateConfig
from synthfair.config.rules import Settings
from synthfair.config.server_settings import GAPS, ServerConfig
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


def load_distill_config(path: Path | None = None, **overrides: Any) -> DistillConfig:
    """Settings from a TOML file (or the defaults), with overrides that are not None on top.

    The file may have the key ``without_epsilon``, which is no setting.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    return load_settings(DistillConfig, path, overrides, leave_out={WITHOUT_EPSILON})


def load_release_config(
    path: Path | None = None,
    *,
    release: str | None = None,
    without_epsilon: bool = False,
    **overrides: Any,
) -> tuple[DistillConfig | SurrogateConfig, bool]:
    """Loads the settings of a release of either kind, and whether it is decided to have no epsilon.

    The kind is ``release``, or that key of the file, or fair. The decision is ``without_epsilon``,
    or that key of the file, unless the overrides have an epsilon. Raises as above; and where a
    setting of the other kind is given, or both an epsilon and the decision against one.
    """
    settings = {} if path is None else read_toml(path)
    kind = release or settings.get("release", "fair")
    if not isinstance(kind, str) or kind not in RELEASES:
        raise InputError(
            f"{path or 'settings'}: release: {kind!r} is not allowed; must be"
            f" {' or '.join(RELEASES)}"
        )
    fields, keys = RELEASES[kind].model_fields, {k for k, v in overrides.items() if v is not None}
    if wrong := sorted(keys - set(fields)):
        raise InputError(
            f"flags: {', '.join(wrong)}: not read for a {kind} release"
            + ("; fairness is chosen at the server" if kind == "surrogate" else "")
        )
    settings_of_kind = {key: value for key, value in overrides.items() if key in fields}
    leave_out = {"release", WITHOUT_EPSILON}
    config = load_settings(RELEASES[kind], path, settings_of_kind, leave_out=leave_out)
    key = settings.get(WITHOUT_EPSILON, False)
    if not isinstance(key, bool):
        raise InputError(f"{path}: {WITHOUT_EPSILON}: must be true or false; got {key!r}")
    is_decided = without_epsilon or (key and overrides.get("epsilon") is None)
    if is_decided and config.epsilon is not None:
        places = "flags" if path is None else f"flags and {path}"
        raise InputError(
            f"{places}: {WITHOUT_EPSILON} and epsilon = {config.epsilon:g} exclude each other; give"
            " one"
        )
    return config, is_decided


def load_server_config(path: Path | None = None, **overrides: Any) -> ServerConfig:
    """Return a TOML file's settings (or the defaults) with overrides that are not None on top.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    return load_settings(ServerConfig, path, overrides)


def changed_settings(config: DistillConfig | SurrogateConfig | ServerConfig) -> dict[str, Any]:
    """The settings that differ from the defaults of that wanted gap and epsilon."""
    names = {*GAPS, "epsilon", "delta"} & type(config).model_fields.keys()
    goals = {name: getattr(config, name) for name in names}
    default = type(config)(**goals).model_dump() | dict.fromkeys(goals)
    return {k: v for k, v in config.model_dump().items() if v != default.get(k)}


def load_settings(
    kind: type[_Config],
    path: Path | None,
    overrides: dict[str, Any],
    *,
    leave_out: Collection[str] = (),
) -> _Config:
    """Settings from a TOML file (or the defaults), with overrides that are not None on top.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    settings = {} if path is None else read_toml(path)
    settings = {key: value for key, value in settings.items() if key not in leave_out}
    settings = kind.named(settings)
    flags = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind.model_validate(settings | kind.named(flags))
    except ValidationError as error:
        from_flags = path is None or all(
            problem["loc"][:1] and problem["loc"][0] in flags for problem in error.errors()
        )
        raise refusal("flags" if from_flags else str(path), error) from error


def read_toml(path: Path) -> dict[str, Any]:
    """A file of settings as they are written there. Raises InputError: unreadable, or not TOML."""
    try:
        return tomllib.loads(read_bytes(path, MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: not settings: values are nested too deeply") from error
