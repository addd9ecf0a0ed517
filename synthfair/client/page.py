"""The whole job of a client: the answer of its table to a question.

Every path comes through :func:`answer`. What is asked is a task: a fair release (synthetic rows
on which any learner becomes accurate and fair), a surrogate (weighted records that stand in for the
rows, of which a server trains a fair model), an encrypted part of a secure sum, a report in a round
of training, or sums over rows from which a server refines its model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema, read_schema
from synthfair.files import claimed, require_distinct, whole_file
from synthfair.privacy.ledger import DamagedError, Ledger, damaged
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.release.format import release_bytes
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.task.limits import Limits
from synthfair.task.protocol import Run, Task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.fair_task import Distillation
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
        InputError: the table is refused, what would leave gives rows away, or what was bought
            before is damaged.
    """
    # May such an answer leave at all? No row is read yet.
    if site.limits:
        site.limits.require(task.claim, site.ledger, output=output, question=task.asked_now)

    # The rows are read and encoded by the schema; values out of its bounds are clipped and counted.
    # A caller may look at the counts, and stop here: nothing is booked yet.
    run.on_stage("reading the rows")
    clipping = Clipping()
    rows = task.read(site, clipping)  # adds to the counts
    run.on_rows(clipping)
    purchase = task.purchase(rows, output, submitter)

    # With a guarantee, `buy` books the epsilon, computes what it buys, and keeps that next to the
    # ledger, in this order; asked again, it returns what it kept, at no cost. A release has its
    # noisy sums measured here, and is then made of them alone. A report in a round buys the seed of
    # its noise here, and is then computed of the rows with noise of that seed. Nothing is checked:
    # whether a check refuses would tell more of the rows than the epsilon allows.
    if measure := task.measure:
        bought = site.ledger.buy(purchase, lambda: measure(rows, run), max_bytes=task.max_bytes)
        try:
            return task.answer(rows, bought, run)
        except DamagedError as error:
            raise damaged(site.ledger.bought(purchase.run)) from error

    # Without a guarantee: may it leave after all that the ledger holds? Then the answer is made of
    # the rows, refused where it gives rows away, and booked as something that has left.
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
    """

    path: Path
    size: int
    sha256: str


def distill_file(
    data: Path,
    schema_path: Path,
    output: Path,
    config: DistillConfig | SurrogateConfig,
    *,
    force: bool = False,
    key: Ed25519PrivateKey | None = None,
    ledger: Path | None = None,
    again: bool = False,
    noise_seed: int | None = None,
    run: Run = Run(),  # noqa: B008 - immutable
) -> tuple[Distillation | SurrogateRelease, Receipt]:
    """Distil a table into a release file, and return what it holds and what was written.

    Without an epsilon, a fair release is checked before it is written: it is refused where more
    synthetic rows equal a real one than chance explains, or where its labels are those of the real
    rows in order, unless the setting ``labels`` asks for them. With an epsilon, private records of
    the rows are bought, and kept next to the ledger. They have the guarantee, and so has every
    release that is made of them: with other settings, or after an interruption, the next release is
    made of the same records at no cost.

    Args:
        data: the private table, CSV or Parquet; for a surrogate also a folder of such files. A
            surrogate reads it as a stream.
        schema_path: the public schema.
        output: the release, written whole or not at all.
        config: settings, of either kind of release.
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        ledger: where it is booked; next to the table if not given.
        again: consent to an exact release although the ledger holds another answer.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
        run: who is told what happens; the table is called by its path.

    Raises:
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: an input is refused, the release holds copies of real rows, or the output
            exists, is being written by another run, or cannot be written.
    """
    book = Ledger(ledger or Ledger.for_table(data).path, again=again)
    require_distinct(book.path, data, schema_path)
    with claimed(output, inputs=(data, schema_path, book.path), force=force):
        noise = system_entropy if noise_seed is None else seeded(noise_seed)
        site = Site(data, read_schema(schema_path), book)
        task = release_task(config, site.schema, noise)
        made = answer(task, site, output=output.name, run=run._replace(source=str(data)))
        content = release_bytes(made.release, key)
        with whole_file(output) as temporary:
            temporary.write_bytes(content)
        return made, Receipt(output, len(content), hashlib.sha256(content).hexdigest())


def release_task(
    config: DistillConfig | SurrogateConfig, schema: Schema, noise: RandomBytes = system_entropy
) -> Task:
    """Return the task of a release with these settings."""
    if isinstance(config, DistillConfig):
        from synthfair.client.fair_task import FairTask  # loads JAX

        return FairTask(schema, config, noise).task
    from synthfair.client.surrogate_task import SurrogateTask

    return SurrogateTask(schema, config, noise).task
