"""The points that are nearest to rows, in few dimensions and in many."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

THREADS = 2
"""That a tree is searched by."""

FEW_COLUMNS = 20
"""In which a tree is quicker; in more it visits nearly all points."""

SPARE = 4
"""Candidates of each row beyond those asked for, as rounding may confuse points equally near."""

CELLS = 2**22
"""Distances that are held at once."""


def nearest(points: np.ndarray, rows: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the k nearest points of each row.

    In many columns, the candidates are those with the least ``|p|^2 - 2 r.p``, a product of
    matrices; of these, distances are computed from differences. Where more than ``k + SPARE``
    points are equally near but for 1e-7, any of them is found.

    Args:
        points: [n, d].
        rows: [N, d].
        k: how many.

    Returns:
        Twice [N], or [N, k] from the nearest on for k > 1; where there are fewer points, infinity
        and n.

    Example:
        >>> import numpy as np
        >>> from synthfair.privacy.nearest import nearest
        >>> distances, positions = nearest(np.eye(30), 0.5 * np.eye(30)[:2])
        >>> distances.tolist(), positions.tolist()
        ([0.5, 0.5], [0, 1])
    """
    if points.shape[1] <= FEW_COLUMNS:
        distances, positions = KDTree(points).query(rows, k=k, workers=THREADS)
        return np.asarray(distances), np.asarray(positions)
    n, shape = len(points), (len(rows), k)
    distances, positions = np.full(shape, np.inf), np.full(shape, n)
    squares = np.einsum("ij,ij->i", points, points)
    step, found = max(1, CELLS // n), min(k, n)
    for begin in range(0, len(rows), step):
        here = slice(begin, begin + step)
        candidates = _candidates(points, squares, rows[here], min(k + SPARE, n))
        exact = np.linalg.norm(points[candidates] - rows[here, None], axis=2)
        order = np.argsort(exact, axis=1, kind="stable")[:, :found]
        distances[here, :found] = np.take_along_axis(exact, order, axis=1)
        positions[here, :found] = np.take_along_axis(candidates, order, axis=1)
    return (distances[:, 0], positions[:, 0]) if k == 1 else (distances, positions)


def _candidates(points: np.ndarray, squares: np.ndarray, rows: np.ndarray, some: int) -> np.ndarray:
    """[N, some] positions of points that are near, in no order."""
    distances = squares - 2 * rows @ points.T
    return np.argpartition(distances, some - 1, axis=1)[:, :some]
