"""Flags made from the keys of a configuration, so that each key has one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def add_config_flags(
    parser: argparse.ArgumentParser, config: type[BaseModel], *, leave_out: Sequence[str] = ()
) -> None:
    """Adds a flag for every key, named after it; one that is not given is None."""
    for key, field in config.model_fields.items():
        if key in leave_out:
            continue
        flag = "--" + key.replace("_", "-")
        default = "" if field.default in (None, ()) else f" Default: {_shown(field.default)}."
        text = f"{field.description}{default}".replace("%", "%%")  # argparse formats its help
        parser.add_argument(flag, dest=key, default=None, help=text, **_kind(field))


def config_flags(args: argparse.Namespace, config: type[BaseModel]) -> dict[str, Any]:
    """The flags as given, by key."""
    return {key: getattr(args, key, None) for key in config.model_fields}


def _kind(field: FieldInfo) -> dict[str, Any]:
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return {"type": item, "nargs": "*", "metavar": item.__name__.upper()}
    number = float if float in (annotation, *get_args(annotation)) else int
    return {"type": number, "metavar": number.__name__.upper()}


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
