"""The checks of a release against its real rows, before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from synthfair.client.distillation import Distillation
from synthfair.data.batches import RealRows, other_inputs
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema

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
