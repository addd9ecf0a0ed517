"""The task of a surrogate: weighted records that stand in for a client's rows.

No record of it is made from a row: records are drawn from rounded sums, or from noisy ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from synthfair.client.run import ReadRows, Run, fingerprint, sha256_of
from synthfair.data.batches import Batches, BatchesInOrder, from_files
from synthfair.data.encode import Clipping, content_sums
from synthfair.data.schema import Schema
from synthfair.model import LinearModel
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import make_guarantee
from synthfair.release.format import Release, make_header
from synthfair.settings import SurrogateConfig
from synthfair.surrogate.make import Surrogate, TooFewRowsError, read_sums, surrogate_of
from synthfair.surrogate.questions import SurrogateSpec, TableSums

MAX_KEPT = 2**25
"""Encoded numbers of a table that stay in memory, 256 MiB; a larger one is read once a question."""


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
        """The release, in a line."""
        return f"SurrogateRelease({self.release!r})"


@dataclass(frozen=True)
class SurrogateTask:
    """A surrogate of some client, as :mod:`synthfair.surrogate` makes it.

    Attributes:
        schema: of the rows, public.
        config: settings, public; with epsilon, real rows are read through noisy sums alone.
        noise: where its bytes come from; other than the system's, it protects nothing.
        guarantee: of the release, known before a row is read; None where it has none.
    """

    schema: Schema
    config: SurrogateConfig
    noise: RandomBytes = field(default=system_entropy)
    guarantee: Guarantee | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Works out what is guaranteed."""
        if self.config.epsilon is not None and self.noise is system_entropy:
            object.__setattr__(self, "guarantee", make_guarantee(self.config, self.schema))

    @property
    def buyer(self) -> SurrogateTask:
        """The task itself, as a fair one's has it."""
        return self

    def read(self, data: Path, clipping: Clipping) -> ReadRows:
        """Return the rows of a table or a folder of tables, of which it counts what is clipped.

        A table of at most :data:`MAX_KEPT` numbers is read and encoded once.

        Raises:
            InputError: a file cannot be read or does not fit the schema, or there are no rows.
        """
        plain, content, kept, size = self.schema.plain, np.zeros(3, np.uint64), [], 0
        for part in from_files(data, plain, clipping=clipping).read():
            content, size = content + content_sums(part), size + part.x.size
            kept = [*kept, part] if size <= MAX_KEPT else []
        rows = BatchesInOrder(lambda: kept) if kept else from_files(data, plain)
        return ReadRows(rows, sha256_of((content,)))

    def purchase(self, sha256: str) -> str:
        """Return the fingerprint of what an epsilon buys: all that :meth:`measure` depends on."""
        stated = self.guarantee and self.guarantee.model_dump_json()
        return fingerprint(sha256, self._measured.model_dump_json(), self.schema.hash, stated)

    @property
    def _measured(self) -> SurrogateConfig:
        """The settings that records depend on; what an epsilon buys is the same with any seed."""
        private = self.config.epsilon is not None
        return self.config.model_copy(update={"seed": 0}) if private else self.config

    def measure(self, real: Batches, run: Run) -> Surrogate:
        """Return the records of sums over the rows: rounded, or with an epsilon noisy.

        Guarantee: (epsilon, delta)-differential privacy, as :attr:`guarantee` states. Unit: one
        row. Neighbouring relation: ``config.relation``.

        Raises:
            TooFewRowsError: no pair of group and label has enough rows.
        """
        try:
            spec = SurrogateSpec(self._measured, self.schema)
            return surrogate_of(
                read_sums(TableSums(real, spec, self.noise), spec, run.on_stage), spec
            )
        except TooFewRowsError as error:
            raise TooFewRowsError(f"{run.source}: {error}", *error.arguments) from error

    def answer(self, made: Surrogate, _: Run) -> SurrogateRelease:
        """Return the release of records."""
        header = make_header(
            self.config,
            self.schema,
            model=LinearModel(),
            guarantee=self.guarantee,
            hides_pairs=self.config.epsilon is None and len(made.hidden) > 0,
        )
        names = tuple(self.schema.features)
        release = Release(header, names, made.records, made.s, made.y, made.weight)
        hidden, left_out = (
            tuple(self.schema.pair(int(s), y) for s, y in some)
            for some in (made.hidden, made.left_out)
        )
        return SurrogateRelease(release, hidden, left_out, float(made.rate_error))
