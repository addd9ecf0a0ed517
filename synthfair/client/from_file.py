"""From file to file: the private table is read, booked, distilled, looked at, and then released."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.client.private import FitFile, measure, promise, require_feasible
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
from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import count_rows, read_chunks
from synthfair.distill.problem import make_penalty, make_rows
from synthfair.distill.real import RealRows, gather
from synthfair.errors import InputError
from synthfair.files import require_distinct, require_free
from synthfair.model import LinearModel
from synthfair.privacy.gate import Preview, preview
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release import Release, make_header, write_release

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MOST_HELD_OUT = 1000
"""Rows that are held out, at most."""


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
    """How a release is made; nothing here changes what it would hold.

    Attributes:
        force: whether an existing output is overwritten.
        key: that the release is signed with; it is not signed if not given.
        hold_out: share of the rows kept out of the distillation, 0 to 0.5.
        accept_risk: whether a release is written that holds copies; it then says so.
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
    ledger = Ledger(options.ledger) if options.ledger else Ledger.beside(data)
    for path in (output, ledger.path):
        require_distinct(path, data, schema_path)
    require_distinct(ledger.path, output)
    require_free(output, force=options.force)
    schema = read_schema(schema_path)
    real, held_out = read_rows(data, schema, config, hold_out=options.hold_out)
    run = Run(schema, config, source=str(data), progress=progress, checkpoint=output)
    distillation, booking, kept = _made(real, run, ledger, output, options.noise_seed)
    found = _preview(distillation, real, held_out, config)
    release = _require_safe(distillation.release, found, output, accepted=options.accept_risk)
    if (
        booking.guarantee is None
    ):  # an epsilon is booked before it is spent, all else before it leaves
        ledger.book(booking)
    sha256 = write_release(release, output, key=options.key)
    for file in (distillation.checkpoint, kept):
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
        hold_out: share of the rows kept apart, drawn with the configuration's seed.

    Returns:
        The rows to distil, and those held out.

    Raises:
        InputError: the file cannot be read, has no rows, or does not fit the schema.
    """
    if not 0 <= hold_out <= 0.5:
        raise InputError(f"hold_out = {hold_out:g}: must be from 0 to 0.5")
    n_rows = count_rows(path)
    if n_rows == 0:
        raise InputError(f"{path}: has no rows")
    apart = min(int(hold_out * n_rows), MOST_HELD_OUT)
    chosen = np.random.default_rng(config.seed).choice(n_rows, apart, replace=False)
    held_out: list[Encoded] = []
    parts = encode_chunks(read_chunks(path, schema), schema, source=str(path))
    real = gather(
        _kept_in(parts, np.sort(chosen), held_out),
        n_rows - apart,
        n_groups=len(schema.groups),
        intercept=config.intercept,
        source=str(path),
    )
    return real, Encoded(*(np.concatenate(fields) for fields in zip(*held_out, strict=True)))


def _kept_in(
    parts: Iterable[Encoded], chosen: np.ndarray, held_out: list[Encoded]
) -> Iterator[Encoded]:
    """The parts without the chosen rows, which are put into ``held_out``."""
    begin = 0
    for part in parts:
        here = chosen[(chosen >= begin) & (chosen < begin + len(part.y))] - begin
        held_out.append(Encoded(*(field[here] for field in part)))
        begin += len(part.y)
        yield Encoded(*(np.delete(field, here, axis=0) for field in part))


def _made(
    real: RealRows, run: Run, ledger: Ledger, output: Path, noise_seed: int | None
) -> tuple[Distillation, Booking, Path | None]:
    """A release that may not leave yet; how it is booked; and what keeps its measurements."""
    schema, config = run.schema, run.config
    private = config.epsilon is not None
    promised = promise(config, schema) if private and noise_seed is None else None
    penalty = make_penalty(config, n_groups=len(schema.groups))
    header = make_header(config, schema, model=LinearModel(), penalty=penalty, guarantee=promised)
    booking = Booking(output=output.name, run=fingerprint(real, header), guarantee=promised)
    if not private:
        ledger.require_affordable(booking)
        return distill_rows(real, **run._asdict()), booking, None
    kept = FitFile.beside(output, booking.run)
    fit = kept.load()
    if fit is None:  # else it was booked and bought, and the run then was interrupted
        require_feasible(schema, config)
        ledger.book(booking)
        noise = system_entropy if noise_seed is None else seeded(noise_seed)
        fit = measure(real.encoded, schema, config, noise=noise)
        kept.save(fit)
    return distill_fit(fit, run, secure=noise_seed is None), booking, kept.path


def _preview(
    distillation: Distillation, real: RealRows, held_out: Encoded, config: DistillConfig
) -> Preview:
    release, theta = distillation.release, distillation.theta
    n_groups = len(real.columns) - real.n_features + 1 - int(config.intercept)

    def scores(rows: Encoded) -> np.ndarray:
        inputs = make_rows(rows, n_groups=n_groups, intercept=config.intercept).a
        return np.asarray(LinearModel().scores(theta, inputs))

    synthetic = Encoded(release.x, release.s, release.y)
    return preview(synthetic, real.encoded, held_out, scores, seed=config.seed)


def _require_safe(release: Release, found: Preview, output: Path, *, accepted: bool) -> Release:
    """The release, with the risks that its sender accepts written into it."""
    if not found.risks:
        return release
    if not accepted:
        raise RefusedReleaseError(
            f"{output}: not written: {' '.join(found.risks)} --accept-risk writes it nevertheless,"
            " and the file says so",
            found,
        )
    privacy = release.header.privacy.model_copy(update={"accepted_risks": found.risks})
    header = release.header.model_copy(update={"privacy": privacy})
    return dataclasses.replace(release, header=header)
