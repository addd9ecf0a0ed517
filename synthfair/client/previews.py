"""The checks of a release against its real rows, before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import jax
import numpy as np

from synthfair.client.distillation import Distillation
from synthfair.data.encode import Encoded, encode_records
from synthfair.data.real_rows import RealRows, other_inputs
from synthfair.data.schema import Schema
from synthfair.distill.inner import train
from synthfair.model import LinearModel
from synthfair.release.format import Release
from synthfair.surrogate.table import WeightedTable

if TYPE_CHECKING:
    from synthfair.privacy.gate import Preview


def of_both(trial: Preview, final: Preview) -> Preview:
    """What was found of a release, and, where held-out rows are needed, of a trial without them."""
    names = "n_held_out", "distances", "attacks"
    return final._replace(**{name: getattr(trial, name) for name in names})


def preview_fair(
    distillation: Distillation, real: RealRows, held_out: Encoded, schema: Schema
) -> Preview:
    """The checks of a fair release, by the scores of the model that is trained on it."""
    from synthfair.privacy.gate import preview  # SciPy takes a while, and others come first

    release, theta = distillation.release, np.asarray(distillation.theta)
    config, n_groups = distillation.config, len(schema.groups)

    def scores(rows: Encoded) -> np.ndarray:
        others = other_inputs(rows.s, n_groups=n_groups, intercept=config.intercept)
        return theta @ np.concatenate([rows.x.T, others])

    synthetic = Encoded(release.x, release.s, release.y)
    return preview(synthetic, real.encoded, held_out, scores, seed=config.seed)


def preview_surrogate(
    release: Release, real: Encoded, held_out: Encoded, schema: Schema
) -> Preview:
    """The checks of records, by the scores of the model that is trained on them."""
    from synthfair.privacy.gate import preview

    x, n_groups = encode_records(release.x, schema), len(schema.groups)
    table = WeightedTable(x, release.s, release.y, cast(np.ndarray, release.weight))
    with jax.enable_x64(True):
        plain = train(table.rows(n_groups=n_groups), 1e-3, model=LinearModel())  # as anybody can
    theta = np.asarray(plain.params)

    def scores(some: Encoded) -> np.ndarray:
        weighted = WeightedTable(*some, weight=np.ones(len(some.y)))
        return np.asarray(weighted.rows(n_groups=n_groups).a) @ theta

    return preview(
        Encoded(*table[:3]),
        real,
        held_out,
        scores,
        seed=release.header.config.seed,
        records=True,
    )
