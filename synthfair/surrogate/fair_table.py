"""A table on which weighted logistic regression, with the C that it names, gives the fair model.

At its optimum a penalty pulls each score as other labels would: with p_i = sigma(a_i'theta) and
q_i = rho d penalty / d z_i,

    sum_i (w_i / W) (p_i - t_i) a_i + ridge theta = 0,      t_i = (1 + y_i)/2 - q_i W / w_i,

which is the condition of ordinary training on labels that are +1 with weight w_i t_i and -1 with
weight w_i (1 - t_i). Where t_i is not from 0 to 1, a single label of another weight pulls alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Rows


class FairTable(NamedTuple):
    """Weighted rows for ordinary training; ``LogisticRegression(C=table.C, fit_intercept=False)``.

    Attributes:
        a: [M, n] model inputs, the 1 of an intercept among them.
        y: [M] labels, -1 or +1.
        weight: [M] positive.
        C: inverse of the regularisation, in scikit-learn's units:
            min over theta  C sum_i weight_i l(y_i a_i'theta) + ||theta||^2 / 2.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.array([[0.2, 1.0], [0.7, 1.0]]), np.array([0, 1]), np.array([-1.0, 1.0])
        >>> rows, penalty = sf.Rows(a, s, y, weight=np.array([1.0, 3.0])), sf.CovariancePenalty()
        >>> table = sf.surrogate.make_fair_table(
        ...     rows, np.zeros(2), penalty, rho=0.0, lambda_theta=1.0
        ... )
        >>> table.y.tolist(), table.weight.tolist(), table.C  # without a penalty, the rows
        ([1.0, -1.0], [3.0, 1.0], 1.0)
    """

    a: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    C: float


def make_fair_table(
    rows: Rows, theta: np.ndarray, penalty: Penalty, *, rho: float, lambda_theta: float
) -> FairTable:
    """The table for the optimum theta of a global problem with the logistic loss.

    Args:
        rows: [N] of the problem.
        theta: [n] its optimum, :func:`train_fair`; the table is as exact as this is stationary.
        penalty: as there.
        rho: as there.
        lambda_theta: as there.

    Returns:
        At most 2 N rows; each of the problem's is there once or, with both labels, twice.

    Raises:
        InputError: a score is so large that its row would need an infinite weight.

    Example:
        >>> import jax, numpy as np
        >>> import synthfair as sf
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng, model, penalty = np.random.default_rng(0), sf.LinearModel(), sf.CovariancePenalty()
        >>> s, y = rng.integers(2, size=300), rng.choice([-1.0, 1.0], 300)
        >>> a = np.column_stack([rng.random(300) + 0.3 * s + 0.3 * y, s, np.ones(300)])
        >>> with jax.enable_x64(True):
        ...     rows = sf.Rows(a, s, y, rng.random(300))
        ...     fair = sf.surrogate.train_fair(rows, 1e-3, 10.0, model=model, penalty=penalty)
        ...     table = sf.surrogate.make_fair_table(
        ...         rows, fair.params, penalty, rho=10.0, lambda_theta=1e-3
        ...     )
        ...     theta = np.asarray(fair.params)
        >>> trainer = LogisticRegression(
        ...     C=table.C, fit_intercept=False, solver="newton-cholesky", tol=1e-10
        ... )
        >>> found = trainer.fit(table.a, table.y, sample_weight=table.weight).coef_[0]
        >>> bool(np.abs(found - theta).max() < 1e-6)
        True
    """
    a, y = np.asarray(rows.a, float), np.asarray(rows.y, float)
    weight = np.ones(len(y)) if rows.weight is None else np.asarray(rows.weight, float)
    present = weight > 0
    with jax.enable_x64(True):
        scores = jnp.asarray(a @ np.asarray(theta))
        pull = rho * np.asarray(jax.grad(penalty)(scores, rows))[present]
        # 1 - p would be 0 for a score of 40.
        p, other = (np.asarray(jax.nn.sigmoid(z))[present] for z in (scores, -scores))
    a, y, w = a[present], y[present], weight[present]
    target = (1 + y) / 2 - pull * w.sum() / w
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        up = np.where(target > 1, w * (target - p) / other, w * target)
        down = np.where(target < 0, w * (p - target) / p, w * (1 - target))
    both = np.concatenate([np.maximum(up, 0.0), np.maximum(down, 0.0)])
    if not np.isfinite(both).all():
        raise InputError("scores are so large that no weights give the fair model")
    present = both > 0
    labels = np.repeat([1.0, -1.0], len(y))
    c = a.shape[1] ** 2 / (lambda_theta * float(w.sum()))
    return FairTable(np.concatenate([a, a])[present], labels[present], both[present], c)
