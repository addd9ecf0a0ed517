"""From file to file: the private table is read, booked, distilled, looked at, and then released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from synthfair.client.baseline import baseline
from synthfair.client.distillation import Distillation, Progress, distill_prepared
from synthfair.client.file_batches import FileBatches
from synthfair.client.held_out import HeldOut
from synthfair.client.prepare import (
    Prepared,
    fingerprint,
    prepare_plain,
    prepare_private,
    require_feasible,
    sha256_of,
)
from synthfair.client.previews import preview_fair, preview_surrogate
from synthfair.client.private import guaranteed, measure, measured_settings
from synthfair.config import HOLD_OUT, DistillConfig, SurrogateConfig
from synthfair.data.encode import Clipping, Encoded, encode_chunks
from synthfair.data.real_rows import RealRows, gather
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import count_rows, read_chunks
from synthfair.errors import InputError, refusal
from synthfair.files import claimed, require_distinct
from synthfair.model import LinearModel
from synthfair.privacy.answers import AnswersFile
from synthfair.privacy.fit import PrivateFit
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.privacy.private_sums import PrivateSums, private_sums
from synthfair.privacy.statement import UNSEEN, Guarantee, make_guarantee
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
        preview: what the checks of it against the real rows found. Private.
        clipping: how many of the real values were clipped to the schema's bounds. Private.
    """

    path: Path
    size: int
    sha256: str
    preview: Preview
    clipping: Clipping


