"""Weights of releases, learned with a small table that the server trusts.

One upload leaves no second chance: a client that exchanges groups or labels moves everybody's
model. With m rows of its own, too few to train on, a server learns how much each of K releases
counts, by a bilevel problem:

    min over alpha   F(theta(w)) + sum_k w_k F(theta_k) + mu sum_k w_k log(w_k / share_k)
    w = softmax(alpha),   mu = PULL/m + n/N
    theta(w) = argmin over theta   sum_k w_k loss(theta; release k) + lambda/(2 n^2) ||theta||^2

It is the distillation's problem with weights in place of synthetic features: the inner solver and
the implicit derivative are the same, Adam moves alpha. F is the mean loss on the trusted rows;
theta_k is the model of release k alone; share_k is the release's share of all rows, where Adam
starts; N is the mean number of rows of a release.

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
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax

from synthfair.distill.losses import mean_loss, regularized_hessian, regularized_loss
from synthfair.distill.problem import implicit_vjp
from synthfair.distill.solvers import Cholesky, Function, Newton, default_tolerance
from synthfair.errors import InputError
from synthfair.fairness.penalties import Grouping, Penalty
from synthfair.model import LinearModel, Rows, padded
from synthfair.surrogate.fair_training import thinned

PULL = 6.0
"""Of the weights towards the shares of rows; chosen on simulated federations of honest clients."""

STEPS, RATE = 50, 0.2
"""Of Adam."""

LITTLE = 0.1
"""A release whose rows count less is named: of honest clients few fall so low by chance."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeightProblem:
    """What the weights w [K] of K releases are learned from, for one model.

    Attributes:
        rows: of all releases, weighted.
        owner: [N] the release of each row.
        shares: [K] of the releases in the weight of all rows; their sum is 1.
        trusted: rows of the server's own, weighted.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        rho: weight of the penalty on the trusted rows.
        penalty: of scores there; or None.
    """

    rows: Rows
    owner: jax.Array
    shares: jax.Array
    trusted: Rows
    lambda_theta: jax.Array | float
    rho: jax.Array | float
    penalty: Penalty | None = field(metadata={"static": True})

    def inner(self, w: jax.Array) -> Function:
        """Regularised loss on the releases, weighted by w [K], as a function of theta [n]."""
        weight = jnp.asarray(self.rows.weight) * (w / self.shares)[self.owner]
        rows, ridge = self.rows._replace(weight=weight), self.lambda_theta
        return Function(
            lambda theta: regularized_loss(LinearModel(), theta, rows, ridge),
            lambda theta: regularized_hessian(LinearModel(), theta, rows, ridge),
        )

    def outer(self, theta: jax.Array) -> jax.Array:
        """F(theta), on the trusted rows."""
        scores = LinearModel().scores(theta, self.trusted.a)
        loss = mean_loss(LinearModel(), scores, self.trusted)
        return loss + (self.rho * self.penalty(scores, self.trusted) if self.penalty else 0.0)


@jax.jit
def _train(problem: WeightProblem, w: jax.Array, start: jax.Array) -> jax.Array:
    """Theta(w) [n], from a start nearby."""
    return Newton(default_tolerance()).minimise(problem.inner(w), start).params


