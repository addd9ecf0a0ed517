"""From file to file: the private table is read, booked, distilled, looked at, and then released."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import ValidationError

from synthfair.client.held_out import HeldOut
from synthfair.client.private import (
    FitFile,
    measure,
    measured_settings,
    promise,
    require_feasible,
)
from synthfair.client.routine import (
    Distillation,
    Progress,
    Run,
    distill_fit,
    distill_rows,
    fingerprint,
)
from synthfair.config import HOLD_OUT, DistillConfig
from synthfair.data.encode import Encoded, encode_chunks
from synthfair.data.real_rows import RealRows, gather
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import count_rows, read_chunks
from synthfair.errors import InputError, refusal
from synthfair.files import require_distinct, require_free
from synthfair.privacy.fit import PrivateFit
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import RandomBytes, seeded, system_entropy
from synthfair.privacy.statement import UNSEEN, Guarantee
from synthfair.release.format import Release, write_release

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.distill.judge import Record
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
        preview: what was found in it, beside the real rows. Private.
    """

    path: Path
    size: int
    sha256: str
    preview: Preview


class Options(NamedTuple):
    """How a release is made, beside its public settings.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        hold_out: share of the rows kept out of the distillation, 0 to 0.5; see :class:`HeldOut`.
        accept_risk: whether a release is written whatever the checks found; it then says so.
        ledger: where it is booked; beside the table if not given.
        noise_seed: makes the noise repeatable, for tests; such a release promises nothing.
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
    """Distils a table into a release file. An interrupted run is taken up where it stopped.

    Args:
        data: the private table, CSV or Parquet.
        schema_path: the public schema.
        output: the release, written whole or not at all. While a run is interrupted, a checkpoint
            lies beside it; that holds private numbers and must not be sent.
        config: settings.
        options: see there.
        progress: see :func:`synthfair.client.routine.distill_table`.

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
    noise = system_entropy if options.noise_seed is None else seeded(options.noise_seed)
    real, held_out = read_rows(data, schema, config, hold_out=options.hold_out)
    shown = _loading_checks(progress)
    run = Run(schema, config, source=str(data), progress=shown, checkpoint=output)
    if config.epsilon is None:
        ledger.require_affordable(_booking(output, real, run, None))  # or it ends here
        distillation, kept = distill_rows(real, **run._asdict()), None
    else:
        fit, kept = _measured_once(real, run, ledger, output, noise)
        distillation = distill_fit(fit, run, secure=noise is system_entropy)
    found = _preview(distillation, real, held_out, run)
    release = _require_safe(distillation.release, found, output, accepted=options.accept_risk)
    if release.header.privacy.guarantee is None:  # else it was booked before it was spent
        ledger.book(_booking(output, real, run, None))
    sha256 = write_release(release, output, key=options.key)
    for file in (distillation.checkpoint, kept and kept.path):
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
        hold_out: share of the rows kept apart; the configuration's seed says which.

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


def _booking(output: Path, real: RealRows, run: Run, promised: Guarantee | None) -> Booking:
    try:
        return Booking(
            output=output.name,
            run=fingerprint(real, run.config.model_dump_json()),
            guarantee=promised,
        )
    except ValidationError as error:
        raise refusal(str(output), error) from error


def _measured_once(
    real: RealRows, run: Run, ledger: Ledger, output: Path, noise: RandomBytes
) -> tuple[PrivateFit, FitFile]:
    """What the budget buys, booked before it is spent, and kept until the release is written.

    A fit that is kept was booked and bought by a run that did not come to its end.
    """
    schema, config = run.schema, run.config
    require_feasible(schema, config)
    promised = promise(config, schema) if noise is system_entropy else None
    booking = _booking(output, real, run, promised)
    kept = FitFile.beside(output, fingerprint(real, measured_settings(config, schema, promised)))
    fit = kept.load()
    if fit is None:
        if promised:
            ledger.book(booking)
        fit = measure(real.encoded, schema, config, noise=noise)
        kept.save(fit)
    return fit, kept


def _loading_checks(progress: Progress | None) -> Progress:
    """Loads what checks a release once steps are being made, which leave Python idle.

    Its SciPy takes a tenth of a second to import; sooner, tracing would wait for it.
    """
    loading = threading.Thread(target=_load_checks, daemon=True)

    def told(records: Record, step: int, steps: int) -> None:
        if loading.ident is None:
            loading.start()
        if progress:
            progress(records, step, steps)

    return told


def _load_checks() -> None:
    with suppress(Exception):  # whoever needs them will say why
        import_module("synthfair.privacy.gate")


def _preview(distillation: Distillation, real: RealRows, held_out: Encoded, run: Run) -> Preview:
    from synthfair.privacy.gate import preview  # SciPy takes a while, and others come first

    release, theta, config = distillation.release, np.asarray(distillation.theta), run.config
    how = {"n_groups": len(run.schema.groups), "intercept": config.intercept}

    def scores(rows: Encoded) -> np.ndarray:
        return theta @ gather([rows], len(rows.y), **how).columns

    synthetic = Encoded(release.x, release.s, release.y)
    return preview(synthetic, real.encoded, held_out, scores, seed=config.seed)


def _require_safe(release: Release, found: Preview, output: Path, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it.

    Where it promises an epsilon, it must not say what was found: then it says that they were
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
