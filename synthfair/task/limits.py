"""The settings file of a party, ``local/synthfair.json`` in its kit, with a site's limits.

A job never names a path, and no job can exceed what stands here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from synthfair.files import read_as, read_document
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import Hex32
from synthfair.settings import MAX_GUARANTEE_EPSILON, STRICT, Checked, Epsilon
from synthfair.task.federation_file import ServerCode

PARTY_FILE = "synthfair.json"
"""The file's name, in the folder ``local`` of a kit."""

MAX_PARTY_BYTES = 1_000_000
"""The largest size of such a file."""

Kind = Literal["fair", "surrogate", "gap", "training", "counts"]
"""The kind of an answer: fair synthetic rows; a surrogate; a model's decisions counted by group
and label, with noise; reports of rounds of training; a model's scores counted so, in shares."""


class RefusedError(Exception):
    """A question that a site does not answer, or an answer that does not count.

    Attributes:
        code: all that is said of why.
    """

    def __init__(self, code: ServerCode) -> None:
        """Refuse with the code alone."""
        super().__init__(code)
        self.code: Any = code


@contextmanager
def refused_as(code: ServerCode) -> Iterator[None]:
    """Refuse errors in the block by a code; the log has the words."""
    try:
        yield
    except ValueError as error:
        raise RefusedError(code) from error


class Claim(NamedTuple):
    """The claim of a job, which a site's limits look at before a row is read.

    Attributes:
        kind: of the answer.
        epsilon: of the answer, or of a whole training; None where it claims none.
        delta: goes with it.
        k_min: of a surrogate, or of private records; None of others.
        least_rows: rows of the smallest site that noise relies on; 0 where it relies on none.
        rounds: of a training, in all.
        number: of the round, from 0.
        seen: whether the server sees the answer without noise, which it adds itself.
        width: of the widest hidden layer of a training's network; 0 of a linear model.
    """

    kind: Kind
    epsilon: float | None
    delta: float | None = None
    k_min: int | None = None
    least_rows: int = 0
    rounds: int = 0
    number: int = 0
    seen: bool = False
    width: int = 0

    @property
    def purchase_kind(self) -> Literal["release", "training", "secure_sum"]:
        """The kind under which the ledger books the answer."""
        if self.kind == "training":
            return "training"
        return "secure_sum" if self.kind == "counts" else "release"


class Limits(Checked):
    """The limits of a site: the most that a job may have of it.

    Attributes:
        kinds: of answer that may leave; by default none.
        most_epsilon: of one release, one training or one count; None where none may claim an
            epsilon. The ledger's limit bounds all of them together.
        most_delta: of one of these. A delta far above one over the number of rows is no privacy,
            however small the epsilon.
        without_epsilon: whether there may be a release, or a training, without one.
        most_releases: that may leave without an epsilon, over all jobs.
        again: consent to one more exact answer, see :mod:`synthfair.privacy.ledger`, while the
            ledger holds so many; it is used up by the job that adds one.
        least_epsilon_left: of the ledger's limit, what must be left after a job; above 0, the
            ledger must have a limit (``python -m synthfair ledger``).
        k_min: least rows that a sum in a surrogate, or in private records, is over, and of a group
            in exact sums that the server sees.
        value_rows: least rows that have a value of a column, unless none has it, in each set whose
            exact sums the server sees, see :mod:`synthfair.federated.single_rows`.
        most_rounds: of training in which a report may leave without noise of the site's own, over
            all jobs: then the server sees it, also where the server adds noise for all others.
        most_rounds_of_job: rounds of one training, of whatever kind.
        most_width: of a hidden layer of a network that is trained.
        least_rows: that the table has at least, a public number. Training with an epsilon whose
            ``least_rows`` is above it is refused, whatever the table has: else questions would find
            out how many rows that is.
        store_models: whether models that jobs send back are stored in the site's folder.
    """

    kinds: tuple[Kind, ...] = ()
    most_epsilon: Epsilon | None = None
    most_delta: float = Field(default=1e-5, ge=0, lt=1)
    without_epsilon: bool = False
    most_releases: int = Field(default=1, ge=0)
    again: int | None = Field(default=None, ge=1)
    least_epsilon_left: float = Field(default=0.0, ge=0, le=MAX_GUARANTEE_EPSILON)
    k_min: int = Field(default=50, ge=1)
    value_rows: int = Field(default=10, ge=10)
    most_rounds: int = Field(default=0, ge=0)
    most_rounds_of_job: int = Field(default=10_000, ge=1)
    most_width: int = Field(default=1000, ge=0)
    least_rows: int | None = Field(default=None, ge=1, lt=2**31)
    store_models: bool = False

    def require(
        self, claim: Claim, ledger: Ledger, *, output: str, question: str | None = None
    ) -> None:
        """Refuse an answer that must not leave, whatever the rows are.

        The ledger is told how much must be left of its limit, and whether there is consent.

        Args:
            claim: of the answer.
            ledger: of what has left.
            output: name of the job.
            question: sha256 of what is asked; the same once more in the same round counts once.

        Raises:
            RefusedError: the answer is beyond these limits.
        """
        ledger.reserve, spent = self.least_epsilon_left, ledger.spent()
        ledger.again = spent.answers == self.again
        epsilon, training, seen = claim.epsilon, claim.kind == "training", -1
        if claim.seen or epsilon is None:
            seen = ledger.answers_seen(claim.purchase_kind, output, claim.number, question)
        within = self.without_epsilon
        if epsilon is not None:
            within = epsilon <= (self.most_epsilon or 0) and (claim.delta or 0) <= self.most_delta
        many = claim.rounds > self.most_rounds_of_job or seen >= self.most_rounds
        beyond: dict[ServerCode, bool] = {
            "kind": claim.kind not in self.kinds,
            "epsilon": not within,
            "k_min": claim.k_min is not None and claim.k_min < self.k_min,
            "rows": claim.least_rows > (self.least_rows or 0),
            "settings": claim.width > self.most_width,
            "rounds": training and many,
            "releases": not training and seen >= self.most_releases,
            "budget": epsilon is not None and spent.limit is None,
        }
        for code, is_beyond in beyond.items():
            if is_beyond:
                raise RefusedError(code)


