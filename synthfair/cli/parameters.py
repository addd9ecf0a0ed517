"""The parameters that many commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar, Unpack, get_args

from cyclopts import Group, Parameter, Token, convert

if TYPE_CHECKING:
    from pydantic import BaseModel

_Command = TypeVar("_Command", bound=Callable[..., None])


def shown_default(default: object) -> str | None:
    """Return the default as help shows it; nothing where a parameter need not be given at all."""
    if default is None or default is False or default == ():
        return None
    return " ".join(map(str, default)) if isinstance(default, list | tuple) else str(default)


def converted(kind: Any, words: Sequence[Token]) -> Any:
    """Return words as cyclopts converts them, but for whole numbers: it would round 2.7 to 3."""
    if any(int in (member, *get_args(member)) for member in (kind, *get_args(kind))):
        for word in words:
            try:
                int(word.value)
            except ValueError:
                raise ValueError(f"{word.value!r} is not a whole number") from None
    return convert(kind, words)


Force = Annotated[bool, Parameter(help="Overwrite outputs that exist.")]

Config = Annotated[Path, Parameter(help="Settings, TOML; defaults where not given.")]

SchemaFile = Annotated[Path, Parameter(help="The public schema, JSON.")]

Model = Annotated[Path, Parameter(help="model.json of a server.")]

LedgerFile = Annotated[
    Path,
    Parameter(
        help="File in which this is booked. Default: the table's name with .ledger.jsonl added. See"
        " python -m synthfair ledger --help."
    ),
]

Again = Annotated[
    bool,
    Parameter(
        help="Consent to one more exact answer about the same rows, though together they tell"
        " whole rows or suppressed counts, and one after an epsilon gives away what that protects."
    ),
]

NoiseSeed = Annotated[
    int,
    Parameter(
        help="For tests: noise that anybody can repeat. Then epsilon guarantees nothing, and what"
        " is written says so."
    ),
]


def with_settings(*groups: tuple[str, type[BaseModel], Iterable[str]]) -> Callable[..., Any]:
    """Return a decorator that gives a command flags for keys of configurations.

    A group is a title, a configuration and some of its keys; annotations, descriptions and defaults
    are those of the configuration. ``**settings`` of the command holds what is given, by key.
    """
    flags: dict[str, Any] = {}
    panels = {title: Group.create_ordered(title) for title, *_ in groups}
    for title, config, keys in groups:
        for key in keys:
            field = config.model_fields[key]
            bases = (getattr(base, "model_fields", {}).get(key) for base in config.__mro__)
            parameter = Parameter(
                group=panels[title],
                help=next((of.description for of in bases if of and of.description), None),
                show_default=shown_default(field.default) or False,
                negative=None if field.annotation is bool else (),
            )
            flags[key] = Annotated[field.annotation, parameter]
    settings = TypedDict("Settings", flags, total=False)  # type: ignore[misc]

    def decorated(command: _Command) -> _Command:
        unpacked = Unpack[settings]  # type: ignore[valid-type]
        command.__annotations__ = {**command.__annotations__, "settings": unpacked}
        return command

    return decorated
