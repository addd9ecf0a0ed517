"""A client's whole job on one page: a table is asked, and answers.

Every path comes through :func:`answer`: a release by file or in a federation, counts and shares of
a secure sum, a report in a round, the sums of an exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema, read_schema
from synthfair.files import claimed, require_distinct, whole_file
from synthfair.privacy.ledger import DamagedError, Ledger, damaged
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.release.format import release_bytes
from synthfair.settings import DistillConfig, SurrogateConfig
from synthfair.task.limits import Limits
from synthfair.task.protocol import Progress, Run, Task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.distillation import Distillation
    from synthfair.client.surrogate_task import SurrogateRelease


@dataclass(frozen=True)
class Site:
    """An organisation with a table.

    Attributes:
        data: the private table.
        schema: public.
        ledger: the book of all that has left.
        limits: what may leave without asking a person; None where a person decides.
    """

    data: Path
    schema: Schema
    ledger: Ledger
    limits: Limits | None = None


def answer(task: Task, site: Site, *, output: str, run: Run, submitter: str | None = None) -> Any:
    """Return the answer of a site's rows to a task, once it may leave and is booked.

    Args:
        task: what is asked.
        site: whose rows, ledger and limits they are.
        output: name under which the answer is booked: of a file, or of a job.
        run: who is told what happens.
        submitter: of a job, as the engine says.

    Raises:
        RefusedError: the answer is beyond the site's limits.
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: the table is refused, or what would leave gives rows away.
    """
    # May such an answer leave at all? No row is read yet.
    if site.limits:
        site.limits.require(task.claim, site.ledger, output=output, question=task.asked_now)

    # The rows are read, and what is wrong with them is shown, before anything is booked.
    run.on_stage("reading the rows")
    clipping = Clipping()
    rows = task.read(site, clipping)
    run.on_rows(clipping)
    purchase = task.purchase(rows, output, submitter)

    # With a guarantee, what an epsilon buys is booked before it is computed, and kept: the same
    # question is never bought twice. What follows knows no row, so that no check is needed; in
    # rounds it does, and its noise follows from the seed that was bought.
    if measure := task.measure:
        bought = site.ledger.buy(purchase, lambda: measure(rows, run), max_bytes=task.max_bytes)
        try:
            return task.answer(rows, bought, run)
        except DamagedError as error:
            raise damaged(site.ledger.bought(purchase.run)) from error

    # Without one, what leaves is checked, and booked then.
    site.ledger.require(purchase)
    made = task.answer(rows, None, run)
    task.check(made, rows, run)
    site.ledger.book(purchase)
    return made


class Receipt(NamedTuple):
    """A file that was written.

    Attributes:
        path: of the release.
        size: in bytes.
        sha256: of the file.
        clipping: how many of the real values were clipped to the schema's bounds. Private.
    """

    path: Path
    size: int
    sha256: str
    clipping: Clipping


class Options(NamedTuple):
    """How a release is made, other than its public settings.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        ledger: where it is booked; next to the table if not given.
        again: consent to an exact release although the ledger holds another answer.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
    """

    force: bool = False
    key: Ed25519PrivateKey | None = None
    ledger: Path | None = None
    again: bool = False
    noise_seed: int | None = None


def distill_file(
    data: Path,
    schema_path: Path,
    output: Path,
    config: DistillConfig | SurrogateConfig,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    on_rows: Callable[[Clipping], None] = lambda _: None,
    progress: Progress | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
) -> tuple[Distillation | SurrogateRelease, Receipt]:
    """Distil a table into a release file, and return what it holds and what was written.

    Without an epsilon, a fair release is checked before it is written: it is refused where more
    synthetic rows equal a real one than chance explains, or where its labels are those of the real
    rows in order, unless the setting ``labels`` asks for them. With an epsilon, private records of
    the rows are bought, and stay next to the ledger: the guarantee is theirs, and any release is
    made of them. So whoever wants other settings, or was stopped, makes it of the same records at
    no cost.

    Args:
        data: the private table, CSV or Parquet; for a surrogate also a folder of such files. A
            surrogate reads it as a stream.
        schema_path: the public schema.
        output: the release, written whole or not at all.
        config: settings, of either kind of release.
        options: see there.
        on_rows: called when the rows are read, with what was clipped of them, before anything is
            booked or an epsilon spent; an exception ends the run there. What it is given is
            private, and has no noise.
        progress: of a fair release, see :func:`synthfair.distill_table`.
        on_stage: called with what is done next, in a few words.

    Raises:
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: an input is refused, the release holds copies of real rows, or the output
            exists, is being written by another run, or cannot be written.
    """
    ledger = Ledger(options.ledger or Ledger.for_table(data).path, again=options.again)
    require_distinct(ledger.path, data, schema_path)
    with claimed(output, inputs=(data, schema_path, ledger.path), force=options.force):
        noise = system_entropy if options.noise_seed is None else seeded(options.noise_seed)
        site = Site(data, read_schema(schema_path), ledger)
        task = release_task(config, site.schema, noise)
        seen = Clipping()

        def read(clipping: Clipping) -> None:
            nonlocal seen
            seen = clipping
            on_rows(clipping)

        run = Run(str(data), progress, on_stage, read)
        made = answer(task, site, output=output.name, run=run)
        content = release_bytes(made.release, options.key)
        with whole_file(output) as temporary:
            temporary.write_bytes(content)
        return made, Receipt(output, len(content), hashlib.sha256(content).hexdigest(), seen)


def release_task(
    config: DistillConfig | SurrogateConfig, schema: Schema, noise: RandomBytes = system_entropy
) -> Task:
    """Return the task of a release with these settings."""
    if isinstance(config, DistillConfig):
        from synthfair.client.fair_task import FairTask  # loads JAX

        return FairTask(schema, config, noise=noise).task
    from synthfair.client.surrogate_task import SurrogateTask

    return SurrogateTask(schema, config, noise).task
