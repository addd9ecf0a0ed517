"""A client's surrogate as a release: what is sent where clients are unlike."""

from __future__ import annotations

from typing import NamedTuple

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.schema import Schema, Value
from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import Release, make_header
from synthfair.surrogate.make import Surrogate, make_surrogate
from synthfair.surrogate.sums import FirstPass


class SurrogateRelease(NamedTuple):
    """A surrogate release and how it was made.

    Attributes:
        release: weighted rows that stand in for the client's; the only part to send.
        left_out: (group, label) of the pairs with real rows, but fewer than ``k_min``. Private.
        rate_error: largest difference between a smooth rate of the release's rows and of the real
            ones, over the directions that were matched; not-a-number with moments alone. Private.
    """

    release: Release
    left_out: tuple[tuple[Value, Value], ...]
    rate_error: float


def surrogate_release(
    rows: Batches,
    schema: Schema,
    config: SurrogateConfig,
    *,
    known: FirstPass | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
) -> SurrogateRelease:
    """The surrogate release of some rows.

    Args:
        rows: encoded, in memory or a stream.
        schema: theirs.
        config: settings.
        known: the first reading of the rows, where it is there already.
        noise: where its bytes come from; other than the system's, it protects nothing.
        source: what to call the rows in errors.

    Raises:
        InputError: no pair of group and label has enough rows, or the settings do not fit.
    """
    try:
        made = make_surrogate(rows, config, n_groups=len(schema.groups), known=known)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return _released(made, schema, config)


def _released(made: Surrogate, schema: Schema, config: SurrogateConfig) -> SurrogateRelease:
    header = make_header(config, schema, model=LinearModel())
    release = Release(header, schema.encoded_names, *made.table)
    named = tuple(
        (schema.groups[group], schema.positive if label > 0 else schema.negative)
        for group, label in made.left_out
    )
    return SurrogateRelease(release, named, made.rate_error)
