"""From file to file: the private table is read, booked, distilled, looked at, and then released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.client.baseline import baseline
from synthfair.client.distillation import Distillation, Progress, distill_prepared
from synthfair.client.held_out import HeldOut
from synthfair.client.prepare import (
    Prepared,
    fingerprint,
    prepare_plain,
    prepare_private,
    require_feasible,
    require_rows,
    sha256_of,
)
from synthfair.client.previews import of_both, preview_fair
from synthfair.client.private import guaranteed, measure, measured_settings
from synthfair.config import HOLD_OUT, DistillConfig, SurrogateConfig
from synthfair.data.batches import RealRows, from_files, gather
from synthfair.data.encode import Clipping, Encoded, content_sums
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import count_rows
from synthfair.errors import InputError, refusal
from synthfair.files import claimed, require_distinct
from synthfair.model import LinearModel
from synthfair.privacy.answers import Answers, AnswersFile
from synthfair.privacy.fit import PrivateFit
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.privacy.statement import RISKS, UNSEEN, Guarantee, make_guarantee
from synthfair.release.format import Release, make_header, write_release

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.surrogate_release import SurrogateRelease
    from synthfair.privacy.gate import Preview


class RefusedReleaseError(InputError):
    """A release that was not written, for what it would give away.

    Attributes:
        preview: what was found.
    """

    def __init__(self, message: str, preview: Preview) -> None:
        """With what was found, to be shown."""
        super().__init__(message)
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
        hold_out: share of the rows held out of a trial of a fair release, 0 to 0.5, see
            :class:`HeldOut`; with 0, or an epsilon, there is no trial.
        accept_risk: whether a release is written whatever the checks found; it then says so.
        ledger: where it is booked; next to the table if not given.
        reserve: epsilon of the ledger's limit that must be left after it.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
    """

    force: bool = False
    key: Ed25519PrivateKey | None = None
    hold_out: float = HOLD_OUT
    accept_risk: bool = False
    ledger: Path | None = None
    reserve: float = 0.0
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
    on_stage: Callable[[str], None] | None = None,
) -> tuple[Distillation | SurrogateRelease, Receipt]:
    """Distils a table into a release file. The same run continues an interrupted one's steps.

    First comes a trial without the rows that are held out: what a release gives away of the rows
    that it is made of shows by comparison with them. Nothing of it leaves. If it passes, the
    release is made of all rows, as :func:`synthfair.distill_table` makes it, and checked for what
    needs no held-out rows. With an epsilon there is no trial, as noisy answers are bought once: the
    guarantee bounds what the release gives away.

    Args:
        data: the private table, CSV or Parquet; for a surrogate also a folder of such files. A
            surrogate reads it as a stream.
        schema_path: the public schema.
        output: the release, written whole or not at all. While a run is interrupted, a checkpoint
            lies next to it; that holds private numbers and must not be sent.
        config: settings, of either kind of release.
        options: see there.
        on_rows: called when the rows are read, with what was clipped of them, before anything is
            booked or an epsilon spent; an exception ends the run there. What it is given is
            private, and has no noise.
        progress: of a fair release, see :func:`synthfair.client.distillation.distill_table`.
        on_stage: called with what is done next, in a few words.

    Raises:
        RefusedReleaseError: the release holds copies of real rows.
        InputError: an input is refused, the budget would be passed, or the output exists, is being
            written by another run, or cannot be written.
        KeyboardInterrupt: after the checkpoint is written.
    """
    ledger = Ledger(options.ledger) if options.ledger else Ledger.for_table(data)
    require_distinct(output, data, schema_path, ledger.path)
    require_distinct(ledger.path, data, schema_path)
    with claimed(output, force=options.force):
        HeldOut(options.hold_out, config.seed)  # refuses a share that is none
        show = on_stage or (lambda _: None)
        called = on_rows, show, progress
        run = _Run(data, read_schema(schema_path), output, ledger, options, *called, ends={})
        if isinstance(config, SurrogateConfig):
            made = _make_surrogate(run, config)
        else:
            made = _make_fair(run, config)
        if made.preview and isinstance(config, DistillConfig):
            run.require_safe(made.preview, config)
        release = _with_risks(made, accepted=options.accept_risk)
        if made.booking:
            ledger.book(made.booking, reserve=options.reserve)
        sha256 = write_release(release, output, key=options.key)
        for file in made.leftovers:
            file.unlink(missing_ok=True)
        size, found = output.stat().st_size, (made.preview, made.clipping, made.no_trial)
        return made.result._replace(release=release), Receipt(output, size, sha256, *found)


