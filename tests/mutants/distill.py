"""Bugs in the bilevel problem and its solvers."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "the implicit derivative with the wrong sign",
        "distill/problem.py",
        "lambda leaf: -leaf, pull(",
        "lambda leaf: leaf, pull(",
        "test_hypergradient.py",
    ),
    Mutant(
        "the direct part of the hypergradient left out",
        "distill/problem.py",
        "return Point(x, theta, curvature, by_x + through_theta, record)",
        "return Point(x, theta, curvature, through_theta, record)",
        "test_hypergradient.py",
    ),
    Mutant(
        "the synthetic penalty left out of the outer objective",
        "distill/problem.py",
        "self.objective(params) + self.rho_s * unfairness + ridge",
        "self.objective(params) + ridge",
        "test_hypergradient.py",
    ),
    Mutant(
        "rho_o left out of F",
        "distill/problem.py",
        "self.rho_o * self.penalty(scores, rows)",
        "self.penalty(scores, rows)",
        "test_hypergradient.py",
    ),
    Mutant(
        "the last x released in place of the best",
        "distill/problem.py",
        "lax.cond(better,",
        "lax.cond(better | True,",
        "test_optimize.py",
    ),
    Mutant(
        "an x whose inner problem did not converge may be the best",
        "distill/problem.py",
        "return (now & ~then) | ((now == then) & (self.objective < best.objective))",
        "return self.objective < best.objective",
        "test_optimize.py",
    ),
    Mutant(
        "one step less",
        "distill/problem.py",
        "np.asarray(first + steps))",
        "np.asarray(first + steps - 1))",
        "test_optimize.py",
    ),
    Mutant(
        "the excess twice as large",
        "distill/problem.py",
        "decrement = 0.5 * jnp.sum(along**2",
        "decrement = 1.0 * jnp.sum(along**2",
        "test_optimize.py",
    ),
    Mutant(
        "whitening by L in place of its inverse transpose",
        "distill/solvers.py",
        "whiten = solve_triangular(factor.T, identity, lower=False)",
        "whiten = factor",
        "test_inner.py",
    ),
    Mutant(
        "L-BFGS solves a looser problem",
        "distill/solvers.py",
        "jnp.linalg.norm(at[1].grad) > self.tolerance",
        "jnp.linalg.norm(at[1].grad) > 10 * self.tolerance",
        "test_inner.py",
    ),
    Mutant(
        "Newton's steps are never halved",
        "distill/solvers.py",
        "return ~falls & (length >= shortest)",
        "return falls & ~falls",
        "test_inner.py",
    ),
    Mutant(
        "conjugate gradients that have not converged say they have",
        "distill/solvers.py",
        "residual <= 10 * small * jnp.linalg.norm(c)",
        "residual >= 0",
        "test_linear.py",
    ),
    Mutant(
        "the sensitivity of theta lacks its solve",
        "distill/solvers.py",
        "return -cho_solve(factor, push(dx))",
        "return -push(dx)",
        "test_gauss_newton.py",
    ),
    Mutant(
        "the search ends at the largest weight that suffices",
        "distill/gap_search.py",
        "return (True, gap) if gap > max_gap else (False, weight)",
        "return (True, gap) if gap > max_gap else (False, -weight)",
        "test_gap_search.py",
    ),
]
