"""The convolutional network of Rodríguez-Gálvez et al. (2021), section 4.2."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

SIDE = 5
STRIDE = 2


class Convolution(eqx.Module):
    """A 5 x 5 convolution with stride 2, as one product with the image's patches.

    Under a derivative for every user, XLA turns convolutions into grouped ones, which take over
    ten times as long on a CPU.
    """

    conv: eqx.nn.Conv2d

    def __init__(self, n_in: int, n_out: int, key: jax.Array) -> None:
        """Weights as equinox makes them."""
        self.conv = eqx.nn.Conv2d(n_in, n_out, SIDE, STRIDE, key=key)

    def __call__(self, image: jax.Array) -> jax.Array:
        """Of [n_in, s, s], [n_out, s', s'] with s' = (s - 5) // 2 + 1."""
        weights, bias = self.conv.weight, self.conv.bias
        patches, side = patches_of(image)
        product = weights.reshape(len(weights), -1) @ patches
        return product.reshape(-1, side, side) + (0.0 if bias is None else bias)


def patches_of(image: jax.Array) -> tuple[jax.Array, int]:
    """[n_in 25, s' s'] the pixels under each weight, and s'."""
    side = (image.shape[1] - SIDE) // STRIDE + 1
    reach = STRIDE * (side - 1) + 1
    shifts = [
        image[:, i : i + reach : STRIDE, j : j + reach : STRIDE]
        for i in range(SIDE)
        for j in range(SIDE)
    ]
    return jnp.stack(shifts, axis=1).reshape(-1, side * side), side


class Digits(eqx.Module):
    """Two convolutions with 32 and 64 filters, 100 hidden units, and ten scores."""

    first: Convolution
    second: Convolution
    hidden: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        """Random weights."""
        keys = jax.random.split(key, 4)
        self.first = Convolution(3, 32, keys[0])
        self.second = Convolution(32, 64, keys[1])
        self.hidden = eqx.nn.Linear(64 * 4 * 4, 100, key=keys[2])
        self.last = eqx.nn.Linear(100, 10, key=keys[3])

    def __call__(self, image: jax.Array) -> jax.Array:
        """[10] scores of an image [3, 28, 28]."""
        filtered = jax.nn.relu(self.second(jax.nn.relu(self.first(image))))
        return self.last(jax.nn.relu(self.hidden(filtered.ravel())))


def build(key: jax.Array) -> Digits:
    """For :class:`synthfair.federated.networks.Network`."""
    return Digits(key)