class _Run(NamedTuple):
    """What is read, written and called, whatever kind of release is made.

    ``ends`` has the end of each distillation, by the file that it is saved to if need be.
    """

    data: Path
    schema: Schema
    output: Path
    ledger: Ledger
    options: Options
    on_rows: Callable[[Clipping], None]
    on_stage: Callable[[str], None]
    progress: Progress | None
    ends: dict[CheckpointFile, Saved]

    def booking(self, settings: str, guarantee: Guarantee | None = None) -> Booking:
        """Of the release with this fingerprint."""
        try:
            return Booking(output=self.output.name, run=settings, guarantee=guarantee)
        except ValidationError as error:
            raise refusal(str(self.output), error) from error

    def require_affordable(self, booking: Booking) -> None:
        """Before any work."""
        self.ledger.require_affordable(booking, reserve=self.options.reserve)

    @property
    def noise(self) -> RandomBytes:
        """The system's, or that of tests, which protects nothing."""
        seed = self.options.noise_seed
        return system_entropy if seed is None else seeded(seed)

    def bought(
        self,
        file: AnswersFile[Answers],
        booking: Booking,
        measure: Callable[[], Answers],
        *,
        numbers: int,
    ) -> Answers:
        """What an epsilon buys: so many numbers, at most."""
        ledger, reserve = self.ledger if booking.guarantee else None, self.options.reserve
        return file.answers(ledger, booking, measure, numbers=numbers, reserve=reserve)

    def require_safe(self, found: Preview, config: DistillConfig) -> None:
        """Refuses what the checks of a release, or of a trial, found, unless it is accepted."""
        if not found.risks or self.options.accept_risk:
            return
        others = set(found.risks) - {RISKS["labels"]}
        safer = ["--labels balanced"] * (config.labels == "copy")
        if others or not safer:
            safer += ["--start range"] * (config.start == "real") + ["a lower --n-synthetic"]
        if others:
            safer += ["or coarser columns (rounded numbers; fewer categories in the schema)"]
        raise RefusedReleaseError(
            f"{self.output}: not written: {' '.join(found.risks)} Try {', '.join(safer)}."
            " Only if that cannot be: --accept-risk writes it nevertheless, and the file says so",
            found,
        )


class _Unwritten(NamedTuple):
    """A release that is not written yet.

    Attributes:
        result: the release and how it was made.
        preview: what the checks of it found; None of a surrogate, which has none.
        clipping: of the real rows.
        booking: to be booked before it is written; None where it was booked before the budget was
            spent.
        leftovers: files of no more use once it is written.
        no_trial: as :class:`Receipt` has it.
    """

    result: Distillation | SurrogateRelease
    preview: Preview | None
    clipping: Clipping
    booking: Booking | None
    leftovers: tuple[Path, ...]
    no_trial: str


def _make_fair(run: _Run, config: DistillConfig) -> _Unwritten:
    """Makes a trial without some rows, where there may be one, and then a release of all rows."""
    share = run.options.hold_out if config.epsilon is None else 0.0
    clipping, trial, preview, no_trial = Clipping(), None, None, ""
    real, held_out = read_rows(run.data, run.schema, config, hold_out=share, clipping=clipping)
    run.on_rows(clipping)
    if share:
        require_rows(clipping.rows, config, source=str(run.data))
        run.require_affordable(run.booking("0" * 64))
        trial, no_trial = _try_fair(run, config, real, held_out)
        if trial:
            preview = preview_fair(trial, real, held_out, run.schema)
            run.require_safe(preview, config)
    try:
        if share:
            del real  # a million rows must not be there twice
            real, held_out = read_rows(run.data, run.schema, config)
        ready = _prepare(run, config, real)
        run.on_stage("distilling")
        made = _distilled(run, config, ready.prepared)
    except KeyboardInterrupt:
        for file, end in run.ends.items():
            file.save(end)
        raise
    made = made._replace(baseline=baseline(ready.prepared.problem, made.theta))
    found = preview_fair(made, real, held_out, run.schema)
    if trial and preview:
        made = made._replace(resumed_at=made.resumed_at or trial.resumed_at)
        found = of_both(preview, found)
    leftovers = *(file.path for file in run.ends), *filter(None, [ready.saved_fit])
    return _Unwritten(made, found, clipping, ready.booking, leftovers, no_trial)


def _try_fair(
    run: _Run, config: DistillConfig, real: RealRows, held_out: Encoded
) -> tuple[Distillation | None, str]:
    """A release of the rows that are not held out; or None, and why there is none.

    Too few rows may be held out to be compared with, or without them some group or label may be
    missing. The number of rows that the settings ask for is that of all of them.
    """
    from synthfair.privacy.gate import LEAST_HELD_OUT  # SciPy takes a while

    if len(held_out.y) < LEAST_HELD_OUT:
        few = f"fewer than {LEAST_HELD_OUT} different rows are held out (--hold-out takes more)"
        return None, f"no trial: {few}"
    changes = {"n_min": 0} | ({"n_synthetic": None} if config.labels == "copy" else {})
    config = config.model_copy(update=changes)
    try:
        prepared = prepare_plain(real, run.schema, config, source=str(run.data))
    except InputError as refused:  # a wrong setting is refused with all rows, too
        return None, f"no trial: without the held-out rows, {refused}"
    run.on_stage("trial release")
    return _distilled(run, config, prepared), ""


def _distilled(run: _Run, config: DistillConfig, prepared: Prepared) -> Distillation:
    return distill_prepared(
        prepared,
        run.schema,
        config,
        source=str(run.data),
        progress=run.progress,
        checkpoint=run.output,
        on_end=run.ends.__setitem__,
    )