class Options(NamedTuple):
    """How a release is made, other than its public settings.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        hold_out: share of the rows held out of the distillation, 0 to 0.5; see :class:`HeldOut`.
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
        on_stage: of a surrogate, called with what is done next, in a few words.

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
        files = _Files(data, output, ledger, options.reserve)
        schema = read_schema(schema_path)
        if isinstance(config, SurrogateConfig):
            show = on_stage or (lambda _: None)
            made = _make_surrogate(files, schema, config, options, on_rows, on_stage=show)
        else:
            made = _make_fair(files, schema, config, options, on_rows, progress=progress)
        release = _require_safe(made, output, accepted=options.accept_risk)
        if made.booking:
            files.book(made.booking)
        sha256 = write_release(release, output, key=options.key)
        for file in made.leftovers:
            file.unlink(missing_ok=True)
        receipt = Receipt(output, output.stat().st_size, sha256, made.preview, made.clipping)
        return made.result._replace(release=release), receipt


class _Files(NamedTuple):
    """The private table, the release to be, and where it is booked."""

    data: Path
    output: Path
    ledger: Ledger
    reserve: float

    def book(self, booking: Booking) -> None:
        """Before an epsilon is spent."""
        self.ledger.book(booking, reserve=self.reserve)

    def require_affordable(self, booking: Booking) -> None:
        """Before any work."""
        self.ledger.require_affordable(booking, reserve=self.reserve)


class _Made(NamedTuple):
    """A release that is not written yet.

    Attributes:
        result: the release and how it was made.
        preview: what the checks of it found.
        clipping: of the real rows.
        booking: to be booked before it is written; None where it was booked before the budget was
            spent.
        leftovers: files of no more use once it is written.
    """

    result: Distillation | SurrogateRelease
    preview: Preview
    clipping: Clipping
    booking: Booking | None
    leftovers: tuple[Path, ...] = ()


def _make_fair(
    files: _Files,
    schema: Schema,
    config: DistillConfig,
    options: Options,
    on_rows: Callable[[Clipping], None],
    *,
    progress: Progress | None,
) -> _Made:
    """Reads the rows, prepares the problem, solves it, compares the release with the rows."""
    clipping, share = Clipping(), options.hold_out
    real, held_out = read_rows(files.data, schema, config, hold_out=share, clipping=clipping)
    on_rows(clipping)
    source = str(files.data)
    ready = _prepare(real, schema, config, files, noise_seed=options.noise_seed)
    distillation = distill_prepared(
        ready.prepared, schema, config, source=source, progress=progress, checkpoint=files.output
    )
    compared = baseline(ready.prepared.problem, distillation.theta)
    distillation = distillation._replace(baseline=compared)
    found = preview_fair(distillation, real, held_out, schema)
    leftovers = tuple(file for file in (distillation.checkpoint, ready.saved_fit) if file)
    return _Made(distillation, found, clipping, ready.booking, leftovers)


def _make_surrogate(
    files: _Files,
    schema: Schema,
    config: SurrogateConfig,
    options: Options,
    on_rows: Callable[[Clipping], None],
    *,
    on_stage: Callable[[str], None],
) -> _Made:
    """Sums over the rows, rows with these sums, and their comparison with the real rows.

    The rows are read as a stream, several times. What an epsilon buys is booked before it is spent,
    and saved until the end.
    """
    from synthfair.client.surrogate_release import surrogate_release  # SciPy takes a while
    from synthfair.surrogate.make import first_sums, rows_of_a_cell

    rows_of_a_cell(config, len(schema.encoded_names))  # before anything is booked
    make_header(config, schema, model=LinearModel())
    rows = FileBatches(files.data, schema, options.hold_out, config.seed)
    on_stage("reading the rows")
    known = first_sums(rows, schema)
    on_rows(rows.clipping)
    rows_sha256 = sha256_of((known.count, known.first, known.second, known.binned, known.within))
    run = fingerprint(rows_sha256, config.model_dump_json())
    if config.epsilon is None:
        booking = _booking(files.output, run, None)
        files.require_affordable(booking)  # or it ends here
        made = surrogate_release(
            rows, schema, config, known=known, source=str(files.data), on_stage=on_stage
        )
        on_stage("comparing the release with the rows")
        found = preview_surrogate(made.release, rows, schema)
        return _Made(made, found, rows.clipping, booking)
    secure = options.noise_seed is None
    noise = system_entropy if options.noise_seed is None else seeded(options.noise_seed)
    guarantee = make_guarantee(config, schema)
    booking = _booking(files.output, run, guarantee if secure else None)
    bought = fingerprint(rows_sha256, guarantee.model_dump_json() + f" {schema.hash} {secure}")
    file = AnswersFile.next_to(files.output, bought, PrivateSums)
    sums = file.load()
    if sums is None:
        if secure:
            files.book(booking)
        sums = private_sums(rows, schema, guarantee, source=noise)
        file.save(sums)
    made = surrogate_release(rows, schema, config, known=sums, noise=noise, source=str(files.data))
    on_stage("comparing the release with the rows")
    found = preview_surrogate(made.release, rows, schema)
    return _Made(made, found, rows.clipping, None if secure else booking, (file.path,))


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
        encode_chunks(read_chunks(path, schema), schema, source=str(path), clipping=clipping),
        n_rows,
        n_groups=len(schema.groups),
        intercept=config.intercept,
        source=str(path),
        leave_out=apart,
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


def _prepare(
    real: RealRows,
    schema: Schema,
    config: DistillConfig,
    files: _Files,
    *,
    noise_seed: int | None,
) -> _Ready:
    """The problem; what an epsilon buys is booked before it is spent, and saved until the end.

    A saved fit was booked and bought by a run that did not come to its end.
    """
    source, output = str(files.data), files.output
    rows_sha256 = sha256_of(real[:3])  # once: the rows may be a million
    run = fingerprint(rows_sha256, config.model_dump_json())
    if config.epsilon is None:
        booking = _booking(output, run, None)
        files.require_affordable(booking)  # or it ends here
        prepared = prepare_plain(real, schema, config, source=source, rows_sha256=rows_sha256)
        return _Ready(prepared, booking, None)
    require_feasible(schema, config)
    secure = noise_seed is None
    guarantee = guaranteed(config, schema) if secure else None
    booking = _booking(output, run, guarantee)
    measured = fingerprint(rows_sha256, measured_settings(config, schema, guarantee))
    file = AnswersFile.next_to(output, measured, PrivateFit)
    fit = file.load()
    if fit is None:
        if secure:
            files.book(booking)
        noise = system_entropy if noise_seed is None else seeded(noise_seed)
        fit = measure(real.encoded, schema, config, noise=noise)
        file.save(fit)
    prepared = prepare_private(fit, schema, config, secure=secure)
    return _Ready(prepared, None if secure else booking, file.path)


def _booking(output: Path, run: str, guarantee: Guarantee | None) -> Booking:
    try:
        return Booking(output=output.name, run=run, guarantee=guarantee)
    except ValidationError as error:
        raise refusal(str(output), error) from error


def _require_safe(made: _Made, output: Path, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it.

    Where it guarantees an epsilon, it must not say what was found: then it says that they were
    accepted whether or not there are any.
    """
    release, found = made.result.release, made.preview
    if found.risks and not accepted:
        config = made.result.release.header.config
        if isinstance(config, SurrogateConfig):
            moments = not config.moments_only and config.epsilon is None  # which buys sums anew
            safer = ["--moments-only"] * moments + ["a lower --rows-per-cell"]
        else:
            safer = ["--start range"] * (config.start == "real")
            safer += ["--labels balanced"] * (config.labels == "copy") + ["a lower --n-synthetic"]
        raise RefusedReleaseError(
            f"{output}: not written: {' '.join(found.risks)} Try {', '.join(safer)}, or coarser"
            " columns (rounded numbers; fewer categories in the schema). Only if that cannot be:"
            " --accept-risk writes it nevertheless, and the file says so",
            found,
        )
    if not accepted:
        return release
    privacy = release.header.privacy
    said = (UNSEEN,) if privacy.guarantee else found.risks
    header = release.header.model_copy(
        update={"privacy": privacy.model_copy(update={"accepted_risks": said})}
    )
    return dataclasses.replace(release, header=header)
