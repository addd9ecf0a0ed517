"""Noisy answers about the real rows: the only code of a private release that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, reduce

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.mechanism import NoisySum, exact_integers, input_ball, require_float64
from synthfair.privacy.noise import RandomBytes

CHUNK = 2**14
"""Rows worked on at once: a million must not be copied as a whole."""


class PrivateQueries:
    """Sums over real rows, each through the Gaussian mechanism that the guarantee has for it.

    Guarantee: as given, whatever is asked, also where a question depends on answers. Unit: one row.
    Neighbouring relation: that of the guarantee. Every row's term is clipped to the bound that the
    schema implies and rounded to the grid, so that this holds for any rows, and any theta. Terms
    are computed of centred rows, which are shorter; answers are brought back to model inputs, which
    is post-processing.

    Args:
        real: the real rows.
        schema: theirs, public.
        guarantee: what may be asked, how often, and with how much noise.
        intercept: whether the model has one.
        group_input: whether it reads the groups.
        loss: of the margin, elementwise.
        source: of the noise.

    Raises:
        InputError: rows, or what JAX computes with, are not float64.
    """

    def __init__(
        self,
        real: Encoded,
        schema: Schema,
        guarantee: Guarantee,
        *,
        intercept: bool,
        group_input: bool,
        loss: Callable[[jax.Array], jax.Array],
        source: RandomBytes,
    ) -> None:
        """Prepares the noisy sums; reads no rows yet."""
        require_float64(real.x)
        if jnp.result_type(float) != np.float64:
            raise InputError("epsilon: needs float64; jax.config.update('jax_enable_x64', True)")
        self._real, self._intercept, self._slope = real, intercept, _slope(loss)
        self._n_groups = len(schema.groups)
        self._centre = input_ball(schema, group_input=group_input).centre
        self._n_read = self._n_groups if group_input else 1
        k = len(self._centre)
        # Model inputs a = turn b of centred rows b = (x, groups, 1) - (centre, 0).
        self._turn = np.eye(k + int(intercept), k + 1)
        self._turn[:k, -1] = self._centre
        self._sums = {
            mechanism.name: NoisySum(mechanism, guarantee.relation, source)
            for mechanism in guarantee.sums
        }

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of rows [G, 2], and sums of model inputs [G, 2, n], by cell; once.

        A cell is a pair of group and label; noise may make its number of rows negative.
        """
        noisy = self._cell_sums(self._sums["moments"], self._features)
        return noisy[..., -1], self._cell_inputs(noisy)

    def second_moment(self) -> np.ndarray:
        """[n, n] sum of a a' over model inputs a; once. Symmetric; noise may make it indefinite.

        Noise is added to the entries on and above the diagonal, whose norm is at most the Frobenius
        norm of the term b b', and that is at most the squared norm of b.
        """
        noisy_sum = self._sums["curvature"]
        squares = noisy_sum.terms.squares
        exact = reduce(np.add, (squares(self._inputs(part)) for part in self._parts()))
        upper = np.triu_indices(len(exact))
        noisy = np.zeros(exact.shape)
        noisy[upper] = noisy_sum.release(exact[upper])
        return self._turn @ (noisy + np.triu(noisy, 1).T) @ self._turn.T

    @np.errstate(over="ignore", invalid="ignore")
    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """[n] sum over rows of the gradients of the losses at theta, each clipped; every step."""
        noisy_sum = self._sums["gradients"]

        def terms(part: Encoded) -> np.ndarray:
            slope = part.y * np.asarray(self._slope(part.y * self._scores(part, theta)))
            return noisy_sum.terms.whole(slope[:, None] * self._inputs(part))

        sums = (exact_integers(terms(part).sum(axis=0)) for part in self._parts())
        exact = reduce(np.add, sums)
        return self._turn @ noisy_sum.release(exact)

    @np.errstate(over="ignore", invalid="ignore")
    def rates(self, theta: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Sums of sigma(tau z) [G, 2], and of their gradients [G, 2, n], by cell; every step.

        Only where the guarantee has a mechanism for it, as with the penalty on selection rates.
        """

        def terms(part: Encoded) -> np.ndarray:
            rate = 0.5 * (1 + np.tanh(temperature / 2 * self._scores(part, theta)))
            slope = temperature * rate * (1 - rate)
            return np.column_stack([rate, slope[:, None] * self._features(part)])

        noisy = self._cell_sums(self._sums["rates"], terms)
        return noisy[..., 0], self._cell_inputs(noisy[..., 1:])

    def _cell_sums(self, noisy_sum: NoisySum, terms: Callable[[Encoded], np.ndarray]) -> np.ndarray:
        """[G, 2, k] noisy sums of terms [N, k] over the rows of each cell."""

        def sums(part: Encoded) -> np.ndarray:
            whole, cell = noisy_sum.terms.whole(terms(part)), 2 * part.s + (part.y > 0)
            cells = range(2 * self._n_groups)
            return exact_integers(np.stack([whole[cell == c].sum(axis=0) for c in cells]))

        exact = reduce(np.add, map(sums, self._parts()))
        return noisy_sum.release(exact.reshape(self._n_groups, 2, -1))

    def _parts(self) -> Iterator[Encoded]:
        """Yields chunks, at least one: a table without rows must look like any."""
        for begin in range(0, max(1, len(self._real.y)), CHUNK):
            yield Encoded(*(field[begin : begin + CHUNK] for field in self._real))

    def _features(self, part: Encoded) -> np.ndarray:
        """[N, d + 1] centred features, and a 1."""
        return np.column_stack([part.x - self._centre[: part.x.shape[1]], np.ones(len(part.y))])

    def _inputs(self, part: Encoded) -> np.ndarray:
        """[N, k] centred features, groups where they are read, and a 1."""
        groups = part.s[:, None] == np.arange(1, self._n_read)
        rows = np.column_stack([part.x, groups]) - self._centre
        return np.column_stack([rows, np.ones(len(rows))])

    def _scores(self, part: Encoded, theta: np.ndarray) -> np.ndarray:
        """[N] scores a'theta, which are linear in centred inputs as well."""
        return self._inputs(part) @ self._turn.T @ theta

    def _cell_inputs(self, sums: np.ndarray) -> np.ndarray:
        """[G, 2, n] sums of model inputs from sums [G, 2, d + 1] of centred features and 1."""
        ones = sums[..., -1:]
        x = sums[..., :-1] + ones * self._centre[: sums.shape[-1] - 1]
        groups = ones * np.eye(self._n_groups)[:, None, 1 : self._n_read]
        return np.concatenate([x, groups, ones[..., : int(self._intercept)]], axis=-1)


@cache
def _slope(loss: Callable[[jax.Array], jax.Array]) -> Callable[[np.ndarray], jax.Array]:
    """The derivative of an elementwise loss, compiled once for all clients."""
    return jax.jit(jax.vmap(jax.grad(loss)))