def _make_surrogate(run: _Run, config: SurrogateConfig) -> _Unwritten:
    """Makes a surrogate, of rows that are read as a stream.

    There is no trial, as no row of it is made from a row: records are drawn from rounded sums, or
    noisy ones. What an epsilon buys is booked before it is spent, and saved until the end.
    """
    from synthfair.client.surrogate_release import surrogate_release  # SciPy takes a while
    from synthfair.surrogate.make import Sums, most_numbers, read_sums

    schema, source = run.schema, str(run.data)
    make_header(config, schema, model=LinearModel())  # before anything is booked
    clipping, sums, leftovers = Clipping(), None, ()
    run.on_stage("reading the rows")
    content = from_files(run.data, schema, clipping=clipping).sum(content_sums)
    run.on_rows(clipping)
    rows, rows_sha256 = from_files(run.data, schema), sha256_of((content,))
    guarantee = make_guarantee(config, schema) if config.epsilon else None
    secure, noise = run.options.noise_seed is None, run.noise
    settings = fingerprint(rows_sha256, config.model_dump_json())
    booking = run.booking(settings, guarantee if secure else None)
    if guarantee:
        bought = f"{guarantee.model_dump_json()} {schema.hash} {secure}"
        file = AnswersFile.next_to(run.output, fingerprint(settings, bought), Sums)
        sums = run.bought(
            file,
            booking,
            lambda: read_sums(rows, config, schema, noise=noise, on_stage=run.on_stage),
            numbers=most_numbers(schema),
        )
        leftovers = (file.path,)
    else:
        run.require_affordable(booking)  # or it ends here
    made = surrogate_release(
        rows, schema, config, sums=sums, noise=noise, source=source, on_stage=run.on_stage
    )
    later = None if booking.guarantee else booking
    return _Unwritten(made, None, clipping, later, leftovers, "")


def read_rows(
    path: Path,
    schema: Schema,
    config: DistillConfig,
    *,
    hold_out: float = 0.0,
    clipping: Clipping | None = None,
) -> tuple[RealRows, Encoded]:
    """The rows of a table, encoded some at a time for a model with these settings.

    Args:
        path: CSV or Parquet.
        schema: theirs.
        config: settings.
        hold_out: share of the rows held out; the configuration's seed says which.
        clipping: counts the values that are clipped.

    Returns:
        The rows to distil, and some of those held out.

    Raises:
        InputError: the file cannot be read, has no rows, or does not fit the schema.
    """
    apart, n_rows = HeldOut(hold_out, config.seed), count_rows(path)
    if n_rows == 0:
        raise InputError(f"{path}: has no rows")
    real = gather(
        from_files(path, schema, clipping=clipping).read(),
        n_rows,
        n_groups=len(schema.groups),
        intercept=config.intercept,
        source=str(path),
        leave_out=apart if hold_out else None,
    )
    return real, apart.rows


class _Ready(NamedTuple):
    """A problem, and what is left to do once its release may be written.

    Attributes:
        prepared: the problem.
        booking: to be booked then; None where it was booked before the budget was spent.
        saved_fit: a file that is of no more use then.
    """

    prepared: Prepared
    booking: Booking | None
    saved_fit: Path | None


def _prepare(run: _Run, config: DistillConfig, real: RealRows) -> _Ready:
    """The problem; what an epsilon buys is booked before it is spent, and saved until the end.

    A saved fit was booked and bought by a run that did not come to its end.
    """
    schema, source = run.schema, str(run.data)
    rows_sha256 = sha256_of(real[:3])  # once: the rows may be a million
    settings = fingerprint(rows_sha256, config.model_dump_json())
    if config.epsilon is None:
        booking = run.booking(settings)
        run.require_affordable(booking)  # or it ends here
        prepared = prepare_plain(real, schema, config, source=source, rows_sha256=rows_sha256)
        return _Ready(prepared, booking, None)
    require_feasible(schema, config)
    secure, noise = run.options.noise_seed is None, run.noise
    guarantee = guaranteed(config, schema) if secure else None
    booking = run.booking(settings, guarantee)
    pairs, n = 2 * len(schema.groups), len(schema.encoded_names) + len(schema.groups)
    measured = fingerprint(rows_sha256, measured_settings(config, schema, guarantee))
    file = AnswersFile.next_to(run.output, measured, PrivateFit)
    fit = run.bought(
        file,
        booking,
        lambda: measure(real.encoded, schema, config, noise=noise),
        numbers=n * (n + 1 + pairs) + pairs,
    )
    prepared = prepare_private(fit, schema, config, secure=secure)
    return _Ready(prepared, None if secure else booking, file.path)


def _with_risks(made: _Unwritten, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it.

    Where it guarantees an epsilon, it must not say what was found: then it says that they were
    accepted whether or not there are any.
    """
    release = made.result.release
    if not accepted:
        return release
    privacy = release.header.privacy
    found = made.preview.risks if made.preview else ()
    said = (UNSEEN,) if privacy.guarantee else found
    header = release.header.model_copy(
        update={"privacy": privacy.model_copy(update={"accepted_risks": said})}
    )
    return dataclasses.replace(release, header=header)
