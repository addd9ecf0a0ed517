"""Settings from TOML files and flags; an unknown key is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from synthfair.config.distill import DistillConfig
from synthfair.config.server import ServerConfig
from synthfair.config.train import TrainConfig, is_read
from synthfair.errors import InputError, reason, refusal

_Config = TypeVar("_Config", bound=BaseModel)


def load_distill_config(path: Path | None = None, **overrides: Any) -> DistillConfig:
    """Settings from a TOML file (or the defaults), with overrides that are not None on top.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    settings = {} if path is None else _read_toml(path)
    source = "settings" if path is None else str(path)
    return _validated(DistillConfig, settings, overrides, source)


def load_train_config(path: Path | None = None, **overrides: Any) -> TrainConfig:
    """The same for an iterative method. Raises as above."""
    settings = {} if path is None else _read_toml(path)
    source = "settings" if path is None else str(path)
    return _validated(TrainConfig, settings, overrides, source)


def require_read(config: TrainConfig, methods: Sequence[str]) -> None:
    """Refuses settings that were given and that none of the methods reads. Raises InputError."""
    unread = (s for s in config.given if not any(is_read(s, method) for method in methods))
    if names := ", ".join(sorted(unread)):
        raise InputError(f"{names}: not read by {' or '.join(methods)}")


def load_server_config(**overrides: Any) -> ServerConfig:
    """The defaults with overrides that are not None on top. Raises as above."""
    return _validated(ServerConfig, {}, overrides, "settings")


def _validated(
    kind: type[_Config], settings: dict[str, Any], overrides: dict[str, Any], source: str
) -> _Config:
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind.model_validate(settings | given)
    except ValidationError as error:
        from_flags = all(
            problem["loc"][:1] and problem["loc"][0] in given for problem in error.errors()
        )
        raise refusal("flags" if from_flags else source, error) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
