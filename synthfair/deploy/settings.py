"""What a site, and the server, set for themselves: ``local/synthfair.json`` in their kits.

A job never names a path, and no job can exceed what stands here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, Field

from synthfair.config import LARGEST_EPSILON, LEAST_EPSILON
from synthfair.config.rules import STRICT
from synthfair.deploy.messages import Hex32
from synthfair.files import read_as, read_document
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_signing_key
from synthfair.secure.aggregator_keys import RECORDS, read_aggregator_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "synthfair.json"
"""Its name, in the folder ``local`` of a kit."""

MAX_BYTES = 1_000_000
"""Of such a file."""

Kind = Literal["fair", "surrogate", "gap", "training", "counts"]
"""Of answer: fair synthetic rows; a surrogate; reports of gaps, one of each row; reports of rounds
of training; a model's scores counted by group and label, in shares."""


class Limits(BaseModel):
    """What a job may have of a site at most.

    Attributes:
        kinds: of answer that may leave; by default none.
        most_epsilon: of one release, one training, one count, or one report of a row; None where
            none may claim an epsilon. The ledger's limit bounds all of them together.
        most_delta: of one of these. A delta far above one over the number of rows is no privacy,
            however small the epsilon.
        without_epsilon: whether there may be a release, or a training, without one.
        most_releases: that may leave without an epsilon, over all jobs. One more of the same rows
            with other settings reveals more of them, and no ledger bounds that.
        least_epsilon_left: of the ledger's limit, what must be left after a job; above 0, the
            ledger must have a limit (``python -m synthfair ledger``).
        k_min: least rows of a pair of group and label in a surrogate.
        most_rounds: of training in which a report may leave without noise of the site's own, over
            all jobs: then the server sees it, also where the server adds noise for all others.
        least_rows: that the table has at least, a public number. Training with an epsilon whose
            ``least_rows`` is above it is refused, whatever the table has: else questions would find
            out how many rows that is.
        store_models: whether models that jobs send back are stored in the site's folder.
    """

    model_config = STRICT

    kinds: tuple[Kind, ...] = ()
    most_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    most_delta: float = Field(default=1e-5, ge=0, lt=1)
    without_epsilon: bool = False
    most_releases: int = Field(default=1, ge=0)
    least_epsilon_left: float = Field(default=0.0, ge=0, le=LARGEST_EPSILON)
    k_min: int = Field(default=50, ge=1)
    most_rounds: int = Field(default=0, ge=0)
    least_rows: int | None = Field(default=None, ge=1, lt=2**31)
    store_models: bool = False

    def allow(self, epsilon: float | None, delta: float | None = None) -> bool:
        """Whether one answer may have this epsilon and delta; None where it claims none."""
        if epsilon is None:
            return self.without_epsilon
        return epsilon <= (self.most_epsilon or 0) and (delta or 0.0) <= self.most_delta


class SiteSettings(BaseModel):
    """Of a site. Relative paths start at the folder of the file.

    Attributes:
        data: the private table.
        schema_path: ``schema`` in the file; the public schema, which the site has read.
        key: private key that signs releases and answers, of ``python -m synthfair keygen``.
        ledger: where releases are booked; next to the table if not given.
        aggregators: folder of the public keys of those whom the site trusts with shares, NAME.pub;
            in no other sum it takes part, and in none if not given.
        limits: see there.
    """

    model_config = STRICT | {"populate_by_name": True}

    format: Literal["synthfair-site/1"] = "synthfair-site/1"
    data: Path
    schema_path: Path = Field(alias="schema")
    key: Path
    ledger: Path | None = None
    aggregators: Path | None = None
    limits: Limits = Limits()

    def signing_key(self) -> Ed25519PrivateKey:
        """Of the site's answers. Raises InputError: it cannot be read."""
        return read_signing_key(self.key)

    @property
    def ledger_file(self) -> Path:
        """Where releases and trainings are booked."""
        return self.ledger or Ledger.for_table(self.data).path


class AggregatorLimits(BaseModel):
    """What jobs may have of an aggregator at most; by default nothing.

    Attributes:
        most_tasks: sums over all jobs; a training takes one a round.
        most_epsilon: of one sum of counts; None where there may be none.
        most_rho: of one sum of vectors, such as of a round's reports; None where there may be none.
        without_noise: whether there may be sums of vectors without noise, which protect parts but
            not the total.
        least_clients: in one sum.
    """

    model_config = STRICT

    most_tasks: int = Field(default=0, ge=0)
    most_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    most_rho: float | None = Field(default=None, gt=0, le=10_000)
    without_noise: bool = False
    least_clients: int = Field(default=2, ge=1)


AGGREGATOR = "synthfair-aggregator-site/1"
"""Format of its file."""


class AggregatorSettings(BaseModel):
    """Of an aggregator that is a site. Relative paths start at the folder of the file.

    Attributes:
        schema_path: ``schema`` in the file; the public schema.
        key: its private keys, of ``python -m synthfair secure key``, with the folder of its answers
            next to them.
        clients: folder of the public keys of those who may be in a sum, NAME.pub: whoever could
            add clients of its own would learn, without noise, what is left of the sum.
        limits: see there.
    """

    model_config = STRICT | {"populate_by_name": True}

    format: Literal["synthfair-aggregator-site/1"] = AGGREGATOR
    schema_path: Path = Field(alias="schema")
    key: Path
    clients: Path
    limits: AggregatorLimits = AggregatorLimits()

    @property
    def records(self) -> Path:
        """Folder of its answers."""
        return self.key.with_suffix(RECORDS)

    def signing_key(self) -> Ed25519PrivateKey:
        """Of its answers. Raises InputError: it cannot be read."""
        return read_aggregator_secret(self.key).signing_key


class ServerSettings(BaseModel):
    """Of the server. Relative paths start at the folder of the file.

    Attributes:
        schema_path: ``schema`` in the file; the public schema.
        keys: folder of the sites' public keys, each named after its site: NAME.pub.
        tests: test tables; without any there is no metrics.json.
        aggregators: folder of the aggregators' public keys, each named after its site: NAME.pub;
            the order of the names is that of their roles.
        revoked: public keys, in hexadecimal, that no longer count, whatever lies in ``keys``.
    """

    model_config = STRICT | {"populate_by_name": True}

    format: Literal["synthfair-server/1"] = "synthfair-server/1"
    schema_path: Path = Field(alias="schema")
    keys: Path
    tests: tuple[Path, ...] = ()
    aggregators: Path | None = None
    revoked: tuple[Hex32, ...] = ()


_Settings = TypeVar("_Settings", SiteSettings, AggregatorSettings, ServerSettings)


def read_site_settings(path: Path) -> SiteSettings | AggregatorSettings:
    """Those of a site, or of an aggregator, as the file's format says. Raises InputError."""
    if read_document(path).get("format") == AGGREGATOR:
        return read_settings(path, AggregatorSettings)
    return read_settings(path, SiteSettings)


def read_settings(path: Path, kind: type[_Settings]) -> _Settings:
    """The settings in a file, with absolute paths.

    Args:
        path: of the file.
        kind: of the one whose they are.

    Raises:
        InputError: unreadable, an unknown key, or a value that is not allowed.
    """
    found = read_as(path, kind, MAX_BYTES)
    return found.model_copy(update=_absolute(found, path.parent.resolve()))


def _absolute(found: BaseModel, folder: Path) -> dict[str, object]:
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
