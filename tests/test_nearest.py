"""The nearest points by products of matrices are those of a tree."""

import numpy as np
import pytest
from scipy.spatial import KDTree

from synthfair.privacy import gate as module
from synthfair.privacy.gate import FEW_COLUMNS, nearest

RNG = np.random.default_rng(0)
D = FEW_COLUMNS + 1


def categories(n):
    """Rows of which many are equal, or equally near."""
    return np.hstack([np.eye(D - 1)[RNG.integers(D - 1, size=n)], RNG.integers(2, size=(n, 1))])


@pytest.mark.parametrize("make", [lambda n: RNG.random((n, D)), categories])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 5, 400])
def test_distances_are_those_of_a_tree(monkeypatch, make, k, n):
    monkeypatch.setattr(module, "CELLS", 7 * n)  # 50 rows are no multiple of 7
    points = make(n)
    rows = np.vstack([make(40), points[RNG.integers(n, size=10)]])
    expected, _ = KDTree(points).query(rows, k=k)
    distances, positions = nearest(points, rows, k)
    assert positions.shape == distances.shape == ((50,) if k == 1 else (50, k))
    np.testing.assert_allclose(distances, expected, atol=1e-12)
    known = positions < n  # any of several that are equally near
    assert (known == np.isfinite(distances)).all()
    row = np.nonzero(known)[0]
    of_positions = np.linalg.norm(points[positions[known]] - rows[row], axis=1)
    np.testing.assert_allclose(of_positions, distances[known], atol=1e-12)
    if k > 1 and n > 1:
        assert (np.diff(np.sort(positions[:, : min(k, n)], axis=1), axis=1) > 0).all()


def test_rounding_of_squares_does_not_confuse_points_that_are_nearly_equal():
    """|p|^2 - 2 r.p of these differs by less than its rounding; their distances do not."""
    rows = 1000 * RNG.random((1, D))
    points = rows + np.array([5e-7, 1e-7, 2e-7, 3e-7, 4e-7])[:, None]
    _, positions = nearest(points, rows, k=3)
    assert positions.tolist() == [[1, 2, 3]]
