"""Weights of releases, learned with a small table that the server trusts.

One upload leaves no second chance: a client that exchanges groups or labels moves everybody's
model. With m rows of its own, too few to train on, a server learns how much each of K releases
counts, by a bilevel problem:

    min over alpha   F(theta(w)) + sum_k w_k F(theta_k) + mu sum_k w_k log(w_k / share_k)
    w = softmax(alpha),   mu = PRIOR_WEIGHT/m + n/N
    theta(w) = argmin over theta   sum_k w_k loss(theta; release k) + lambda/(2 n^2) ||theta||^2

It is the distillation's problem with weights in place of synthetic features: the derivative of
theta(w) takes one solve with the Hessian of the inner problem, and L-BFGS moves alpha. F is the
mean loss on the trusted rows; theta_k is the model of release k alone; share_k is the release's
share of all rows, where the search starts, and at most that of MAX_PRIOR_MEDIANS medians: who
claims more is not pulled towards it; N is the mean number of rows of a release.

The first term asks whether the releases do well together. The second asks it of each by itself, as
a PAC-Bayes bound does: where a tenth of the rows are false, few trusted rows hardly tell the model
from a good one, but they tell a false release from a good one. The third, the entropy relative to
the shares, holds the weights of honest clients, between which there are chance differences alone:
the more, the fewer rows the server has, or the clients for the n inputs of a model; n/N is twice
what the loss of a model of N rows is expected to be above the least.

With fair releases F has the penalty that their clients chose, as these differ in little else. With
surrogates it has none: the gap of 200 rows is off by some 0.07 by chance, and fairness is asked of
the weighted releases afterwards. There, F is the loss of the model of the label and the mean loss
of models of each attribute's groups, given the features and the label, in which exchanged groups
show.

After the idea of Wu, Curtis and Robinson (2026), *Robust Server Defense Against Unreliable Clients
in One-Shot Fair Collaborative Machine Learning*, arXiv 2605.08616; this formulation is our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, softmax

from synthfair.errors import InputError
from synthfair.fairness.penalties import Grouping
from synthfair.surrogate.fair import SEARCH_ROWS, GlobalProblem, Price, cholesky_solve

PRIOR_WEIGHT = 6.0
"""Weight of the prior, the releases' shares of rows; chosen on simulated honest federations."""

MAX_PRIOR_MEDIANS = 3.0
"""The largest share in the prior, in medians of the releases' shares."""

MAX_TRUST_STEPS = 50
"""The largest number of steps of L-BFGS."""

MIN_TRUST = 0.1
"""The count of a row below which its release is named: few honest clients fall so low by chance."""

WITHOUT_PENALTY = Price(0.0)
"""Releases are weighed without a penalty on their own rows."""


