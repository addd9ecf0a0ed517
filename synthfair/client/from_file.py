"""From file to file: the private table is read, booked, distilled, looked at, and then released."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import ValidationError

from synthfair.client.distillation import Distillation, Progress, distill_prepared
from synthfair.client.held_out import HeldOut
from synthfair.client.prepare import (
    Prepared,
    fingerprint,
    prepare_plain,
    prepare_private,
    require_feasible,
    sha256_of,
)
from synthfair.client.private import FitFile, guaranteed, measure, measured_settings
from synthfair.config import HOLD_OUT, DistillConfig
from synthfair.data.encode import Encoded, encode_chunks
from synthfair.data.real_rows import RealRows, gather
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import count_rows, read_chunks
from synthfair.errors import InputError, refusal
from synthfair.files import require_distinct, require_free
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.privacy.statement import UNSEEN, Guarantee
from synthfair.release.format import Release, write_release

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    """

    path: Path
    size: int
    sha256: str
    preview: Preview


class Options(NamedTuple):
    """How a release is made, other than its public settings.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        hold_out: share of the rows held out of the distillation, 0 to 0.5; see :class:`HeldOut`.
        accept_risk: whether a release is written whatever the checks found; it then says so.
        ledger: where it is booked; next to the table if not given.
        noise_seed: makes the noise repeatable, for tests; such a release guarantees nothing.
    """

    force: bool = False
    key: Ed25519PrivateKey | None = None
    hold_out: float = HOLD_OUT
    accept_risk: bool = False
    ledger: Path | None = None
    noise_seed: int | None = None


def distill_file(
    data: Path,
    schema_path: Path,
    output: Path,
    config: DistillConfig,
    options: Options = Options(),  # noqa: B008 - immutable
    *,
    progress: Progress | None = None,
) -> tuple[Distillation, Receipt]:
    """Distils a table into a release file. An interrupted run continues where it stopped.

    Args:
        data: the private table, CSV or Parquet.
        schema_path: the public schema.
        output: the release, written whole or not at all. While a run is interrupted, a checkpoint
            lies next to it; that holds private numbers and must not be sent.
        config: settings.
        options: see there.
        progress: see :func:`synthfair.client.distillation.distill_table`.

    Raises:
        RefusedReleaseError: the release holds copies of real rows.
        InputError: an input is refused, the budget would be passed, or the output exists or cannot
            be written.
        KeyboardInterrupt: after the checkpoint is written.
    """
    ledger = Ledger(options.ledger) if options.ledger else Ledger.for_table(data)
    require_distinct(output, data, schema_path, ledger.path)
    require_distinct(ledger.path, data, schema_path)
    require_free(output, force=options.force)
    schema = read_schema(schema_path)
    real, held_out = read_rows(data, schema, config, hold_out=options.hold_out)
    ready = _prepare(
        real,
        schema,
        config,
        ledger,
        output=output,
        noise_seed=options.noise_seed,
        source=str(data),
    )
    distillation = distill_prepared(
        ready.prepared, schema, config, source=str(data), progress=progress, checkpoint=output
    )
    found = _preview(distillation, real, held_out, schema)
    release = _require_safe(distillation.release, found, output, accepted=options.accept_risk)
    if ready.booking:
        ledger.book(ready.booking)
    sha256 = write_release(release, output, key=options.key)
    for file in (distillation.checkpoint, ready.saved_fit):
        if file:
            file.unlink(missing_ok=True)
    receipt = Receipt(output, output.stat().st_size, sha256, found)
    return distillation._replace(release=release), receipt


def read_rows(
    path: Path, schema: Schema, config: DistillConfig, *, hold_out: float = 0.0
) -> tuple[RealRows, Encoded]:
    """The rows of a table, encoded some at a time for a model with these settings.

    Args:
        path: CSV or Parquet.
        schema: theirs.
        config: settings.
        hold_out: share of the rows held out; the configuration's seed says which.

    Returns:
        The rows to distil, and some of those held out.

    Raises:
        InputError: the file cannot be read, has no rows, or does not fit the schema.
    """
    apart, n_rows = HeldOut(hold_out, config.seed), count_rows(path)
    if n_rows == 0:
        raise InputError(f"{path}: has no rows")
    real = gather(
        encode_chunks(read_chunks(path, schema), schema, source=str(path)),
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
    ledger: Ledger,
    *,
    output: Path,
    noise_seed: int | None,
    source: str,
) -> _Ready:
    """The problem; what an epsilon buys is booked before it is spent, and saved until the end.

    A saved fit was booked and bought by a run that did not come to its end.
    """
    rows_sha256 = sha256_of(real[:3])  # once: the rows may be a million
    run = fingerprint(rows_sha256, config.model_dump_json())
    if config.epsilon is None:
        booking = _booking(output, run, None)
        ledger.require_affordable(booking)  # or it ends here
        prepared = prepare_plain(real, schema, config, source=source, rows_sha256=rows_sha256)
        return _Ready(prepared, booking, None)
    require_feasible(schema, config)
    secure = noise_seed is None
    guarantee = guaranteed(config, schema) if secure else None
    booking = _booking(output, run, guarantee)
    measured = fingerprint(rows_sha256, measured_settings(config, schema, guarantee))
    file = FitFile.next_to(output, measured)
    fit = file.load()
    if fit is None:
        if secure:
            ledger.book(booking)
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


def _preview(
    distillation: Distillation, real: RealRows, held_out: Encoded, schema: Schema
) -> Preview:
    from synthfair.privacy.gate import preview  # SciPy takes a while, and others come first

    release, theta = distillation.release, np.asarray(distillation.theta)
    config, n_groups = release.header.config, len(schema.groups)

    def scores(rows: Encoded) -> np.ndarray:
        gathered = gather([rows], len(rows.y), n_groups=n_groups, intercept=config.intercept)
        return theta @ gathered.columns

    synthetic = Encoded(release.x, release.s, release.y)
    return preview(synthetic, real.encoded, held_out, scores, seed=config.seed)


def _require_safe(release: Release, found: Preview, output: Path, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it.

    Where it guarantees an epsilon, it must not say what was found: then it says that they were
    accepted whether or not there are any.
    """
    if found.risks and not accepted:
        raise RefusedReleaseError(
            f"{output}: not written: {' '.join(found.risks)} --accept-risk writes it nevertheless,"
            " and the file says so",
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
