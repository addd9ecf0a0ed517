"""What a site, and the server, set for themselves: ``local/synthfair.json`` in their kits.

A job never names a path, and no job can exceed what stands here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from synthfair.config import LARGEST_EPSILON, LEAST_EPSILON
from synthfair.config.rules import FROZEN
from synthfair.deploy.messages import Hex32
from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.ledger import Ledger

FILE = "synthfair.json"
"""Its name, in the folder ``local`` of a kit."""

MAX_BYTES = 1_000_000
"""Of such a file."""

Kind = Literal["fair", "surrogate", "gap"]
"""Of release: fair synthetic rows, a surrogate, or reports of gaps, one of each row."""


class Limits(BaseModel):
    """What a job may have of a site at most.

    Attributes:
        releases: kinds of release that may leave; by default none.
        most_epsilon: of one release, one training, or one report of a row; None where none may
            claim an epsilon.
        without_epsilon: whether there may be a release, or a training, without one.
        most_releases: that may leave without an epsilon, over all jobs. One more of the same rows
            with other settings reveals more of them, and no ledger bounds that.
        least_epsilon_left: of the ledger's limit, what must be left after a job; above 0, the
            ledger must have a limit (``python -m synthfair ledger``).
        k_min: least rows of a pair of group and label in a surrogate.
        most_rounds: of training in which a report may leave without noise of the site's own, over
            all jobs: then the server sees it, also where the server adds noise for all others.
    """

    model_config = FROZEN

    releases: tuple[Kind, ...] = ()
    most_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    without_epsilon: bool = False
    most_releases: int = Field(default=1, ge=0)
    least_epsilon_left: float = Field(default=0.0, ge=0, le=LARGEST_EPSILON)
    k_min: int = Field(default=50, ge=1)
    most_rounds: int = Field(default=0, ge=0)


class SiteSettings(BaseModel):
    """Of a site. Relative paths start at the folder of the file.

    Attributes:
        data: the private table.
        schema_path: ``schema`` in the file; the public schema, which the site has read.
        key: private key that signs releases and answers, of ``python -m synthfair keygen``.
        ledger: where releases are booked; next to the table if not given.
        limits: see there.
    """

    model_config = FROZEN | {"populate_by_name": True}

    format: Literal["synthfair-site/1"] = "synthfair-site/1"
    data: Path
    schema_path: Path = Field(alias="schema")
    key: Path
    ledger: Path | None = None
    limits: Limits = Limits()

    @property
    def ledger_file(self) -> Path:
        """Where releases and trainings are booked."""
        return self.ledger or Ledger.for_table(self.data).path


class ServerSettings(BaseModel):
    """Of the server. Relative paths start at the folder of the file.

    Attributes:
        schema_path: ``schema`` in the file; the public schema.
        keys: folder of the sites' public keys, each named after its site: NAME.pub.
        tests: test tables; without any there is no metrics.json.
        revoked: public keys, in hexadecimal, that no longer count, whatever lies in ``keys``.
    """

    model_config = FROZEN | {"populate_by_name": True}

    format: Literal["synthfair-server/1"] = "synthfair-server/1"
    schema_path: Path = Field(alias="schema")
    keys: Path
    tests: tuple[Path, ...] = ()
    revoked: tuple[Hex32, ...] = ()


_Settings = TypeVar("_Settings", SiteSettings, ServerSettings)


def read_settings(path: Path, kind: type[_Settings]) -> _Settings:
    """The settings in a file, with absolute paths.

    Args:
        path: of the file.
        kind: of the one whose they are.

    Raises:
        InputError: unreadable, an unknown key, or a value that is not allowed.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than the {MAX_BYTES} bytes that are allowed")
        found = kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except ValidationError as error:
        raise refusal(str(path), error) from error
    return found.model_copy(update=_absolute(found, path.parent.resolve()))


def _absolute(found: SiteSettings | ServerSettings, folder: Path) -> dict[str, object]:
    """The paths of settings; an absolute one stays as it is."""

    def place(path: Path) -> Path:
        return Path(os.path.normpath(folder / path))

    paths: dict[str, object] = {}
    for name in type(found).model_fields:
        value = getattr(found, name)
        if isinstance(value, Path):
            paths[name] = place(value)
        elif name == "tests":
            paths[name] = tuple(map(place, value))
    return paths