class AggregatorLimits(Checked):
    """The most that jobs may have of an aggregator; by default nothing.

    Attributes:
        most_tasks: sums over all jobs; a training takes one a round, a surrogate up to five.
        most_epsilon: of one sum of counts, or of all sums of a surrogate together; None where
            there may be none.
        most_delta: of all sums of a surrogate together.
        most_rho: of one sum of vectors, such as of a round's reports; None where there may be none.
        without_noise: whether there may be sums of vectors without noise, which protect parts but
            not the total.
        least_clients: in one sum.
    """

    most_tasks: int = Field(default=0, ge=0)
    most_epsilon: Epsilon | None = None
    most_delta: float = Field(default=1e-5, ge=0, lt=1)
    most_rho: float | None = Field(default=None, gt=0, le=10_000)
    without_noise: bool = False
    least_clients: int = Field(default=2, ge=1)


class PartySettings(Checked):
    """The settings of a site, or of the server. Relative paths start at the folder of the file.

    Attributes:
        org: its organisation, as its certificate has it; only an engine's kit needs it.
        schema_path: ``schema`` in the file; the public schema.
    """

    model_config = STRICT | {"populate_by_name": True}

    org: str | None = None
    schema_path: Path = Field(alias="schema")


class SiteSettings(PartySettings):
    """The settings of a site.

    Attributes:
        server: host and port that it connects to; only an engine's kit needs it.
        data: the private table.
        key: private key that signs releases and answers, of ``python -m synthfair keygen``.
        ledger: where releases are booked; next to the table if not given.
        aggregators: folder of the public keys of those whom the site trusts with shares, NAME.pub;
            in no other sum it takes part, and in none if not given.
        limits: see there.
    """

    format: Literal["synthfair-site/1"] = "synthfair-site/1"
    server: str | None = None
    data: Path
    key: Path
    ledger: Path | None = None
    aggregators: Path | None = None
    limits: Limits = Limits()

    @property
    def ledger_file(self) -> Path:
        """The ledger in which releases and trainings are booked."""
        return self.ledger or Ledger.for_table(self.data).path


class AggregatorSettings(PartySettings):
    """The settings of an aggregator that is a site.

    Attributes:
        server: host and port that it connects to.
        key: its private keys, of ``python -m synthfair keygen --aggregator``, with the folder of
            its answers next to them.
        clients: folder of the public keys of those who may be in a sum, NAME.pub: whoever could
            add clients of its own would learn, without noise, what is left of the sum.
        limits: see there.
    """

    format: Literal["synthfair-aggregator-site/1"] = "synthfair-aggregator-site/1"
    server: str | None = None
    key: Path
    clients: Path
    limits: AggregatorLimits = AggregatorLimits()


class ServerSettings(PartySettings):
    """The settings of the server.

    Attributes:
        keys: folder of the sites' public keys, each named after its site: NAME.pub.
        tests: test tables; without any there is no metrics.json.
        trusted: table of the server's own for ``server --trusted``, in jobs of one upload.
        aggregators: folder of the aggregators' public keys, each named after its site: NAME.pub;
            the order of the names is that of their roles.
        revoked: public keys, in hexadecimal, that no longer count, whatever lies in ``keys``.
    """

    format: Literal["synthfair-server/1"] = "synthfair-server/1"
    keys: Path
    tests: tuple[Path, ...] = ()
    trusted: Path | None = None
    aggregators: Path | None = None
    revoked: tuple[Hex32, ...] = ()


_Settings = TypeVar("_Settings", bound=BaseModel)


def read_settings(path: Path, kind: type[_Settings]) -> _Settings:
    """Return the settings in a file, with absolute paths.

    Args:
        path: of the file.
        kind: of the one whose they are.

    Raises:
        InputError: unreadable, an unknown key, or a value that is not allowed.
    """
    settings, folder = read_as(path, kind, MAX_PARTY_BYTES), path.parent.resolve()

    def absolute(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(absolute, value))
        return Path(os.path.normpath(folder / value)) if isinstance(value, Path) else value

    return settings.model_copy(update={name: absolute(value) for name, value in settings})


def read_site_settings(path: Path) -> SiteSettings | AggregatorSettings:
    """Read settings of a site or an aggregator, as the file's format says. Raises InputError."""
    is_aggregator = read_document(path).get("format") == "synthfair-aggregator-site/1"
    return read_settings(path, AggregatorSettings if is_aggregator else SiteSettings)
