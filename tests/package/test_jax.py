"""JAX computes what NumPy does; jax 0.10.2 did not on CPU (jax-ml/jax#39103)."""

import subprocess
import sys

CHECK = """
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
for dtype, n in ("float64", 16_385), ("float32", 32_769):
    rows = np.zeros((n, 3), dtype)
    rows[:, 0] = np.arange(n)
    eye = jnp.eye(3, dtype=dtype)
    lengths = jax.jit(jax.vmap(lambda row: jnp.sum((eye @ row) ** 2)))(rows)
    np.testing.assert_allclose(lengths, (rows**2).sum(axis=1), rtol=1e-6, err_msg=dtype)
"""


def test_vmapped_matrix_vector_product_then_reduction():
    """In a process of its own: conftest turns off the optimisations that were wrong."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
