"""A client's surrogate as a release: what is sent where clients are unlike."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.private_sums import PrivateSums
from synthfair.privacy.statement import make_guarantee
from synthfair.release.format import Release, make_header
from synthfair.surrogate.make import make_surrogate
from synthfair.surrogate.private import Noise, make_private_surrogate, private_surrogate
from synthfair.surrogate.sums import CellSums


class SurrogateRelease(NamedTuple):
    """A surrogate release and how it was made.

    Attributes:
        release: weighted rows that stand in for the client's; the only part to send.
        left_out: the pairs of group and label with real rows, but fewer than ``k_min``, in words.
            Private.
        rate_error: largest difference between a smooth rate of the release's rows and of the real
            ones, over the directions that were matched; not-a-number with moments alone. Private.
    """

    release: Release
    left_out: tuple[str, ...]
    rate_error: float


def surrogate_release(
    rows: Batches,
    schema: Schema,
    config: SurrogateConfig,
    *,
    known: CellSums | PrivateSums | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    on_stage: Callable[[str], None] | None = None,
) -> SurrogateRelease:
    """The surrogate release of some rows.

    Args:
        rows: encoded, in memory or a stream.
        schema: theirs.
        config: settings; with epsilon, real rows are read through noisy sums alone.
        known: the first reading of the rows, or with epsilon the noisy sums, if there already.
        noise: where the bytes of noise come from; other than the system's, it protects nothing.
        source: what to call the rows in errors.
        on_stage: called with what is done next, in a few words.

    Raises:
        InputError: no pair of group and label has enough rows, or the settings do not fit.
    """
    try:
        if config.epsilon is None:
            first = known if isinstance(known, CellSums) else None
            made = make_surrogate(rows, config, schema, known=first, on_stage=on_stage)
        elif isinstance(known, PrivateSums):
            noises: Noise = {m.name: m.noise for m in make_guarantee(config, schema).mechanisms}
            made = private_surrogate(known, noises, config, schema)
        else:
            made = make_private_surrogate(rows, config, schema, noise=noise)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    private = config.epsilon is not None and noise is system_entropy
    guarantee = make_guarantee(config, schema) if private else None
    header = make_header(config, schema, model=LinearModel(), guarantee=guarantee)
    release = Release(header, schema.encoded_names, *made.table)
    left_out = tuple(schema.pair(*pair) for pair in made.left_out)
    return SurrogateRelease(release, left_out, made.rate_error)
