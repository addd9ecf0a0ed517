"""Algorithm 1 in PyTorch: torch.optim.LBFGS from zero in each outer step, autograd's Hessian."""

# pyright: reportMissingImports=false
# (an optional package: pip install ".[bench]")
from __future__ import annotations

import os
import statistics
import time

import torch

from benchmarks.peers.problem import PeerProblem, PeerRun

CLEARLY = 0.9
"""Share of one thread's time that all must stay below: a tie would fall to chance, and all threads
have been seen to take twice as long over a whole run as in the trials."""


class Bilevel:
    """The two objectives as functions of tensors."""

    def __init__(self, problem: PeerProblem) -> None:
        """Turns the arrays into tensors, in double precision."""
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
        """theta(x), from zero.

        Often it stops before the tolerance, where the loss falls by less than torch's 1e-9.
        """
        theta = torch.zeros(self.n, dtype=x.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [theta], max_iter=100, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
        )

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.inner(theta, x)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        return theta.detach()

    def hypergradient(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Equation (13), with the minus sign that (14) lacks."""
        theta = theta.clone().requires_grad_()
        x = x.clone().requires_grad_()
        by_theta, by_x = torch.autograd.grad(self.outer(theta, x), (theta, x))
        hessian = torch.autograd.functional.hessian(lambda t: self.inner(t, x.detach()), theta)
        v = torch.linalg.solve(hessian, by_theta)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(self.inner(theta, x), theta, create_graph=True)
        (mixed,) = torch.autograd.grad(slope @ v, x)
        return by_x - mixed


def distil(problem: PeerProblem, steps: int) -> PeerRun:
    """Adam on x, with as many threads as are fastest."""
    bilevel = Bilevel(problem)
    first = time.perf_counter()
    note = choose_threads(bilevel)
    start = time.perf_counter()
    x = torch.tensor(problem.x, requires_grad=True)
    adam = torch.optim.Adam([x], lr=problem.learning_rate)
    for _ in range(steps):
        now = x.detach()
        x.grad = bilevel.hypergradient(bilevel.solve(now), now)
        adam.step()
    end = time.perf_counter()
    theta = bilevel.solve(x.detach())
    return PeerRun(x.detach().numpy(), theta.numpy(), (end - start,), start - first, note)


def choose_threads(bilevel: Bilevel, trials: int = 9) -> str:
    """Sets PyTorch's threads to one, or to all where that is clearly faster in some trials.

    Its threads wait for each other busily: on all cores of a machine that others use as well, that
    has made a step ten times slower than on one.
    """
    seconds = {count: [] for count in sorted({1, os.cpu_count() or 1})}
    _seconds_of_step(bilevel)  # warms up
    for _ in range(trials):
        for count, taken in seconds.items():
            torch.set_num_threads(count)
            taken.append(_seconds_of_step(bilevel))
    medians = {count: statistics.median(taken) for count, taken in seconds.items()}
    alone, all_ = min(medians), max(medians)
    best = all_ if medians[all_] < CLEARLY * medians[alone] else alone
    torch.set_num_threads(best)
    tried = ", ".join(f"{1e3 * median:.1f} ms with {count}" for count, median in medians.items())
    return f"torch runs with {best} thread{'s'[: best > 1]} (its first step takes {tried})"


def _seconds_of_step(bilevel: Bilevel) -> float:
    x, start = torch.tensor(bilevel.problem.x), time.perf_counter()
    bilevel.hypergradient(bilevel.solve(x), x)
    return time.perf_counter() - start
