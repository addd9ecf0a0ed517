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
from synthfair.privacy.statement import make_guarantee
from synthfair.release.format import Release, make_header
from synthfair.surrogate.make import Plan, Sums, make_surrogate, surrogate_of


class SurrogateRelease(NamedTuple):
    """A surrogate release and how it was made.

    Attributes:
        release: weighted records that stand in for the client's; the only part to send.
        left_out: the pairs of group and label with real rows, but fewer than ``k_min``, in words.
            Private, unless noisy numbers decided.
        rate_error: largest difference between a smooth rate of the release's records and of the
            real rows, or with epsilon the noisy one, over the models that were matched. Private.
    """

    release: Release
    left_out: tuple[str, ...]
    rate_error: float


def surrogate_release(
    rows: Batches,
    schema: Schema,
    config: SurrogateConfig,
    *,
    sums: Sums | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    on_stage: Callable[[str], None] | None = None,
) -> SurrogateRelease:
    """The surrogate release of some rows.

    Args:
        rows: encoded, in memory or a stream.
        schema: theirs.
        config: settings; with epsilon, real rows are read through noisy sums alone.
        sums: what was read of the rows, with noise, if there already; then they are not read.
        noise: where the bytes of noise come from; other than the system's, it protects nothing.
        source: what to call the rows in errors.
        on_stage: called with what is done next, in a few words.

    Raises:
        InputError: no pair of group and label has enough rows.
    """
    try:
        if sums is None:
            made = make_surrogate(rows, config, schema, noise=noise, on_stage=on_stage)
        else:
            made = surrogate_of(sums, Plan(config, schema))
    except InputError as error:
        raise type(error)(f"{source}: {error}") from error
    private = config.epsilon is not None and noise is system_entropy
    guarantee = make_guarantee(config, schema) if private else None
    header = make_header(config, schema, model=LinearModel(), guarantee=guarantee)
    names = tuple(schema.features)
    release = Release(header, names, made.records, made.s, made.y, made.weight)
    left_out = tuple(schema.pair(*pair) for pair in made.left_out)
    return SurrogateRelease(release, left_out, made.rate_error)