@jax.jit
def hypergradient(
    problem: WeightProblem, alpha: jax.Array, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Theta(softmax(alpha)) [n], from a start nearby, and the gradient of F there in alpha [K]."""
    w = jax.nn.softmax(alpha)
    theta = _train(problem, w, start)
    c = jax.grad(problem.outer)(theta)
    v, _, _ = Cholesky().solve(problem.inner(w), theta, c, theta)
    inner = lambda theta, alpha: problem.inner(jax.nn.softmax(alpha)).value(theta)  # noqa: E731
    return theta, implicit_vjp(inner, theta, alpha, v)


def learn_weights(
    rows: Rows,
    parts: Mapping[str, slice],
    trusted: Rows,
    *,
    lambda_theta: float,
    penalty: Penalty | None,
    rho: float,
    n_features: int,
    n_groups: int,
    groupings: Sequence[Grouping],
) -> np.ndarray:
    """[K] what a row of each release counts, w_k / share_k; all together as much as before.

    Args:
        rows: of all releases.
        parts: which of them are whose, by name.
        trusted: rows of the server's own.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        penalty: of fair releases, that of their clients; None of surrogates.
        rho: its weight.
        n_features: number of features, the first of the model's inputs; the groups' follow.
        n_groups: number of groups.
        groupings: of each attribute, the group of each of these.

    Raises:
        InputError: a release's own model diverges.
    """
    weight = np.ones(len(rows.y)) if rows.weight is None else np.asarray(rows.weight, float)
    owner = np.repeat(np.arange(len(parts)), [part.stop - part.start for part in parts.values()])
    shares = np.bincount(owner, weight) / weight.sum()
    # Of many rows of a release, group and label a part stands for all.
    s = np.asarray(rows.s) + n_groups * owner
    few = padded(thinned(rows._replace(s=s, weight=weight)))  # type: ignore[arg-type]
    owner, few, own = few.s // n_groups, few._replace(s=few.s % n_groups), padded(trusted)

    def of_group(rows: Rows, grouping: Grouping, group: int) -> Rows:
        """Whether a row is of the group is its label, and the label is an input in its place."""
        a, is_in = np.array(rows.a), np.array(grouping)[rows.s] == group
        a[:, n_features : n_features + n_groups - 1] = np.asarray(rows.y)[:, None]
        return rows._replace(a=a, y=np.where(is_in, 1.0, -1.0))  # type: ignore[arg-type]

    with jax.enable_x64(True):
        # The model of the label, and of surrogates those of the groups.
        groups = [(each, g) for each in groupings for g in range(1, max(each) + 1)]
        pairs, times = [(few, own)], [1.0]
        if penalty is None:
            pairs += [(of_group(few, *each), of_group(own, *each)) for each in groups]
            times += [1 / len(groups)] * len(groups)
        problems = [
            WeightProblem(each, owner, shares, held, lambda_theta, rho, penalty)  # type: ignore[arg-type]
            for each, held in pairs
        ]
        # F of the model of each release alone.
        start = jnp.zeros(rows.a.shape[1])
        thetas = [_train(problem, jnp.asarray(shares), start) for problem in problems]
        alone, there = jnp.zeros(len(parts)), np.asarray(few.weight) > 0
        for problem, theta, part in zip(problems, thetas, times, strict=True):
            ends = [_train(problem, w, theta) for w in jnp.eye(len(parts))]
            own_loss = jnp.stack([problem.outer(end) for end in ends])
            # Of one label, or group, nothing can be learned alone: that release is as the others.
            pair = 2 * np.asarray(owner) + (np.asarray(problem.rows.y) > 0)
            has = np.bincount(pair[there], minlength=2 * len(parts)).reshape(-1, 2) > 0
            both = jnp.asarray(has.all(axis=1))
            others = jnp.sum(jnp.where(both, own_loss, 0.0)) / jnp.maximum(both.sum(), 1)
            alone += part * jnp.where(both | ~both.any(), own_loss, others)
        if not (finite := np.isfinite(alone)).all():
            raise InputError(
                f"{[*parts][int(np.argmin(finite))]}: a model of its rows alone diverges; leave the"
                " release out"
            )
        mu = PULL / len(trusted.y) + rows.a.shape[1] * len(parts) / weight.sum()

        @jax.jit
        @jax.grad
        def direct(alpha: jax.Array) -> jax.Array:
            """The gradient of the second and third term."""
            logarithm = jax.nn.log_softmax(alpha)
            return jnp.exp(logarithm) @ (alone + mu * (logarithm - jnp.log(shares)))

        # Adam, from the shares of rows on.
        alpha, adam = jnp.log(shares), optax.adam(RATE)
        state = adam.init(alpha)
        for _ in range(STEPS):
            gradient = direct(alpha)
            for i, problem in enumerate(problems):
                thetas[i], through = hypergradient(problem, alpha, thetas[i])
                gradient += times[i] * through
            change, state = adam.update(gradient, state)
            alpha += jnp.asarray(change)
        return np.asarray(jax.nn.softmax(alpha)) / shares