def learn_weights(
    problem: GlobalProblem,
    parts: Mapping[str, slice],
    trusted: GlobalProblem,
    *,
    rho: float,
    n_features: int,
    groupings: Sequence[Grouping],
) -> np.ndarray:
    """Return what a row of each release counts, w_k / share_k [K]; together as much as before.

    Args:
        problem: of the rows of all releases.
        parts: which of them are whose, by name.
        trusted: the problem of the server's own rows, without a ridge; its penalty is that of the
            clients.
        rho: weight of that penalty, of fair releases; 0 of surrogates.
        n_features: number of features, the first of the model's inputs.
        groupings: of each attribute of surrogates, the group of each index s; of fair releases
            none.

    Raises:
        InputError: a release's own model diverges.
    """
    k = len(parts)
    owner = np.repeat(np.arange(k), [rows_of.stop - rows_of.start for rows_of in parts.values()])
    shares = np.bincount(owner, problem.w, k)
    # Of many rows a part stands for all.
    few = replace(problem, client=owner).sample(SEARCH_ROWS)
    owner = np.asarray(few.client)
    few = replace(few, client=None)

    # The model of the label, and of surrogates those of the groups, given features and label.
    groups = [(each, g) for each in groupings for g in range(1, max(each) + 1)]
    models = [(few, trusted, Price(rho), 1.0)]
    for each in groups:
        rows, held = (of_group(problem, *each, n_features) for problem in (few, trusted))
        models.append((rows, held, WITHOUT_PENALTY, 1 / len(groups)))

    def train(
        rows: GlobalProblem, w: np.ndarray, start: np.ndarray
    ) -> tuple[GlobalProblem, np.ndarray]:
        """Return a problem with weights w [K] of the releases, and its solution."""
        weighted = rows.changed(weight=rows.w * (w / shares)[owner])
        return weighted, weighted.newton(start, WITHOUT_PENALTY).theta

    # F of the model of each release alone; of one label, or group, nothing can be learned alone:
    # that release is as the others.
    thetas = [train(rows, shares, rows.zero)[1] for rows, *_ in models]
    alone = np.zeros(k)
    for (rows, held, price, times), theta in zip(models, thetas, strict=True):
        by_itself = (_alone(rows, owner == i, theta) for i in range(k))
        loss = np.array([held.slope(theta, price)[0] for theta in by_itself])
        pair = 2 * owner + (rows.y > 0)
        both = (np.bincount(pair[rows.w > 0], minlength=2 * k).reshape(-1, 2) > 0).all(axis=1)
        expected = loss[both].mean() if both.any() else 0.0
        alone += times * np.where(both | ~both.any(), loss, expected)
    if not (finite := np.isfinite(alone)).all():
        name = [*parts][int(np.argmin(finite))]
        raise InputError(f"{name}: a model of its rows alone diverges; leave the release out")
    mu = PRIOR_WEIGHT / len(trusted.y) + len(thetas[0]) * k / problem.weight.sum()
    target = np.minimum(shares, MAX_PRIOR_MEDIANS * np.median(shares))
    target /= target.sum()

    def objective(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        w = softmax(alpha)
        logarithm = np.log(np.maximum(w, np.finfo(float).tiny) / target)
        value, by_w = w @ (alone + mu * logarithm), alone + mu * (logarithm + 1)
        for m, (rows, held, price, times) in enumerate(models):
            weighted, thetas[m] = train(rows, w, thetas[m])
            loss, slope = held.slope(thetas[m], price)
            # -(dG/dw)' H^-1 F': the gradient of a row's loss, times its change of theta.
            v = cholesky_solve(weighted.hessian(thetas[m], WITHOUT_PENALTY)[1], slope)
            z = rows.inputs @ thetas[m]
            by_row = -rows.y * expit(-rows.y * z) * (rows.inputs @ v) * rows.w / shares[owner]
            value, by_w = value + times * loss, by_w - times * np.bincount(owner, by_row, k)
        return float(value), w * (by_w - w @ by_w)

    options = {"maxiter": MAX_TRUST_STEPS, "ftol": 1e-9}
    end = minimize(objective, np.log(target), jac=True, method="L-BFGS-B", options=options)
    return softmax(end.x) / shares


def _alone(problem: GlobalProblem, mask: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the solution [p] on a part of the rows."""
    a, s, y, w = (of[mask] for of in (problem.inputs, problem.s, problem.y, problem.w))
    return replace(problem, a=a, s=s, y=y, weight=w).newton(start, WITHOUT_PENALTY).theta


def of_group(
    problem: GlobalProblem, grouping: Grouping, group: int, n_features: int
) -> GlobalProblem:
    """Return the problem whose label is whether a row is of a group, given features and label."""
    x = problem.inputs[:, :n_features]
    label_columns = np.column_stack([problem.y, np.ones(len(problem.y))])
    a = sp.hstack([x, label_columns]).tocsr() if sp.issparse(x) else np.hstack([x, label_columns])
    ridge = np.append(np.full(n_features + 1, problem.ridge[0]), 0.0)
    is_in = np.array(grouping)[problem.s] == group
    return replace(problem, a=a, y=np.where(is_in, 1.0, -1.0), ridge=ridge)
