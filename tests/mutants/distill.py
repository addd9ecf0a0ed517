"""Bugs in the bilevel problem and its solvers."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "the implicit derivative with the wrong sign",
        "distill/hypergradient.py",
        "lambda leaf: -leaf, pull(",
        "lambda leaf: leaf, pull(",
        "test_hypergradient.py",
    ),
    Mutant(
        "the direct part of the hypergradient left out",
        "distill/hypergradient.py",
        "return value, by_x + through_theta[: len(x)], solution",
        "return value, through_theta[: len(x)], solution",
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
        "distill/objective.py",
        "self.rho_o * self.penalty(scores, rows)",
        "self.penalty(scores, rows)",
        "test_hypergradient.py",
    ),
    Mutant(
        "the last x released in place of the best",
        "distill/optimize.py",
        "lax.cond(better,",
        "lax.cond(better | True,",
        "test_optimize.py",
    ),
    Mutant(
        "an x whose inner problem did not converge may be the best",
        "distill/optimize.py",
        "((now & ~then) | ((now == then) & lower))",
        "lower",
        "test_optimize.py",
    ),
    Mutant(
        "one step less",
        "distill/optimize.py",
        "return _state(x, params, curvature, method, first=0, last=steps)",
        "return _state(x, params, curvature, method, first=0, last=steps - 1)",
        "test_optimize.py",
    ),
    Mutant(
        "the excess twice as large",
        "distill/optimize.py",
        "decrement = 0.5 * jnp.sum(along**2",
        "decrement = 1.0 * jnp.sum(along**2",
        "test_optimize.py",
    ),
    Mutant(
        "whitening by L in place of its inverse transpose",
        "distill/inner.py",
        "scale = None if factor is None else _inverse_transpose(factor)",
        "scale = None if factor is None else factor",
        "test_inner.py",
    ),
    Mutant(
        "the line search takes any step",
        "distill/inner.py",
        "good = falls & ~steep",
        "good = falls | ~falls",
        "test_inner.py",
    ),
    Mutant(
        "Newton's steps are never halved",
        "distill/inner.py",
        "return ~falls & (length >= 0.5**MOST_TRIALS)",
        "return falls & ~falls",
        "test_inner.py",
    ),
    Mutant(
        "conjugate gradients that have not converged say they have",
        "distill/linear.py",
        "residual <= 10 * small * jnp.linalg.norm(c))",
        "residual >= 0)",
        "test_linear.py",
    ),
    Mutant(
        "the Gram matrix lacks one of its two solves",
        "distill/gauss_newton.py",
        "return cho_solve((point.curvature, True), half.T)",
        "return half.T",
        "test_gauss_newton.py",
    ),
    Mutant(
        "the search ends at the largest weight that suffices",
        "distill/gap_search.py",
        "best = not enough or weight < min(enough)",
        "best = not enough or weight > min(enough)",
        "test_gap_search.py",
    ),
]
