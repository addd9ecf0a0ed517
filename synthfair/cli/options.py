"""What all commands share: ``-h`` and ``--help``, advanced options, flags of configurations."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from synthfair.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

DONE, FAILED, REFUSED = 0, 1, 2

EXIT_CODES = {
    DONE: "done",
    FAILED: "system error",
    REFUSED: "input or result refused",
    INTERRUPTED: "Ctrl-C",
}
"""What the exit code of every command means."""

_ADVANCED = "advanced "


class Parser(argparse.ArgumentParser):
    """Of a command: ``-h`` shows the common options, ``--help`` all of them, as in git and ruff.

    All options are common but those of :func:`advanced` groups. The usage names what must be given.
    """

    def __init__(self, **settings: Any) -> None:
        """Takes what argparse's own takes."""
        codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
        ours = {
            "add_help": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "epilog": f"Exit codes: {codes}.",
        }
        super().__init__(**ours | settings)
        nothing: dict[str, Any] = {"nargs": 0, "dest": argparse.SUPPRESS}
        self.add_argument("-h", action=_CommonHelp, help="Show the common options.", **nothing)
        self.add_argument("--help", action="help", help="Show all options.")

    def format_usage(self) -> str:
        """One line, which also comes before an error."""
        self.usage = self._needed()
        return super().format_usage()

    def format_help(self) -> str:
        """The usage, the description with its example, the options, the exit codes."""
        self.usage = self._needed()
        return super().format_help()

    def format_common_help(self) -> str:
        """The same without the advanced options."""
        groups = self._action_groups
        self._action_groups = [g for g in groups if not (g.title or "").startswith(_ADVANCED)]
        n_hidden = sum(len(g._group_actions) for g in groups if g not in self._action_groups)
        text = self.format_help()
        self._action_groups = groups
        return text + (f"--help shows {n_hidden} advanced options, too.\n" if n_hidden else "")

    def _needed(self) -> str:
        positional = [a for a in self._actions if not a.option_strings]
        required = [a for a in self._actions if a.option_strings and a.required]
        words = [self.prog, *map(_shown_positional, positional), *map(_shown_flag, required)]
        if not self._subparsers:
            words.append("[options]")
        lines = textwrap.wrap(" ".join(words), 72, break_on_hyphens=False)
        return ("\n" + " " * 8).join(lines)


class _CommonHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        if isinstance(parser, Parser):
            print(parser.format_common_help(), end="")  # noqa: T201 - the command line's own voice
        parser.exit()


def _shown_flag(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    return f"{action.option_strings[0]} {value}" + (" ..." if action.nargs == "+" else "")


def _shown_positional(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return f"{action.metavar} ..."
    name = f"{action.metavar or action.dest}" + (" ..." if action.nargs in ("+", "*") else "")
    return f"[{name}]" if action.nargs in ("?", "*") else name


def add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, ModuleType], names: Collection[str]
) -> None:
    """Adds commands, of which only those of ``names`` get their arguments, as that takes time.

    A command is a module with HELP, DESCRIPTION, add_arguments(parser) and, unless that adds
    commands, run(args).
    """
    added = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name, module in commands.items():
        command = added.add_parser(name, help=module.HELP)
        if name in names:
            configure(command, module)


def configure(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Makes a parser that of a command."""
    parser.description = module.DESCRIPTION
    if hasattr(module, "run"):
        parser.set_defaults(run=module.run)
    module.add_arguments(parser)


def advanced(parser: argparse.ArgumentParser, what: str = "options") -> argparse._ArgumentGroup:
    """A group of options that ``-h`` leaves out, under the heading "advanced ..."."""
    return parser.add_argument_group(_ADVANCED + what)


def add_config_flags(
    parser: argparse.ArgumentParser,
    config: type[BaseModel],
    *,
    common: Collection[str] = (),
    leave_out: Collection[str] = (),
    marks: Mapping[str, str] | None = None,
    what: str = "settings (keys of the configuration)",
) -> None:
    """Adds a flag for every key, named after it; one that is not given is None.

    Flags of the keys in ``common`` stand with the command's own, the others in an advanced group.
    The help of the keys in ``marks`` begins with what is marked there.
    """
    others = advanced(parser, what)
    for key, field in config.model_fields.items():
        if key in leave_out:
            continue
        flag = "--" + key.replace("_", "-")
        default = "" if field.default in (None, ()) else f" Default: {_shown(field.default)}."
        said = field.description or ""
        if mark := (marks or {}).get(key):
            said = f"{mark}: {said[0].lower()}{said[1:]}"
        text = f"{said}{default}".replace("%", "%%")  # argparse formats its help
        group = parser if key in common else others
        group.add_argument(flag, dest=key, default=None, help=text, **_kind(field))


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
