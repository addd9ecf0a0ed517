"""JAX computes what NumPy does; jax 0.10.2 did not on CPU (jax-ml/jax#39103)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize(("dtype", "n"), [(np.float64, 16_385), (np.float32, 32_769)])
def test_vmapped_matrix_vector_product_then_reduction(dtype, n):
    rows = np.zeros((n, 3), dtype)
    rows[:, 0] = np.arange(n)
    eye = jnp.eye(3, dtype=dtype)
    lengths = jax.jit(jax.vmap(lambda row: jnp.sum((eye @ row) ** 2)))(rows)
    np.testing.assert_allclose(lengths, (rows**2).sum(axis=1), rtol=1e-6)
