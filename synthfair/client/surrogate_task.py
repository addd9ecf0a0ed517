"""The task of a surrogate: weighted records that stand in for a client's rows.

No record of it is made from a row: records are drawn from rounded sums, or from noisy ones.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from synthfair.data.batches import Batches, BatchesInOrder, from_files
from synthfair.data.encode import Clipping, content_sums
from synthfair.data.schema import Schema
from synthfair.model import LinearModel
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import DamagedError
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import Release, make_header
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.records import (
    Surrogate,
    TooFewRowsError,
    most_numbers,
    read_sums,
    surrogate_of,
)
from synthfair.surrogate.sums import SurrogateSpec, TableSums
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task, fingerprint

if TYPE_CHECKING:
    from synthfair.client.page import Site

MAX_KEPT_NUMBERS = 2**25
"""Encoded numbers of a table that stay in memory, 256 MiB; a larger one is read once a question."""

MAX_RECORDS_HEADER_BYTES = 4096
"""The size of saved records that are no numbers."""

SPENT = "The epsilon is spent on this answer; another k_min or epsilon is bought anew"
"""The end of a refusal with noise."""


class SurrogateRelease(NamedTuple):
    """A surrogate release and how it was made.

    Attributes:
        release: weighted records that stand in for the client's; the only part to send.
        hidden: the pairs of group and label with rows, but fewer than ``k_min``, of which sums by
            label and by group know, in words; or with epsilon those that noise hides.
        left_out: those of which no sum knows. Private.
        rate_error: largest difference between a smooth rate of the release's records and of the
            real rows, or with epsilon the noisy one, over the models that were matched. Private.
    """

    release: Release
    hidden: tuple[str, ...]
    left_out: tuple[str, ...]
    rate_error: float

    def __repr__(self) -> str:
        """Return the release, in a line."""
        return f"SurrogateRelease({self.release!r})"


@dataclass(frozen=True)
class SurrogateTask:
    """A surrogate of some client, as :mod:`synthfair.surrogate` makes it.

    Attributes:
        schema: of the rows, public.
        config: settings, public; with epsilon, real rows are read through noisy sums alone.
        noise: where its bytes come from; other than the system's, it protects nothing.
    """

    schema: Schema
    config: SurrogateConfig
    noise: RandomBytes = field(default=system_entropy)

    @cached_property
    def spec(self) -> SurrogateSpec:
        """The rules of the records; what an epsilon buys is the same with any seed."""
        private = self.config.epsilon is not None
        config = self.config.model_copy(update={"seed": 0}) if private else self.config
        return SurrogateSpec(config, self.schema)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the release, known before a row is read; None where it has none."""
        return self.spec.guarantee if self.noise is system_entropy else None

    @property
    def task(self) -> Task:
        """The question to a site."""
        config, guarantee = self.config, self.guarantee
        stated = guarantee and guarantee.model_dump_json()
        return Task(
            Claim("surrogate", config.epsilon, config.delta, k_min=config.k_min),
            f"{self.spec.config.model_dump_json()} {self.schema.hash} {stated}",
            self.answer,
            guarantee,
            self.measure if guarantee else None,
            8 * most_numbers(self.schema) + MAX_RECORDS_HEADER_BYTES,
            read_plain,
        )

    def measure(self, rows: ReadRows, run: Run) -> bytes:
        """Return the records, packed; a noisy refusal as well, so that no other noise is tried."""
        content = io.BytesIO()
        try:
            fields: dict[str, Any] = self.records(rows.real, None, run)._asdict()
        except TooFewRowsError as refused:
            fields = {"refused": np.array(str(refused))}
        np.savez(content, **fields)
        return content.getvalue()

    def records(self, real: Batches, bought: bytes | None, run: Run) -> Surrogate:
        """Return the records that were bought; or those of sums over the rows.

        Sums are rounded, or with an epsilon noisy. Guarantee: (epsilon, delta)-differential
        privacy, as :attr:`guarantee` states. Unit: one row. Neighbouring relation:
        ``config.relation``.

        Raises:
            TooFewRowsError: no pair of group and label has enough rows.
            DamagedError: what was bought are no records.
        """
        if bought:
            return _unpacked(bought)
        try:
            sums = read_sums(TableSums(real, self.spec, self.noise), self.spec, run.on_stage)
            return surrogate_of(sums, self.spec)
        except TooFewRowsError as error:
            raise TooFewRowsError(f"{run.source}: {error}", *error.arguments) from error

    def answer(self, rows: ReadRows, bought: bytes | None, run: Run) -> SurrogateRelease:
        """Return the release of the records that were bought, or are made now."""
        made = self.records(rows.real, bought, run)
        release = release_of(made, self.config, self.schema, self.guarantee)
        hidden, left_out = (
            tuple(self.schema.pair(int(s), y) for s, y in cells)
            for cells in (made.hidden, made.left_out)
        )
        return SurrogateRelease(release, hidden, left_out, float(made.rate_error))


def _unpacked(content: bytes) -> Surrogate:
    """Return records that were packed. Raises TooFewRowsError: they are a noisy refusal."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if "refused" not in arrays:
                return Surrogate(**arrays)
            refused = str(arrays["refused"])
    except (EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DamagedError("no records") from error
    raise TooFewRowsError(f"{refused}. {SPENT}", "k_min")


def release_of(
    made: Surrogate, config: SurrogateConfig, schema: Schema, guarantee: Guarantee | None
) -> Release:
    """Return the release of a surrogate that was made with these settings."""
    header = make_header(
        config,
        schema,
        model=LinearModel(),
        guarantee=guarantee,
        hides_pairs=config.epsilon is None and len(made.hidden) > 0,
    )
    return Release(header, made.records, made.s, made.y, made.weight)


def read_plain(site: Site, clipping: Clipping) -> ReadRows:
    """Return the rows of a table or a folder of tables; count what is clipped.

    A table of at most :data:`MAX_KEPT_NUMBERS` numbers is read and encoded once.

    Raises:
        InputError: a file cannot be read or does not fit the schema, or there are no rows.
    """
    plain, content, kept, size = site.schema.plain, np.zeros(3, np.uint64), [], 0
    for batch in from_files(site.data, plain, clipping=clipping).read():
        content, size = content + content_sums(batch), size + batch.x.size
        kept = [*kept, batch] if size <= MAX_KEPT_NUMBERS else []
    rows = BatchesInOrder(lambda: kept) if kept else from_files(site.data, plain)
    return ReadRows(rows, fingerprint(*content))
