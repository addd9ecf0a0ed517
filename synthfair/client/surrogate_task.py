"""The task of a surrogate: weighted records that stand in for a client's rows.

No record of it is made from a row: records are drawn from rounded sums, or from noisy ones. So it
has no trial, and no checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from synthfair.client.run import Run, Trial, sha256_of
from synthfair.config.client_settings import SurrogateConfig
from synthfair.data.batches import Batches, from_files
from synthfair.data.encode import Clipping, content_sums
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import make_guarantee
from synthfair.release.format import Release, make_header
from synthfair.surrogate.make import Plan, Sums, most_numbers, read_sums, surrogate_of


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


class SurrogateRows(NamedTuple):
    """A client's rows, read as a stream. Private.

    Attributes:
        real: the rows.
        sha256: fingerprint of the rows.
    """

    real: Batches
    sha256: str


@dataclass(frozen=True)
class SurrogateTask:
    """A surrogate of some client, as :mod:`synthfair.surrogate` makes it.

    Attributes:
        schema: of the rows, public.
        config: settings, public; with epsilon, real rows are read through noisy sums alone.
        noise: where its bytes come from; other than the system's, it protects nothing.
        on_stage: called with what is done next, in a few words.
        guarantee: of the release, known before a row is read; None where it has none.
    """

    schema: Schema
    config: SurrogateConfig
    noise: RandomBytes = field(default=system_entropy)
    on_stage: Callable[[str], None] = field(default=lambda _: None, compare=False)
    guarantee: Guarantee | None = field(default=None, init=False)

    Measured = Sums
    has_trial = False

    def __post_init__(self) -> None:
        """Works out what is guaranteed."""
        if self.config.epsilon is not None and self.noise is system_entropy:
            object.__setattr__(self, "guarantee", make_guarantee(self.config, self.schema))

    def read(
        self,
        data: Path,
        *,
        hold_out: float = 0.0,  # noqa: ARG002 - there is no trial
        clipping: Clipping | None = None,
    ) -> SurrogateRows:
        """The rows of a table or a folder of tables, of which none are held out.

        Raises:
            InputError: a file cannot be read or does not fit the schema, or there are no rows.
        """
        self.on_stage("reading the rows")
        plain = self.schema.plain
        content = from_files(data, plain, clipping=clipping).sum(content_sums)
        return SurrogateRows(from_files(data, plain), sha256_of((content,)))

    def measured_by(self) -> str:
        """All but the rows that :meth:`measure` depends on, as text."""
        stated = self.guarantee.model_dump_json() if self.guarantee else None
        return f"{self.config.model_dump_json()} {self.schema.hash} {stated}"

    @property
    def most_numbers(self) -> int:
        """That are measured."""
        return most_numbers(self.schema)

    def measure(self, rows: SurrogateRows | Batches) -> Sums:
        """Sums over the rows: rounded, or with an epsilon noisy.

        Guarantee: (epsilon, delta)-differential privacy, as :attr:`guarantee` states. Unit: one
        row. Neighbouring relation: ``config.relation``.
        """
        real = rows.real if isinstance(rows, SurrogateRows) else rows
        return read_sums(real, self.config, self.schema, noise=self.noise, on_stage=self.on_stage)

    def try_out(self, rows: SurrogateRows, run: Run) -> Trial:  # noqa: ARG002
        """No trial: nothing in a surrogate is a row."""
        return Trial()

    def check(self, answer: SurrogateRelease, rows: SurrogateRows, trial: Trial) -> None:
        """No checks, for the same reason."""

    def answer(self, measured: Sums, run: Run) -> SurrogateRelease:
        """The release that sums give; the same ones always give the same. It sees no rows.

        Raises:
            InputError: too few rows.
        """
        try:
            made = surrogate_of(measured, Plan(self.config, self.schema))
        except InputError as error:
            raise type(error)(f"{run.source}: {error}", *error.arguments) from error
        header = make_header(
            self.config,
            self.schema,
            model=LinearModel(),
            guarantee=self.guarantee,
            hides_pairs=bool(made.hidden) and self.config.epsilon is None,
        )
        names = tuple(self.schema.features)
        release = Release(header, names, made.records, made.s, made.y, made.weight)
        hidden, left_out = (
            tuple(self.schema.pair(*pair) for pair in some) for some in (made.hidden, made.left_out)
        )
        return SurrogateRelease(release, hidden, left_out, made.rate_error)
