"""From file to file, a client's whole job: the table is read, booked, distilled, checked, sent."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from pydantic import ValidationError

from synthfair.client.run import Progress, Run, fingerprint
from synthfair.config.client_settings import HOLD_OUT, DistillConfig, SurrogateConfig
from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema, read_schema
from synthfair.errors import InputError, refusal
from synthfair.files import claimed, require_distinct
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.privacy.statement import RISKS, UNSEEN
from synthfair.release.format import Release, write_release
from synthfair.task.answer_store import AnswerStore
from synthfair.task.protocol import ReleaseTask

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.distillation import Distillation
    from synthfair.client.surrogate_task import SurrogateRelease
    from synthfair.privacy.gate import Preview


OVERHEAD = 4096
"""Bytes of saved answers, at most, that are no numbers."""


class RefusedReleaseError(InputError):
    """A release that was not written, for what it would give away.

    Attributes:
        preview: what the checks found.
    """

    def __init__(self, message: str, preview: Preview) -> None:
        """Take what was found, to be shown."""
        super().__init__(message, "accept_risk")
        self.preview = preview


class Receipt(NamedTuple):
    """What was written.

    Attributes:
        path: the release file.
        size: in bytes.
        sha256: of the file.
        preview: what the checks of it against the real rows found; None of a surrogate. Private.
        clipping: how many of the real values were clipped to the schema's bounds. Private.
        no_trial: why none was made, in words, where one was to be. Private.
    """

    path: Path
    size: int
    sha256: str
    preview: Preview | None
    clipping: Clipping
    no_trial: str = ""


class Options(NamedTuple):
    """How a release is made, other than its public settings.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        hold_out: share of the rows held out of a trial of a fair release, 0 to 0.5; with 0, or an
            epsilon, there is no trial.
        accept_risk: whether a release is written whatever the checks found; it then says so.
        ledger: where it is booked; next to the table if not given.
        reserve: epsilon of the ledger's limit that must be left after it.
        again: consent to an exact release although the ledger holds another answer.
        store: of a site whom others ask: what an epsilon has bought stays there, for the very same
            question; if not given, it lies next to the output until that is written.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
    """

    force: bool = False
    key: Ed25519PrivateKey | None = None
    hold_out: float = HOLD_OUT
    accept_risk: bool = False
    ledger: Path | None = None
    reserve: float = 0.0
    again: bool = False
    store: AnswerStore | None = None
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

    First comes a trial without the rows that are held out: what a release gives away of the rows
    that it is made of shows by comparison with them. Nothing of it leaves. If it passes, the
    release is made of all rows, as :func:`synthfair.distill_table` makes it, and checked for what
    needs no held-out rows. With an epsilon there is no trial, as noisy answers are bought once: the
    guarantee bounds what the release gives away. A surrogate has none, and no checks, as no record
    of it is made from a row.

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
        RefusedReleaseError: the release holds copies of real rows.
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: an input is refused, or the output exists, is being written by another run, or
            cannot be written.
    """
    ledger = Ledger(options.ledger or Ledger.for_table(data).path, options.reserve, options.again)
    require_distinct(ledger.path, data, schema_path)
    if not 0 <= options.hold_out <= 0.5:
        raise InputError(f"hold_out = {options.hold_out:g}: must be from 0 to 0.5")
    with claimed(output, inputs=(data, schema_path, ledger.path), force=options.force):
        noise = system_entropy if options.noise_seed is None else seeded(options.noise_seed)
        task = make_task(config, read_schema(schema_path), noise, on_stage)
        run = Run(str(data), progress, on_stage)

        # The rows are read, and what is wrong with them is shown, before anything is booked.
        clipping, share = Clipping(), options.hold_out if task.has_trial else 0.0
        rows = task.read(data, hold_out=share, clipping=clipping)
        on_rows(clipping)
        rows_sha256 = rows.sha256
        made_with = f"{config.model_dump_json()} {options.noise_seed}"
        booking = _booking(task, output, fingerprint(rows_sha256, made_with))
        if task.guarantee is None:  # what may not leave is not tried out either
            ledger.require_next(booking)

        # A trial without some rows shows what a release would give away.
        trial = task.try_out(rows, run)
        _require_safe(trial.preview, output, config, options)
        if share:
            del rows  # a million of them must not lie there twice
            rows = task.read(data)

        # What an epsilon buys is booked once, before it is spent, and saved until the end.
        # Checks read rows, so that others may not have them repeated for free with other settings.
        settings = task.measured_by() + (config.model_dump_json() if options.store else "")
        asked = fingerprint(rows_sha256, settings)
        store = options.store or AnswerStore(output.parent, ".fit", f"{output.name}.", 16, ledger)
        measured = _measured(task, rows, booking, store, asked)
        answer = task.answer(measured, run)
        preview = task.check(answer, rows, trial)
        _require_safe(preview, output, config, options)

        # What leaves is booked, unless it was, signed, and written whole.
        release = _with_risks(answer.release, preview, accepted=options.accept_risk)
        if booking.guarantee is None:
            ledger.book(booking)
        sha256 = write_release(release, output, key=options.key)
        if not options.store:
            store.path(asked).unlink(missing_ok=True)
        receipt = Receipt(output, output.stat().st_size, sha256, preview, clipping, trial.note)
        return answer._replace(release=release), receipt


