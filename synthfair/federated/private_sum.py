"""The sum of a cohort's reports: the only thing that the server sees of the users' rows.

Each report is clipped as one vector, and noise is added to the sum, as by a trusted third party or
within secure aggregation. This is the one place for both. Rodríguez-Gálvez et al. (2021),
algorithm 1; McMahan et al. (2018).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.federated.algorithm import Report, require_at_least_0, require_positive


class Protection(NamedTuple):
    """How reports are protected.

    A sum of clipped reports to which noise of this standard deviation is added is one Gaussian
    mechanism. Unit: one user, with all its rows. Sensitivity: ``clip`` where neighbouring
    populations differ by one user more or less, twice that where one user is replaced.

    Attributes:
        clip: Euclidean norm that no report exceeds, or None: then none is changed.
        noise: standard deviation of what is added to each entry of the sum; 0 for none.
    """

    clip: jax.Array | float | None = None
    noise: jax.Array | float = 0.0


UNPROTECTED = Protection()
"""Nothing is clipped and no noise is added."""


def require_bounded(protection: Protection) -> None:
    """Refuses noise on a sum that no clip bounds, and numbers that are none. Raises InputError."""
    clip, noise = protection.clip, float(protection.noise)
    require_at_least_0(noise=noise)
    if clip is not None:
        require_positive(clip=float(clip))
    elif noise > 0:
        raise InputError(f"noise = {noise}: needs a clip; without one it protects nobody")


def clip_report(report: Report, clip: jax.Array | float | None) -> Report:
    """A report v as v min(1, clip / |v|); one without a finite norm becomes 0."""
    if clip is None:
        return report
    flat, unravel = ravel_pytree(report)
    norm = jnp.linalg.norm(flat)
    factor = clip / jnp.maximum(norm, clip)
    return unravel(jnp.where(jnp.isfinite(norm), flat * factor, 0.0))


def add_noise(total: Report, noise: jax.Array | float, key: jax.Array) -> Report:
    """The sum with Gaussian noise in every entry."""
    flat, unravel = ravel_pytree(total)
    return unravel(flat + noise * jax.random.normal(key, flat.shape, flat.dtype))
