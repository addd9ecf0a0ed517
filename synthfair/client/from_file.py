"""From file to file, a client's whole job: the table is read, booked, distilled, checked, sent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from synthfair.client.run import Progress, ReadRows, Run, fingerprint
from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema, read_schema
from synthfair.errors import InputError
from synthfair.files import claimed, require_distinct
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.release.format import write_release
from synthfair.settings import DistillConfig, SurrogateConfig
from synthfair.task.answer_store import AnswerStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.distillation import Distillation
    from synthfair.client.fair_task import FairTask
    from synthfair.client.surrogate_task import SurrogateRelease, SurrogateTask
    from synthfair.surrogate.make import Surrogate

OVERHEAD = 4096
"""Bytes of saved records, at most, that are no numbers."""

SPENT = "The epsilon is spent on this answer; another k_min or epsilon is bought anew"
"""The end of a refusal with noise."""

PAID = (
    "The private records are paid for: of them, other settings distil at no cost, and release ="
    " surrogate, with the same epsilon, delta and k_min, is these records"
)
"""The end of a refusal to distil private records."""


class Receipt(NamedTuple):
    """What was written.

    Attributes:
        path: the release file.
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
        reserve: epsilon of the ledger's limit that must be left after it.
        again: consent to an exact release although the ledger holds another answer.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
    """

    force: bool = False
    key: Ed25519PrivateKey | None = None
    ledger: Path | None = None
    reserve: float = 0.0
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
    ledger = Ledger(options.ledger or Ledger.for_table(data).path, options.reserve, options.again)
    require_distinct(ledger.path, data, schema_path)
    with claimed(output, inputs=(data, schema_path, ledger.path), force=options.force):
        noise = system_entropy if options.noise_seed is None else seeded(options.noise_seed)
        task = make_task(config, read_schema(schema_path), noise)
        run = Run(str(data), progress, on_stage)

        # The rows are read, and what is wrong with them is shown, before anything is booked.
        clipping = Clipping()
        on_stage("reading the rows")
        rows = task.read(data, clipping)
        on_rows(clipping)
        made_with = f"{config.model_dump_json()} {options.noise_seed}"
        run_on = fingerprint(rows.sha256, made_with)
        booking = Booking(output=output.name, run=run_on, guarantee=task.guarantee)

        # What an epsilon buys is booked before it is spent, and kept.
        measured: Any
        if booking.guarantee:
            measured = _bought(task, rows, booking, ledger, run)
            try:
                answer = task.answer(measured, run)
            except InputError as error:
                raise InputError(f"{error}. {PAID}", *error.arguments) from error

        # Without one, what leaves is checked, and booked then.
        else:
            ledger.require_next(booking)
            measured = task.measure(rows.real, run)
            answer = task.answer(measured, run)
            if task.buyer is None:
                from synthfair.client.fair_task import check_copies

                check_copies(answer.release, rows.real, source=str(output))
            ledger.book(booking)
        sha256 = write_release(answer.release, output, key=options.key)
        return answer, Receipt(output, output.stat().st_size, sha256, clipping)


def _bought(
    task: FairTask | SurrogateTask, rows: ReadRows, booking: Booking, ledger: Ledger, run: Run
) -> Surrogate:
    """Return the private records of the rows, bought now, or before."""
    from synthfair.surrogate.make import Surrogate, TooFewRowsError, most_numbers

    def packed() -> bytes:
        content = io.BytesIO()
        try:
            fields: dict[str, Any] = task.measure(rows.real, run)._asdict()
        except TooFewRowsError as refused:  # an answer as well: no other noise is tried
            fields = {"refused": np.array(str(refused))}
        np.savez(content, **fields)
        return content.getvalue()

    store = AnswerStore(ledger.path.parent, ".records", f"{ledger.path.name}.", 16)
    asked = cast("SurrogateTask", task.buyer).purchase(rows.sha256)
    room = 8 * most_numbers(task.schema) + OVERHEAD
    content = store.buy(asked, booking, packed, ledger, room=room)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if "refused" in arrays:
                raise TooFewRowsError(f"{arrays['refused']}. {SPENT}", "k_min")
            return Surrogate(**arrays)
    except (EOFError, TypeError, zipfile.BadZipFile) as error:
        raise store.damaged(asked) from error


def make_task(
    config: DistillConfig | SurrogateConfig, schema: Schema, noise: RandomBytes = system_entropy
) -> FairTask | SurrogateTask:
    """Return the task of a release with these settings."""
    if isinstance(config, DistillConfig):
        from synthfair.client.fair_task import FairTask

        return FairTask(schema, config, noise=noise)
    from synthfair.client.surrogate_task import SurrogateTask

    return SurrogateTask(schema, config, noise)
