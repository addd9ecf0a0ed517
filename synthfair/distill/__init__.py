"""Distils real rows into synthetic ones: the bilevel problem, its derivative and its solvers."""
