"""Algorithm 1 in PyTorch: torch.optim.LBFGS from zero in each outer step, autograd's Hessian."""

# pyright: reportMissingImports=false
# (an optional package: pip install ".[bench]")
from __future__ import annotations

import numpy as np
import torch

from benchmarks.peers.problem import Peer, PeerProblem, Reached, parts

SMALL_CHANGE = 1e-12
"""Lets training go on to its tolerance. PyTorch's own ``tolerance_change``, 1e-9, ends it where the
loss falls by less, here at gradients of 1e-6 to 1e-5."""


class Bilevel:
    """The two objectives as functions of tensors."""

    def __init__(self, problem: PeerProblem, tolerance_change: float) -> None:
        """Turn the arrays into tensors, in double precision."""
        self.tolerance_change = tolerance_change
        self.a, self.y = torch.tensor(problem.a), torch.tensor(problem.y)
        self.s_hat, self.y_hat = torch.tensor(problem.s_hat), torch.tensor(problem.y_hat)
        self.problem = problem
        self.n = self.a.shape[1]

    def inner(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Equation (11)."""
        a = torch.cat([x, self.s_hat[:, None]], dim=1)
        loss = torch.nn.functional.softplus(-self.y_hat * (a @ theta)).mean()
        return loss + self.problem.lambda_theta / (2 * self.n**2) * theta @ theta

    def outer(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Equation (12), with rho_s = 0."""
        scores, s = self.a @ theta, self.a[:, -1]
        covariance = ((s - s.mean()) * scores).mean()
        loss = torch.nn.functional.softplus(-self.y * scores).mean()
        ridge = self.problem.lambda_x / (2 * (x.shape[0] * self.n) ** 2) * (x**2).sum()
        return loss + self.problem.rho_o / 2 * covariance**2 + ridge

    def solve(self, x: torch.Tensor) -> torch.Tensor:
        """theta(x), from zero."""
        theta = torch.zeros(self.n, dtype=x.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [theta],
            max_iter=100,
            tolerance_grad=1e-7,
            tolerance_change=self.tolerance_change,
            line_search_fn="strong_wolfe",
        )

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.inner(theta, x)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        return theta.detach()

    def hypergradient(self, theta: torch.Tensor, x: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Equations (12) and (13), with the minus sign that (14) lacks."""
        theta = theta.clone().requires_grad_()
        x = x.clone().requires_grad_()
        value = self.outer(theta, x)
        by_theta, by_x = torch.autograd.grad(value, (theta, x))
        hessian = torch.autograd.functional.hessian(lambda t: self.inner(t, x.detach()), theta)
        v = torch.linalg.solve(hessian, by_theta)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(self.inner(theta, x), theta, create_graph=True)
        (mixed,) = torch.autograd.grad(slope @ v, x)
        return float(value.detach()), by_x - mixed


def distil(
    problem: PeerProblem,
    steps: int,
    *,
    threads: int | None = None,
    tolerance_change: float = SMALL_CHANGE,
) -> Peer:
    """Adam on x, with so many threads; as many as PyTorch takes by itself if not given."""
    usual = torch.get_num_threads()
    torch.set_num_threads(threads or usual)
    bilevel = Bilevel(problem, tolerance_change)
    x = torch.tensor(problem.x, requires_grad=True)
    bilevel.hypergradient(bilevel.solve(x.detach()), x.detach())  # warms up
    adam = torch.optim.Adam([x], lr=problem.learning_rate)
    yield np.empty(0)
    for part in parts(steps):
        values = []
        for _ in range(part):
            now = x.detach()
            value, x.grad = bilevel.hypergradient(bilevel.solve(now), now)
            adam.step()
            values.append(value)  # P(x) where it was
        yield np.array(values)
    theta = bilevel.solve(x.detach()).numpy()
    torch.set_num_threads(usual)
    yield Reached(x.detach().numpy(), theta)
