"""F(theta) from private releases: it holds no rows, and what follows is post-processing."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from synthfair.model import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PrivateObjective:
    """F(theta) = 1/2 (theta - target)' curvature (theta - target).

    The quadratic model, at its minimum, of the loss and the penalty on the real rows.

    Attributes:
        target: [n] theta that was found privately.
        curvature: [n, n], positive definite.
        moments: [C, n] m with C_g(theta) = m'theta, the covariances of group and score.
    """

    target: jax.Array
    curvature: jax.Array
    moments: jax.Array

    def __call__(self, params: Params) -> jax.Array:
        """F(theta)."""
        difference = params - self.target
        return 0.5 * difference @ self.curvature @ difference

    def covariance(self, params: Params) -> jax.Array:
        """The largest covariance of group and score by the noisy moments, signed."""
        covariances = self.moments @ params
        return covariances[jnp.argmax(jnp.abs(covariances))]

    def gap(self, params: Params) -> jax.Array:  # noqa: ARG002 - as Objective has it
        """Not-a-number: to count decisions would need the rows."""
        return jnp.full((), jnp.nan, self.target.dtype)