def _measured(
    task: ReleaseTask, rows: Any, booking: Booking, store: AnswerStore, asked: str
) -> Any:
    """What the task measures of the rows: with an epsilon, what was bought, by now or before."""
    if task.config.epsilon is None:
        return task.measure(rows)

    def packed() -> bytes:
        content = io.BytesIO()
        np.savez(content, **task.measure(rows)._asdict())
        return content.getvalue()

    booked, room = booking if booking.guarantee else None, 8 * task.most_numbers + OVERHEAD
    with store.buy(asked, booked, packed, room=room) as file:
        content = io.BytesIO(file.read())
    try:
        with np.load(content, allow_pickle=False) as arrays:
            return task.Measured(*(arrays[name] for name in task.Measured._fields))
    except (EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise store.damaged(asked) from error


def make_task(
    config: DistillConfig | SurrogateConfig,
    schema: Schema,
    noise: RandomBytes = system_entropy,
    on_stage: Callable[[str], None] = lambda _: None,
) -> ReleaseTask:
    """The task of a release with these settings. Raises InputError: they cannot be had."""
    if isinstance(config, DistillConfig):
        from synthfair.client.fair_task import FairTask

        return FairTask(schema, config, noise=noise)
    from synthfair.client.surrogate_task import SurrogateTask

    return SurrogateTask(schema, config, noise, on_stage)


def _booking(task: ReleaseTask, output: Path, run: str) -> Booking:
    """Of the release of the run with this fingerprint."""
    try:
        return Booking(output=output.name, run=run, guarantee=task.guarantee)
    except ValidationError as error:
        raise refusal(str(output), error) from error


def _require_safe(
    preview: Preview | None, output: Path, config: DistillConfig | SurrogateConfig, options: Options
) -> None:
    """Refuses what the checks of a release, or of a trial, found, unless it is accepted."""
    if options.accept_risk or not (preview and preview.risks):
        return
    config = cast(DistillConfig, config)  # a surrogate has no checks
    safer = ["labels = balanced"] * (config.labels == "copy")
    if set(preview.risks) - {RISKS["labels"]} or not safer:
        safer += ["start = range"] * (config.start == "real") + ["a lower n_synthetic"]
    if set(preview.risks) - {RISKS["labels"]}:
        safer += ["or coarser columns (rounded numbers; fewer categories in the schema)"]
    raise RefusedReleaseError(
        f"{output}: not written: {' '.join(preview.risks)} Try {', '.join(safer)}."
        " Only if that cannot be: accept_risk = true writes it nevertheless, and the file says so",
        preview,
    )


def _with_risks(release: Release, preview: Preview | None, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it.

    Where it guarantees an epsilon, it must not say what was found: then it says that they were
    accepted whether or not there are any.
    """
    if not accepted:
        return release
    privacy = release.header.privacy
    risks = preview.risks if preview else ()
    privacy = privacy.model_copy(
        update={"accepted_risks": (UNSEEN,) if privacy.guarantee else risks}
    )
    header = release.header.model_copy(update={"privacy": privacy})
    return dataclasses.replace(release, header=header)
